// Fixed-point numbers in Z modulo 2^32, 2^64 or 2^24: two's complement, with `fractionBits` fractional bits.
//
// Elements are 32-bit words, one or two each, the lower one first, so that all rings are encoded and added alike. In the
// ring of 24 bits the upper 8 bits of a word mean nothing; an element is three bytes wherever it is sent or hashed.

import { NotFiniteError, OutOfRangeError, OverflowBudgetError, RingError } from "../errors.js";
import { Aes } from "./aes.js";
import { bytesOf, wordsOf, type Bytes } from "./bytes.js";

export type Elements = Uint32Array;

export class Ring {
  /** 32-bit words of an element. */
  readonly words: number;

  constructor(
    readonly bits: number,
    readonly fractionBits: number = 16,
  ) {
    if (bits !== 24 && bits !== 32 && bits !== 64) throw new RingError("ring bits must be 24, 32 or 64");
    if (!(fractionBits >= 0 && fractionBits <= bits - 2)) {
      throw new RingError("fraction bits must leave room for a sign and at least one bit");
    }
    this.words = Math.ceil(bits / 32);
  }

  get elementBytes(): number {
    return this.bits / 8;
  }

  /** Return the elements as sent. */
  pack(elements: Elements): Bytes {
    const bytes = bytesOf(elements);
    return this.bits === 24 ? bytes.filter((_, at) => at % 4 < 3) : bytes;
  }

  /** Reverse `pack`. */
  unpack(data: Bytes): Elements {
    if (this.bits !== 24) return wordsOf(data);
    return Uint32Array.from({ length: data.length / 3 }, (_, at) => data[3 * at]! | (data[3 * at + 1]! << 8) | (data[3 * at + 2]! << 16));
  }

  zeros(count: number): Elements {
    return new Uint32Array(count * this.words);
  }

  /** Return the nearest elements; refuse NaN, infinity and anything beyond `bound` steps or the ring. */
  encode(values: ArrayLike<number>, bound?: number): Elements {
    const half = 2 ** (this.bits - 1);
    const limit = bound ?? half;
    const scale = 2 ** this.fractionBits;
    const found = this.zeros(values.length);
    for (let at = 0; at < values.length; at++) {
      const value = values[at]!;
      if (!Number.isFinite(value)) throw new NotFiniteError("NaN or infinity cannot be encoded; clip or drop the update first");
      const steps = roundToEven(value * scale); // a power of two scales exactly
      if (!(steps >= -limit && steps <= limit && steps < half)) {
        throw new OutOfRangeError("a value is beyond the task's bound or the ring; clip the update first");
      }
      if (this.words === 1) {
        found[at] = this.bits === 24 ? steps & 0xffffff : steps;
      } else {
        const high = Math.floor(steps / 2 ** 32);
        found[2 * at] = steps - high * 2 ** 32;
        found[2 * at + 1] = high;
      }
    }
    return found;
  }

  /** Return the centred values: elements of at least half the modulus are negative. */
  decode(elements: Elements): Float64Array {
    const scale = 2 ** this.fractionBits;
    const above = 32 - Math.min(32, this.bits);
    const found = new Float64Array(elements.length / this.words);
    for (let at = 0; at < found.length; at++) {
      found[at] = this.words === 1 ? ((elements[at]! << above) >> above) / scale : Number(signed(elements, at)) / scale;
    }
    return found;
  }

  /** Refuse a cohort whose sum could overflow: cohort · bound + noise tail must stay below half the modulus. */
  checkBudget(cohort: number, bound: number, noiseTail: bigint = 0n): void {
    if (cohort < 1 || bound < 1 || noiseTail < 0n) {
      throw new OverflowBudgetError("cohort and bound must be at least 1, the noise tail at least 0");
    }
    if (BigInt(cohort) * BigInt(bound) + noiseTail >= 1n << BigInt(this.bits - 1)) {
      throw new OverflowBudgetError("a whole cohort could wrap around the ring: lower the cohort, the clip or the fraction bits");
    }
  }

  /** Add elements to others in place. */
  add(sums: Elements, values: Elements): void {
    if (this.words === 1) {
      for (let at = 0; at < sums.length; at++) sums[at] = sums[at]! + values[at]!;
      return;
    }
    for (let at = 0; at < sums.length; at += 2) {
      const low = sums[at]! + values[at]!;
      sums[at + 1] = sums[at + 1]! + values[at + 1]! + (low >= 2 ** 32 ? 1 : 0);
      sums[at] = low;
    }
  }

  /** Subtract elements from others in place. */
  subtract(sums: Elements, values: Elements): void {
    if (this.words === 1) {
      for (let at = 0; at < sums.length; at++) sums[at] = sums[at]! - values[at]!;
      return;
    }
    for (let at = 0; at < sums.length; at += 2) {
      const low = sums[at]! - values[at]!;
      sums[at + 1] = sums[at + 1]! - values[at + 1]! - (low < 0 ? 1 : 0);
      sums[at] = low;
    }
  }

  /** Replace elements by their negatives in place. */
  negate(values: Elements): void {
    if (this.words === 1) {
      for (let at = 0; at < values.length; at++) values[at] = -values[at]!;
      return;
    }
    for (let at = 0; at < values.length; at += 2) {
      const low = values[at]!;
      values[at] = -low;
      values[at + 1] = ~values[at + 1]! + (low === 0 ? 1 : 0);
    }
  }

  /** Return the explicit share of values that a stream hides: values − stream. */
  hide(key: Bytes, values: Elements): Elements {
    const share = values.slice();
    this.subtract(share, new Aes(key).words(values.length));
    return share;
  }
}

/** Round to the nearest integer, and ties to even. */
export function roundToEven(value: number): number {
  const below = Math.floor(value);
  const rest = value - below;
  if (rest !== 0.5) return rest < 0.5 ? below : below + 1;
  return below % 2 === 0 ? below : below + 1;
}

function signed(elements: Elements, at: number): bigint {
  return (BigInt(elements[2 * at + 1]! | 0) << 32n) + BigInt(elements[2 * at]!);
}

/** The ring of secure sums, whatever the task's ring is: counts and measures need range rather than short messages. */
export const SUM_RING = new Ring(64, 16);
export const SUM_BOUND = 2 ** 40;
export const LARGEST_SUM_VALUE = SUM_BOUND / 2 ** 16;
