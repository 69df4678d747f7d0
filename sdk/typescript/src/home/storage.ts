// Where a device keeps its home: named byte strings. Implement this to keep it elsewhere.

import { HomeInUseError } from "../errors.js";
import type { Bytes } from "../core/bytes.js";

export interface Storage {
  /** Take the home for this object alone, or raise `HomeInUseError`. */
  open(): Promise<void>;
  /** Release it. */
  close(): Promise<void>;
  read(name: string): Promise<Bytes | undefined>;
  /** Replace a record as a whole: after a crash the old one or the new one is there. It is durable on return. */
  write(name: string, data: Bytes): Promise<void>;
  remove(name: string): Promise<void>;
  /**
   * Return what tells this home from a copy of it, as far as that can be known here; `renew` makes it another one.
   * A session that began in another place is dropped: its path may have been used there.
   */
  place(renew: boolean): Promise<string>;
}

const open = new Set<string>();

/** Take a name within this JavaScript realm, where nothing else can lock it; return what releases it. */
export function takeName(name: string): () => void {
  if (open.has(name)) throw new HomeInUseError("another object has this home open; close it first");
  open.add(name);
  return () => void open.delete(name);
}
