// The storage of a device's home: named byte strings. Implement this to store it elsewhere.

import { HomeInUseError } from "../errors.js";
import type { Bytes } from "../core/bytes.js";

export interface Storage {
  /** Acquire the home for this object only, or raise `HomeInUseError`. */
  open(): Promise<void>;
  /** Release it. */
  close(): Promise<void>;
  read(name: string): Promise<Bytes | undefined>;
  /** Replace a record atomically: after a crash, either the old or the new one is stored. It is durable on return. */
  write(name: string, data: Bytes): Promise<void>;
  remove(name: string): Promise<void>;
  /**
   * Return a value that distinguishes this home from a copy, as far as possible; `renew` changes it.
   * A session that began in another place is dropped: its path may have been used there.
   */
  place(renew: boolean): Promise<string>;
}

const open = new Set<string>();

/** Reserve a name within this JavaScript realm, where there are no locks; return a function that releases it. */
export function takeName(name: string): () => void {
  if (open.has(name)) throw new HomeInUseError("another object has this home open; close it first");
  open.add(name);
  return () => void open.delete(name);
}
