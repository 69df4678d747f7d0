// Byte strings: joining them, comparing them, and encoding numbers in them, least significant byte first.

import { sha256 as hash } from "@noble/hashes/sha2.js";

import { SecEmbError } from "../errors.js";

export type Bytes = Uint8Array;

if (new Uint8Array(new Uint32Array([1]).buffer)[0] !== 1) {
  throw new SecEmbError("this processor stores numbers most significant byte first, which is not supported");
}

const encoder = new TextEncoder();
const decoder = new TextDecoder("utf-8", { fatal: true });

export function ascii(text: string): Bytes {
  return encoder.encode(text);
}

/** Decode UTF-8; raise on invalid bytes. */
export function text(data: Bytes): string {
  return decoder.decode(data);
}

export function concat(...parts: readonly Bytes[]): Bytes {
  const whole = new Uint8Array(parts.reduce((sum, part) => sum + part.length, 0));
  let at = 0;
  for (const part of parts) {
    whole.set(part, at);
    at += part.length;
  }
  return whole;
}

export function sha256(...parts: readonly Bytes[]): Bytes {
  if (parts.length === 1) return hash(parts[0]!);
  const hashed = hash.create();
  for (const part of parts) hashed.update(part);
  return hashed.digest();
}

/** Compare in a time that depends only on the lengths. */
export function same(left: Bytes, right: Bytes): boolean {
  if (left.length !== right.length) return false;
  let difference = 0;
  for (let at = 0; at < left.length; at++) difference |= left[at]! ^ right[at]!;
  return difference === 0;
}

const DIGITS = Array.from({ length: 256 }, (_, byte) => byte.toString(16).padStart(2, "0"));

export function hex(data: Bytes): string {
  let written = "";
  for (const byte of data) written += DIGITS[byte];
  return written;
}

export function isHex(text: unknown, bytes: number): text is string {
  return typeof text === "string" && text.length === 2 * bytes && /^[0-9a-f]*$/.test(text);
}

export function unhex(text: string): Bytes {
  if (!isHex(text, text.length >> 1)) throw new SecEmbError("not lower-case hexadecimal digits");
  return Uint8Array.from({ length: text.length >> 1 }, (_, at) => parseInt(text.slice(2 * at, 2 * at + 2), 16));
}

export function u64(number: number): Bytes {
  const written = new Uint8Array(8);
  const view = new DataView(written.buffer);
  view.setUint32(0, number % 2 ** 32, true);
  view.setUint32(4, Math.floor(number / 2 ** 32), true);
  return written;
}

export function readU64(data: Bytes, at: number): number {
  const view = new DataView(data.buffer, data.byteOffset, data.byteLength);
  return view.getUint32(at, true) + 2 ** 32 * view.getUint32(at + 4, true);
}

/** Return the encoding of numbers in messages. */
export function bytesOf(numbers: ArrayBufferView): Bytes {
  return new Uint8Array(numbers.buffer, numbers.byteOffset, numbers.byteLength);
}

/** Return a copy of 32-bit words that begin at any byte. */
export function wordsOf(data: Bytes): Uint32Array {
  const words = new Uint32Array(data.length >> 2);
  bytesOf(words).set(data.subarray(0, 4 * words.length));
  return words;
}
