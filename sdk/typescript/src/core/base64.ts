// Bytes as text, in base64: not every JavaScript engine on phones has it built in.

import { EncodingError } from "../errors.js";
import type { Bytes } from "./bytes.js";

const DIGITS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/** Return base64 with padding. */
export function encodeBase64(data: Bytes): string {
  let written = "";
  for (let at = 0; at < data.length; at += 3) {
    const group = (data[at]! << 16) | ((data[at + 1] ?? 0) << 8) | (data[at + 2] ?? 0);
    const left = data.length - at;
    written += DIGITS[group >>> 18]! + DIGITS[(group >>> 12) & 63]!;
    written += (left > 1 ? DIGITS[(group >>> 6) & 63]! : "=") + (left > 2 ? DIGITS[group & 63]! : "=");
  }
  return written;
}

/** Decode base64, in the standard or the URL alphabet, with or without padding. */
export function decodeBase64(written: string): Bytes {
  const digits = written.replace(/-/g, "+").replace(/_/g, "/").replace(/=+$/, "");
  const data = new Uint8Array(Math.floor((digits.length * 3) / 4));
  let [bits, count, at] = [0, 0, 0];
  for (const digit of digits) {
    const value = DIGITS.indexOf(digit);
    if (value < 0) throw new EncodingError("not base64");
    bits = ((bits << 6) | value) & 0xffff;
    count += 6;
    if (count >= 8) data[at++] = (bits >>> (count -= 8)) & 0xff;
  }
  return data;
}
