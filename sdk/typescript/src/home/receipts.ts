// Privacy receipts: what left the device in a round, for its owner to read. They contain no item and no rating.

import type { Kind, RoundSpec } from "../core/spec.js";

/** Bytes of bodies to and from each server; retries count, and so do the bytes transferred in failed requests. */
export interface Traffic {
  readonly sent: [number, number];
  readonly received: [number, number];
}

export function noTraffic(): Traffic {
  return { sent: [0, 0], received: [0, 0] };
}

export type Transport = "direct" | "relayed";

export interface Receipt {
  readonly round: number;
  readonly kind: Kind;
  readonly modelVersion: number;
  readonly modelDigest: string;
  readonly sent: readonly [number, number];
  readonly received: readonly [number, number];
  readonly slots: number; // keys sent; the same for every device
  readonly truncated: number; // items that could not be placed in this round, or are not in the catalogue
  readonly complete: boolean; // both servers acknowledged everything; otherwise the session was dropped
  readonly date: string; // UTC, from this device's clock
  readonly transport: Transport;
  readonly published: boolean | null; // whether the round was published, according to server 0; null: not yet known
  readonly version: number | null; // the resulting model
  readonly reason: string | null; // why it was aborted
}

export function makeReceipt(
  round: RoundSpec,
  traffic: Traffic,
  made: { truncated: number; complete: boolean; date: string; transport: Transport },
): Receipt {
  return {
    round: round.number,
    kind: round.kind,
    modelVersion: round.modelVersion,
    modelDigest: round.modelDigest,
    sent: [...traffic.sent],
    received: [...traffic.received],
    slots: round.task.geometry.slots,
    ...made,
    published: null,
    version: null,
    reason: null,
  };
}

/** How rounds ended, according to server 0: all from `since` to `until` were published, except the aborted. */
export interface EndedRounds {
  readonly since: number;
  readonly until: number;
  readonly aborted: ReadonlyMap<number, string>;
}

/** Parse a server's statement, or return undefined if it is malformed: nothing depends on it. */
export function readEndedRounds(found: unknown): EndedRounds | undefined {
  if (typeof found !== "object" || found === null) return undefined;
  const { since, until, aborted } = found as Record<string, unknown>;
  if (!Number.isSafeInteger(since) || !Number.isSafeInteger(until) || typeof aborted !== "object" || aborted === null) return undefined;
  const reasons = Object.entries(aborted).map(([number, reason]) => [Number(number), oneLine(reason)] as const);
  return { since: since as number, until: until as number, aborted: new Map(reasons) };
}

/** Return a receipt with the outcome of its round; the receipt must be complete and not yet settled. */
export function settleReceipt(receipt: Receipt, rounds: EndedRounds): Receipt {
  const known = receipt.round >= rounds.since && receipt.round <= rounds.until;
  if (!receipt.complete || receipt.published !== null || !known) return receipt;
  const reason = rounds.aborted.get(receipt.round);
  if (reason !== undefined) return { ...receipt, published: false, reason };
  return { ...receipt, published: true, version: receipt.kind === "train" ? receipt.modelVersion + 1 : null };
}

export function dateOf(seconds: number): string {
  const date = new Date(1000 * seconds);
  return Number.isNaN(date.getTime()) ? "unknown" : `${date.toISOString().slice(0, 19)}+00:00`;
}

function oneLine(text: unknown): string {
  return typeof text === "string" && text.length <= 200 && /^[\x20-\x7e]*$/.test(text) ? text : "for a reason that cannot be shown";
}
