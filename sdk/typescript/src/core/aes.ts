// AES on blocks of four 32-bit words, and the hash and the stream based on it.
//
// This AES looks up tables, as all JavaScript does: its time depends on keys and data through the processor's caches.
// Code that shares a core with it may learn something; docs/typescript.md says what that means.

import { unsafe } from "@noble/ciphers/aes.js";

import type { Bytes } from "./bytes.js";

export const BLOCK = 16;

/** One expanded key. Blocks are (n, 4) words; words 0 and 1 are `lo`, words 2 and 3 `hi`. */
export class Aes {
  readonly #rounds: Uint32Array;

  constructor(key: Bytes) {
    this.#rounds = unsafe.expandKeyLE(key);
  }

  /** Encrypt each block in place. */
  encrypt(blocks: Uint32Array): Uint32Array {
    const rounds = this.#rounds;
    for (let at = 0; at < blocks.length; at += 4) {
      const { s0, s1, s2, s3 } = unsafe.encrypt(rounds, blocks[at]!, blocks[at + 1]!, blocks[at + 2]!, blocks[at + 3]!);
      blocks[at] = s0;
      blocks[at + 1] = s1;
      blocks[at + 2] = s2;
      blocks[at + 3] = s3;
    }
    return blocks;
  }

  /** Replace each block x by H(x) = AES(σ(x)) ⊕ σ(x), where σ(lo, hi) = (hi, lo ⊕ hi). */
  hash(blocks: Uint32Array): Uint32Array {
    const rounds = this.#rounds;
    for (let at = 0; at < blocks.length; at += 4) {
      const x0 = blocks[at + 2]!;
      const x1 = blocks[at + 3]!;
      const x2 = blocks[at]! ^ x0;
      const x3 = blocks[at + 1]! ^ x1;
      const { s0, s1, s2, s3 } = unsafe.encrypt(rounds, x0, x1, x2, x3);
      blocks[at] = s0 ^ x0;
      blocks[at + 1] = s1 ^ x1;
      blocks[at + 2] = s2 ^ x2;
      blocks[at + 3] = s3 ^ x3;
    }
    return blocks;
  }

  /** Return `count` blocks of the stream, from block `first` on: the encrypted numbers of the blocks. */
  stream(count: number, first = 0): Uint32Array {
    const blocks = new Uint32Array(4 * count);
    for (let index = 0; index < count; index++) {
      blocks[4 * index] = (first + index) % 2 ** 32;
      blocks[4 * index + 1] = Math.floor((first + index) / 2 ** 32);
    }
    return this.encrypt(blocks);
  }

  /** Return the first words of the stream. */
  words(count: number): Uint32Array {
    return this.stream(Math.ceil(count / 4)).subarray(0, count);
  }
}
