// Prime fields for the norm proof, large enough that no sum of squares overflows.

import { Aes } from "../core/aes.js";
import { bytesOf, type Bytes } from "../core/bytes.js";
import { EncodingError, LengthError } from "../errors.js";

export class Field {
  constructor(
    readonly prime: bigint,
    readonly size: number, // bytes of an element
  ) {}

  reduce(value: bigint): bigint {
    const rest = value % this.prime;
    return rest < 0n ? rest + this.prime : rest;
  }

  encode(values: readonly bigint[]): Bytes {
    const written = new Uint8Array(values.length * this.size);
    values.forEach((value, index) => {
      let rest = value;
      for (let at = 0; at < this.size; at++) {
        written[index * this.size + at] = Number(rest & 0xffn);
        rest >>= 8n;
      }
    });
    return written;
  }

  /** Return `count` elements; refuse any other length, and any number not below the prime. */
  decode(data: Bytes, count: number): bigint[] {
    if (data.length !== count * this.size) throw new LengthError(`${count} field elements have ${count * this.size} bytes`);
    const values = this.#groups(data);
    if (values.some((value) => value >= this.prime)) throw new EncodingError("a field element is not below the prime");
    return values;
  }

  /** Return uniform elements from the stream of an AES key, by rejection. */
  stream(key: Bytes, count: number): bigint[] {
    const cipher = new Aes(key);
    const blocks = this.size / 16;
    const top = (1n << BigInt(8 * this.size - 1)) - 1n;
    const found: bigint[] = [];
    for (let first = 0; found.length < count; ) {
      const groups = count - found.length + 1;
      const candidates = this.#groups(bytesOf(cipher.stream(groups * blocks, first))).map((value) => value & top);
      found.push(...candidates.filter((value) => value < this.prime));
      first += groups * blocks;
    }
    return found.slice(0, count);
  }

  dot(left: readonly bigint[], right: readonly bigint[]): bigint {
    return this.reduce(left.reduce((sum, value, at) => sum + value * right[at]!, 0n));
  }

  #groups(data: Bytes): bigint[] {
    return Array.from({ length: data.length / this.size }, (_, index) => {
      let value = 0n;
      for (let at = this.size - 1; at >= 0; at--) value = (value << 8n) | BigInt(data[index * this.size + at]!);
      return value;
    });
  }
}

const SMALL = new Field((1n << 127n) - 1n, 16);
export const FIELDS: Readonly<Record<number, Field>> = {
  24: SMALL,
  32: SMALL,
  64: new Field((1n << 255n) - 19n, 32),
};
