// Two servers in memory, behind a fetch: they follow the protocol and record what devices do wrong.

import { ed25519, x25519 } from "@noble/curves/ed25519.js";

import { ascii, bytesOf, concat, hex, sha256, text, u64, unhex, wordsOf, type Bytes } from "../src/core/bytes.js";
import { encodeCanonical, type Group } from "../src/core/canonical.js";
import { holdOf, mask, receiptOf, denseMark } from "../src/core/marks.js";
import { ENVELOPE_BYTES, KINDS, envelope, type MessageKind } from "../src/core/messages.js";
import { stepOf } from "../src/core/relay.js";
import { SUM_RING, type Elements } from "../src/core/ring.js";
import { RoundSpec, TaskSpec, encodeRound, type Kind } from "../src/core/spec.js";
import { SecEmbError } from "../src/errors.js";
import { encodeBase64 } from "../src/core/base64.js";
import {
  accumulate, answer, checkMac, decodeKeys, decodeSumShare, decodeUpdate, openContent, orderOf, rebuild, splitRelayed,
  sumShareOf, tagTable,
} from "./party.js";

export const NOW = 1_800_000_000; // the pair's clock, seconds since 1970
export const SERVERS: [string, string] = ["https://server0.example", "https://server1.example"];
const IDENTITY = new Uint8Array(32).fill(3);
const RELAY_PRIVATE = new Uint8Array(32).fill(5);

const FIELDS: Group = {
  bias_decay: "0", bias_rate: "0.05", bins: 4, bound: 2 ** 20, capacity: 6, catalogue: "", centre: "0", cohort: 8,
  dense_rate: "0.001", dense_size: 0, fraction_bits: 16, guard: "8", highest: "", initial_scale: "0.05", items: 17,
  join_seconds: 60, loss: "squared", lowest: "", min_cohort: 2, name: "faults", norm_bound: 0, optimiser: "adam", privacy: {},
  protocol: "secemb/2", identity0: "", predecessor: "", relay_key: "", ring_bits: 32, rounds: 100, row_decay: "0", row_rate: "0.02", row_width: 3,
  schedule: "cosine", seed: 0, spread: "1", tables: 3, upload_seconds: 600,
};

export function makeTask(changes: Group = {}): TaskSpec {
  return TaskSpec.decode(encodeCanonical({ ...FIELDS, relay_key: hex(ed25519.getPublicKey(IDENTITY)), ...changes }));
}

interface Session {
  keys: (Bytes | undefined)[];
  update: (Bytes | undefined)[];
}

/** The sum of a round. */
export interface Total {
  readonly sessions: number;
  readonly rows: Float64Array; // (items, width) of a training round
  readonly sums: Float64Array; // of a survey or an evaluation
}

export class Pair {
  /** Violations by devices: different bytes for a session, a message that does not decode, an upload without its MAC. */
  readonly violations: string[] = [];
  round!: RoundSpec;
  ended = false;
  #number = -1;
  #sessions = new Map<string, Session>();
  readonly #admitted = new Map<string, number>();
  readonly #table: Uint32Array;

  constructor(readonly task: TaskSpec) {
    this.#table = new Uint32Array(Float32Array.from({ length: task.items * task.width }, (_, at) => Math.sin(at)).buffer);
    this.open("train");
  }

