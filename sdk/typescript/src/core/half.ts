// Rows as they are read: 32-bit words of numbers in single or in half precision.

import { bytesOf } from "./bytes.js";

export const SINGLE = 32;
export const HALF = 16;

/** Return how many words a row has. */
export function wordsOfRow(width: number, bits: number): number {
  return Math.ceil((width * bits) / 32);
}

/** Return the number that a binary16 stands for. */
export function halfToNumber(half: number): number {
  const sign = half & 0x8000 ? -1 : 1;
  const exponent = (half >> 10) & 31;
  const fraction = half & 1023;
  if (exponent === 0) return sign * fraction * 2 ** -24;
  if (exponent === 31) return fraction ? NaN : sign * Infinity;
  return sign * (1024 + fraction) * 2 ** (exponent - 25);
}

/** Return the numbers of rows that begin at whole words. */
export function rowsOfWords(words: Uint32Array, width: number, bits: number): Float32Array {
  if (bits !== HALF) return new Float32Array(words.slice().buffer);
  const size = 4 * wordsOfRow(width, bits);
  return halvesToRows(bytesOf(words), width, size);
}

/** Return the numbers of rows of binary16, each of `size` bytes. */
export function halvesToRows(data: Uint8Array, width: number, size: number): Float32Array {
  const rows = new Float32Array((data.length / size) * width);
  for (let at = 0; at < rows.length; at++) {
    const start = Math.floor(at / width) * size + 2 * (at % width);
    rows[at] = halfToNumber(data[start]! | (data[start + 1]! << 8));
  }
  return rows;
}
