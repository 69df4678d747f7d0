// What a device has detected of servers that break the protocol: of which kind, how often, and when last. For its owner.

export type Misconduct =
  | "task" // a server shows another task than the pinned one
  | "round" // the servers announce different rounds
  | "model" // the servers announce different models
  | "relay-key" // server 0 shows a relay key that server 1 has not signed, or no longer uses
  | "not-passed-on" // server 1 got something else from server 0 than this device has encrypted for it
  | "proof" // a server got an upload that is not from this device, or says so of this device's
  | "session" // a server holds keys or an upload of this session that this device has not sent
  | "receipt" // a server does not show that it, or server 1, holds what it was sent
  | "rows" // rows with a wrong tag, or an answer that cannot be read
  | "dense" // a dense part that the other server does not publish
  | "table"; // a table that the other server does not publish, or that is not the announced model

export interface Detection {
  readonly kind: Misconduct;
  readonly count: number;
  readonly last: string; // by this device's clock, UTC
}

/** Return detections with one more of a kind, in the order of their kinds. */
export function withOneMore(found: readonly Detection[], kind: Misconduct, date: string): Detection[] {
  const before = found.find((one) => one.kind === kind)?.count ?? 0;
  const others = found.filter((one) => one.kind !== kind);
  return [...others, { kind, count: before + 1, last: date }].sort((left, right) => (left.kind < right.kind ? -1 : 1));
}