  /** Open the next round; messages of the previous one no longer count. */
  open(kind: Kind): void {
    this.#number++;
    this.#sessions = new Map();
    const fields = { kind, model_digest: "ab".repeat(32), model_version: this.#number, round: this.#number, task: hex(this.task.id) };
    this.round = RoundSpec.decode(encodeRound(fields), this.task);
  }

  /** Sum the sessions that both servers hold. */
  total(): Total {
    const { ring, items, width } = this.task;
    const complete = [...this.#sessions].filter(([, one]) => one.update[0] && one.update[1]);
    const rows = [ring.zeros(items * width), ring.zeros(items * width)];
    const sums = [SUM_RING.zeros(this.round.sumSize), SUM_RING.zeros(this.round.sumSize)];
    const order = orderOf(this.round);
    for (const [name, { keys, update }] of complete) {
      for (const party of [0, 1]) {
        const id = unhex(name);
        if (this.round.kind === "train") {
          const held = decodeKeys(this.round, id, party, keys[party]!);
          const said = decodeUpdate(this.round, id, party, update[party]!);
          accumulate(this.round, held, said, keys[1]!.subarray(24, 40), order, rows[party]!, ring.zeros(0));
        } else {
          SUM_RING.add(sums[party]!, sumShareOf(this.round, id, party, decodeSumShare(this.round, id, party, update[party]!)));
        }
      }
    }
    ring.add(rows[0]!, rows[1]!);
    SUM_RING.add(sums[0]!, sums[1]!);
    return { sessions: complete.length, rows: ring.decode(rows[0] as Elements), sums: SUM_RING.decode(sums[0] as Elements) };
  }

  /** Serve one request. */
  readonly fetch = async (address: string, init: RequestInit): Promise<Response> => {
    const server = SERVERS.findIndex((one) => address.startsWith(one));
    const path = address.slice(SERVERS[server]!.length);
    const headers = new Headers(init.headers);
    try {
      return this.#serve(server, path, headers, (init.body as Bytes | null) ?? new Uint8Array(0));
    } catch (error) {
      if (!(error instanceof SecEmbError)) throw error;
      this.violations.push(`${path.split("/").at(-1)}: ${error.name}`);
      return problem(400, "message-length");
    }
  };

  #serve(server: number, path: string, headers: Headers, body: Bytes): Response {
    const task = `/v1/tasks/${hex(this.task.id)}`;
    if (path === task) return json(this.#view());
    if (path === `${task}/relay`) return new Response(this.#announcement() as BodyInit);
    if (path === `${task}/join`) return this.#join(JSON.parse(text(body)).session as string);
    const found = /^\/v1\/rounds\/([0-9a-f]{64})\/sessions\/([0-9a-f]{32})\/([a-z-]+)$/.exec(path);
    if (found === null) return problem(404, "not-found");
    if (found[1] !== hex(this.round.digest)) return problem(410, "round-closed");
    const name = found[2]!;
    const mac = unhex(headers.get("secemb-proof") ?? "");
    switch (found[3]) {
      case "keys":
        return this.#keep(name, server, "keys", body) ?? new Response(this.#answer(name, server, body) as BodyInit);
      case "update":
        return this.#upload(name, server, body, mac) ?? json({ sha256: hex(sha256(body)) });
      case "relayed-keys":
        return this.#relayed(name, KINDS.RELAYED_KEYS, body, mac);
      default:
        return this.#relayed(name, KINDS.RELAYED_UPLOAD, body, mac);
    }
  }

  #view(): unknown {
    return {
      task: text(this.task.encode()),
      round: this.ended ? null : this.round.text,
      ended: this.ended,
      model_version: this.#number,
      model_digest: "ab".repeat(32),
      rounds: this.#endings(),
    };
  }

  #endings(): unknown {
    return { since: 0, until: this.ended ? this.#number : this.#number - 1, aborted: { 2: "too few sessions" } };
  }

  #join(name: string): Response {
    if (this.ended) return problem(410, "task-ended");
    if ((this.#admitted.get(name) ?? this.#number) !== this.#number) return problem(409, "session-conflict");
    this.#admitted.set(name, this.#number);
    const relay = encodeBase64(this.#announcement()).replace(/\+/g, "-").replace(/\//g, "_");
    return json({ round: this.round.text, ticket: "ticket", upload_until: NOW + 600, rounds: this.#endings(), relay });
  }

  #keep(name: string, party: number, what: keyof Session, body: Bytes): Response | undefined {
    const session = this.#sessions.get(name) ?? { keys: [], update: [] };
    const before = session[what][party];
    if (before !== undefined && hex(before) !== hex(body)) {
      this.violations.push(`other bytes for the ${what} of a session`);
      return problem(409, "session-conflict");
    }
    session[what][party] = body.slice();
    this.#sessions.set(name, session);
    return undefined;
  }

  #answer(name: string, party: number, keys: Bytes): Bytes {
    const id = unhex(name);
    const held = decodeKeys(this.round, id, party, keys);
    return answer(this.round, id, held, orderOf(this.round), tagTable(this.round, this.#table));
  }

  #upload(name: string, party: number, body: Bytes, mac: Bytes): Response | undefined {
    const keys = this.#sessions.get(name)?.keys[party];
    if (keys === undefined) return problem(410, "session-unknown");
    checkMac(this.round.label(unhex(name)), holdOf(keys), body, mac);
    if (this.round.kind === "train") decodeUpdate(this.round, unhex(name), party, body);
    else decodeSumShare(this.round, unhex(name), party, body);
    return this.#keep(name, party, "update", body);
  }

  #relayed(name: string, kind: MessageKind, body: Bytes, mac: Bytes): Response {
    const id = unhex(name);
    const step = stepOf(this.round, kind);
    const split = splitRelayed(this.round, id, kind, body);
    const [other, otherMac] = rebuild(this.round, id, step, split.shared, openContent(this.round, id, step, RELAY_PRIVATE, split.box));
    const label = this.round.label(id);
    if (kind === KINDS.RELAYED_UPLOAD) {
      const refused = this.#upload(name, 0, split.own, mac) ?? this.#upload(name, 1, other, otherMac);
      if (refused !== undefined) return refused;
      const hold = holdOf(this.#sessions.get(name)!.keys[1]!);
      return json({ sha256: hex(sha256(split.own)), receipt: hex(receiptOf(label, hold, sha256(other))) });
    }
    const refused = this.#keep(name, 0, "keys", split.own) ?? this.#keep(name, 1, "keys", other);
    if (refused !== undefined) return refused;
    const hold = holdOf(other);
    const answers = [split.own, other].map((keys, party) => wordsOf(this.#answer(name, party, keys).subarray(ENVELOPE_BYTES)));
    const masked = mask(label, hold, answers[1]!).map((word, at) => word ^ answers[0]![at]!);
    const marks = [receiptOf(label, hold, hold), denseMark(label, hold, sha256(new Uint8Array(0)))];
    return new Response(concat(envelope(this.round, id, KINDS.RELAYED_ANSWER, 0), bytesOf(masked), ...marks) as BodyInit);
  }

  #announcement(): Bytes {
    const fields = concat(x25519.getPublicKey(RELAY_PRIVATE), u64(NOW - 1000), u64(NOW + 100_000));
    return concat(fields, ed25519.sign(concat(ascii("secemb/1 relay key"), this.task.id, fields), IDENTITY));
  }
}

function json(found: unknown): Response {
  return new Response(JSON.stringify(found), { headers: { "content-type": "application/json", date: new Date(1000 * NOW).toUTCString() } });
}

function problem(status: number, slug: string): Response {
  const headers = { "content-type": "application/problem+json" };
  return new Response(JSON.stringify({ type: `urn:secemb:problem:${slug}`, status }), { status, headers });
}
