// Fault injection: lost, duplicated or truncated requests and answers, and a process that ends between two steps.

import type { Bytes } from "../src/core/bytes.js";
import type { Storage } from "../src/home/storage.js";
import type { Fetch } from "../src/transport.js";

/** Ends a device as the end of its process would: it does nothing afterwards. */
export class Killed extends Error {
  override name = "Killed";
}

/** Counts a device's actions on the outside world, and ends it before or after one of them. */
export class Life {
  acts = 0;
  #dead = false;

  constructor(
    readonly last = Infinity,
    readonly after = false, // the action itself is still done
  ) {}

  async act<Result>(action: () => Promise<Result>): Promise<Result> {
    if (this.#dead) throw new Killed();
    const number = ++this.acts;
    if (number === this.last && !this.after) this.#die();
    const result = await action();
    if (number === this.last) this.#die();
    return result;
  }

  #die(): never {
    this.#dead = true;
    throw new Killed();
  }
}

/** A home in memory, which outlives the devices that open it. */
export class MemoryStorage implements Storage {
  readonly records = new Map<string, Bytes>();
  life = new Life();
  where = "here";
  /** Names of records whose writes are lost: a fault to inject. */
  readonly forgets = new Set<string>();

  async open(): Promise<void> {}
  async close(): Promise<void> {}
  async read(name: string): Promise<Bytes | undefined> {
    return this.records.get(name)?.slice();
  }
  write(name: string, data: Bytes): Promise<void> {
    return this.life.act(async () => {
      if (!(this.forgets.has(name) && new TextDecoder("latin1").decode(data).includes('"stage":"written"'))) {
        this.records.set(name, data.slice());
      }
    });
  }
  remove(name: string): Promise<void> {
    return this.life.act(async () => void this.records.delete(name));
  }
  async place(): Promise<string> {
    return this.where;
  }
}

/** Return a fetch that fails at random, in every way; `chance` returns a number from 0 up to 1. */
export function unreliable(fetch: Fetch, chance: () => number): Fetch {
  return async (address, init) => {
    const fault = Math.floor(chance() * 8);
    if (fault === 0) throw new TypeError("the request was lost");
    if (fault === 1) await fetch(address, init); // it arrives twice
    const response = await fetch(address, init);
    if (fault === 2) throw new TypeError("the answer was lost");
    if (fault === 3 && response.body !== null) {
      const whole = new Uint8Array(await response.arrayBuffer());
      return new Response(cut(whole), { status: response.status, headers: response.headers });
    }
    if (fault === 4) return new Response("busy", { status: 503 });
    return response;
  };
}

/** Return a seeded generator of numbers from 0 up to 1. */
export function chances(seed: number): () => number {
  let state = (seed * 2654435761 + 1) >>> 0;
  return () => {
    state ^= state << 13;
    state ^= state >>> 17;
    state = (state ^ (state << 5)) >>> 0;
    return state / 2 ** 32;
  };
}

function cut(whole: Bytes): ReadableStream {
  return new ReadableStream({
    start(stream) {
      stream.enqueue(whole.subarray(0, whole.length >> 1));
      stream.error(new TypeError("the connection was cut"));
    },
  });
}
