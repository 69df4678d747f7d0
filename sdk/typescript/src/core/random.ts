// Protocol randomness: bytes from the system's cryptographic source, and draws made from them.

import { SecEmbError } from "../errors.js";
import { Aes } from "./aes.js";
import { bytesOf, wordsOf, type Bytes } from "./bytes.js";

export type RandomBytes = (count: number) => Bytes;

const MOST_AT_ONCE = 65_536; // maximum bytes of one call of getRandomValues

export const secureBytes: RandomBytes = (count) => {
  const source = globalThis.crypto;
  if (source?.getRandomValues === undefined) {
    throw new SecEmbError("there is no crypto.getRandomValues here; in React Native import react-native-get-random-values first");
  }
  const drawn = new Uint8Array(count);
  for (let at = 0; at < count; at += MOST_AT_ONCE) source.getRandomValues(drawn.subarray(at, at + MOST_AT_ONCE));
  return drawn;
};

/** Return a source that repeats the same bytes in order: a seed is used for one session, and reveals its paths. */
export function seededBytes(seed: Bytes): RandomBytes {
  const cipher = new Aes(seed); // 32 bytes: AES-256, the block's number encrypted
  let block = 0;
  let left: Bytes = new Uint8Array(0);
  return (count) => {
    const drawn = new Uint8Array(count);
    let at = 0;
    while (at < count) {
      if (left.length === 0) {
        const blocks = Math.max(1, Math.ceil((count - at) / 16));
        left = bytesOf(cipher.stream(blocks, block));
        block += blocks;
      }
      const some = left.subarray(0, count - at);
      drawn.set(some, at);
      at += some.length;
      left = left.subarray(some.length);
    }
    return drawn;
  };
}

/** Return one number below each bound (at most 2^31); 64 random bits make the bias at most bound / 2^64. */
export function drawBelow(bounds: ArrayLike<number>, randomBytes: RandomBytes): Int32Array {
  const words = wordsOf(randomBytes(8 * bounds.length));
  return Int32Array.from({ length: bounds.length }, (_, at) => remainder(words[2 * at + 1]!, words[2 * at]!, bounds[at]!));
}

/** Return `count` distinct members in random order: the first of a shuffle by random keys. */
export function sample(population: ArrayLike<number>, count: number, randomBytes: RandomBytes): Int32Array {
  const keys = wordsOf(randomBytes(8 * population.length));
  const order = Uint32Array.from({ length: population.length }, (_, at) => at);
  order.sort((left, right) => keys[2 * left + 1]! - keys[2 * right + 1]! || keys[2 * left]! - keys[2 * right]! || left - right);
  return Int32Array.from(order.subarray(0, count), (at) => population[at]!);
}

/** Return a number from 0 up to 1. */
export function drawChance(randomBytes: RandomBytes): number {
  const words = wordsOf(randomBytes(8));
  return (words[0]! + 2 ** 32 * (words[1]! & 0x1fffff)) / 2 ** 53;
}

function remainder(high: number, low: number, bound: number): number {
  let rest = high % bound;
  rest = (rest * 65_536 + (low >>> 16)) % bound; // stays below 2^47
  return (rest * 65_536 + (low & 0xffff)) % bound;
}
