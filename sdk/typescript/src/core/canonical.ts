// Specifications in canonical form: JSON with sorted members, whole numbers and plain ASCII only.

import { EncodingError, SpecError } from "../errors.js";
import { ascii, same, text, type Bytes } from "./bytes.js";

export type Value = number | string | Group;
export interface Group {
  readonly [name: string]: Value;
}

const PLAIN = /^[\x20\x21\x23-\x5b\x5d-\x7e]*$/; // printable, without quotes and backslashes
const DECIMAL = /^(0|[1-9][0-9]{0,8})(\.[0-9]{0,11}[1-9])?$/;

export function encodeCanonical(group: Group): Bytes {
  return ascii(write(group));
}

/** Read canonical bytes; anything but the canonical encoding is refused. */
export function decodeCanonical(data: Bytes): Group {
  try {
    const found: unknown = JSON.parse(text(data));
    if (isGroup(found) && same(encodeCanonical(found), data)) return found;
  } catch {
    // refused below
  }
  throw new EncodingError("a specification must be canonical JSON: sorted members, whole numbers, plain ASCII, no spaces");
}

export function isGroup(value: unknown): value is Group {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** An exact decimal number from text: digits / 10^places. */
export interface Decimal {
  readonly digits: bigint;
  readonly places: number;
}

export function exactDecimal(written: string): Decimal {
  if (!DECIMAL.test(written)) {
    throw new SpecError("a rate must be written like 0.025: digits and a point, no sign, exponent or trailing zero");
  }
  const [whole, rest = ""] = written.split(".");
  return { digits: BigInt(whole! + rest), places: rest.length };
}

export function decimal(written: string): number {
  exactDecimal(written);
  return Number(written);
}

export function signedDecimal(written: string): number {
  if (!written.startsWith("-")) return decimal(written);
  if (written === "-0") throw new SpecError("zero is written without a sign");
  return -decimal(written.slice(1));
}

function write(value: unknown): string {
  if (typeof value === "number") {
    if (!Number.isSafeInteger(value) || Object.is(value, -0)) throw new SpecError("a number in a specification must be whole and below 2^53");
    return String(value);
  }
  if (typeof value === "string") {
    if (!PLAIN.test(value)) throw new SpecError("text in a specification must be printable ASCII without quotes and backslashes");
    return `"${value}"`;
  }
  if (!isGroup(value)) throw new SpecError("a specification holds whole numbers, text and nested groups of them");
  const names = Object.keys(value).sort();
  return `{${names.map((name) => `${write(name)}:${write(value[name])}`).join(",")}}`;
}
