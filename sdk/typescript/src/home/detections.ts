// Protocol violations by servers that a device has detected: of which kind, how often, and when last. For its owner.

export type Misconduct =
  | "task" // a server presents a task other than the pinned one
  | "round" // the servers announce different rounds
  | "model" // the servers announce different models
  | "relay-key" // server 0 presents a relay key that server 1 has not signed, or no longer uses
  | "not-passed-on" // server 1 received something other than what this device encrypted for it
  | "proof" // a server received an upload that is not from this device, or claims that this device's is not
  | "session" // a server holds keys or an upload of this session that this device has not sent
  | "receipt" // a server does not prove that it, or server 1, holds what was sent
  | "rows" // rows with a wrong tag, or an answer that cannot be read
  | "dense" // a dense part that differs from the other server's
  | "table"; // a table that differs from the other server's, or is not the announced model

export interface Detection {
  readonly kind: Misconduct;
  readonly count: number;
  readonly last: string; // UTC, from this device's clock
}

/** Return detections with one more of this kind, in the order of their kinds. */
export function withOneMore(found: readonly Detection[], kind: Misconduct, date: string): Detection[] {
  const before = found.find((one) => one.kind === kind)?.count ?? 0;
  const others = found.filter((one) => one.kind !== kind);
  return [...others, { kind, count: before + 1, last: date }].sort((left, right) => (left.kind < right.kind ? -1 : 1));
}
