// The data that a home stores under one name: fields and byte strings; and the stages of a session.

import { ascii, bytesOf, concat, text, wordsOf, type Bytes } from "../core/bytes.js";
import type { Messages } from "../core/messages.js";
import type { Marks } from "../core/session.js";
import { DamagedError } from "../errors.js";
import type { PrivateState } from "../models/update.js";
import type { Selection } from "../round/selection.js";
import type { Traffic, Transport } from "./receipts.js";

// eslint-disable-next-line @typescript-eslint/no-explicit-any
export type Fields = Record<string, any>;

export interface StoredRecord {
  readonly fields: Fields;
  readonly parts: Readonly<Record<string, Bytes>>;
}

export function encodeRecord({ fields, parts }: StoredRecord): Bytes {
  const lengths = Object.entries(parts).map(([name, part]) => [name, part.length]);
  const head = ascii(JSON.stringify({ fields, parts: lengths }));
  return concat(bytesOf(Uint32Array.of(head.length)), head, ...Object.values(parts));
}

export function decodeRecord(data: Bytes): StoredRecord {
  try {
    let at = 4 + wordsOf(data)[0]!;
    const head = JSON.parse(text(data.subarray(4, at))) as { fields: Fields; parts: [string, number][] };
    const parts: Record<string, Bytes> = {};
    for (const [name, length] of head.parts) {
      parts[name] = data.slice(at, at + length);
      at += length;
    }
    if (at === data.length) return { fields: head.fields, parts };
  } catch {
    // refused below
  }
  throw new DamagedError("a record of the home is corrupted; call forget(), or use a new home");
}

/** The round of a session, its permission, and its traffic so far. */
export interface Ticket {
  readonly round: string; // canonical form
  readonly ticket: string;
  readonly truncated: number;
  readonly traffic: Traffic;
  readonly receipts: number; // number of receipts before this session: it adds one, however often it is finished
  readonly transport: Transport;
  readonly routeState: Bytes; // the data that the transport's route needs to send the messages
}

/** A session that at most server 0 may know of. */
export interface Intent {
  readonly stage: "intent";
  readonly seed: Bytes;
}

/** A session whose keys may have been sent. */
export interface Keyed {
  readonly stage: "keyed";
  readonly ticket: Ticket;
  readonly seed: Bytes;
  readonly selection: Selection;
  readonly keysDigest: Bytes; // of both messages: rebuilt keys must equal those that were sent
}

/** A session whose update may have been sent. */
export interface Written {
  readonly stage: "written";
  readonly ticket: Ticket;
  readonly sessionId: Bytes;
  readonly update: Messages;
  readonly marks: Marks;
  readonly private: PrivateState | undefined; // replaces the private part once both servers have the update
  readonly trouble: string | undefined; // the name of the error that prevented training
}

export type Stage = Intent | Keyed | Written;

export function encodeStage(stage: Stage): StoredRecord {
  if (stage.stage === "intent") return { fields: { stage: "intent" }, parts: { seed: stage.seed } };
  const { routeState, ...ticket } = stage.ticket;
  if (stage.stage === "keyed") {
    const { items, values, heldOut, leftOut } = stage.selection;
    const parts = { seed: stage.seed, digest: stage.keysDigest, route: routeState, items: bytesOf(items), values: bytesOf(values), heldOut };
    return { fields: { stage: "keyed", ticket, leftOut }, parts };
  }
  const own = stage.private === undefined ? undefined : encodePrivate(stage.private);
  const parts = {
    session: stage.sessionId, route: routeState, receipt: stage.marks.receipt,
    update0: stage.update[0], update1: stage.update[1], proof0: stage.marks.macs[0], proof1: stage.marks.macs[1],
    ...own?.parts,
  };
  return { fields: { stage: "written", ticket, trouble: stage.trouble, private: own?.fields }, parts };
}

export function decodeStage({ fields, parts }: StoredRecord): Stage {
  const part = (name: string): Bytes => {
    const found = parts[name];
    if (found === undefined) throw new DamagedError("the pending session is corrupted; call forget() and start again");
    return found;
  };
  if (fields["stage"] === "intent") return { stage: "intent", seed: part("seed") };
  const ticket = { ...(fields["ticket"] as Omit<Ticket, "routeState">), routeState: part("route") };
  if (fields["stage"] === "keyed") {
    const selection = {
      items: Int32Array.from(new Int32Array(wordsOf(part("items")).buffer)),
      values: new Float32Array(wordsOf(part("values")).buffer),
      heldOut: part("heldOut"),
      leftOut: fields["leftOut"] as number,
    };
    return { stage: "keyed", ticket, seed: part("seed"), selection, keysDigest: part("digest") };
  }
  const own = fields["private"] as Fields | undefined;
  return {
    stage: "written",
    ticket,
    sessionId: part("session"),
    update: [part("update0"), part("update1")],
    marks: { macs: [part("proof0"), part("proof1")], receipt: part("receipt") },
    private: own === undefined ? undefined : decodePrivate({ fields: own, parts }),
    trouble: (fields["trouble"] as string | undefined) ?? undefined,
  };
}

export function encodePrivate(state: PrivateState): StoredRecord {
  const { values, first, second, steps } = state;
  return { fields: { steps }, parts: { "private values": bytesOf(values), "private first": bytesOf(first), "private second": bytesOf(second) } };
}

export function decodePrivate({ fields, parts }: StoredRecord): PrivateState {
  const floats = (name: string) => new Float32Array(wordsOf(parts[`private ${name}`] ?? new Uint8Array(0)).buffer);
  return { steps: fields["steps"] as number, values: floats("values"), first: floats("first"), second: floats("second") };
}
