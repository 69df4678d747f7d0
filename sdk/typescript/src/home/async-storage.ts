// A home in React Native's async storage, or in anything else with its three methods.

import { DamagedError } from "../errors.js";
import type { Bytes } from "../core/bytes.js";
import { takeName, type Storage } from "./storage.js";

/** What `@react-native-async-storage/async-storage` offers. */
export interface KeyValueStore {
  getItem(key: string): Promise<string | null>;
  setItem(key: string, value: string): Promise<void>;
  removeItem(key: string): Promise<void>;
}

export class AsyncStorage implements Storage {
  #release: (() => void) | undefined;

  /**
   * `name` is one for each device and task. `installation` is a text that a restored backup does not bring to another
   * phone, such as the time of the app's installation: with it, sessions are not continued from a backup.
   */
  constructor(
    readonly store: KeyValueStore,
    readonly name: string,
    readonly installation: string = "",
  ) {}

  async open(): Promise<void> {
    this.#release = takeName(this.name);
  }

  async close(): Promise<void> {
    this.#release?.();
  }

  async read(name: string): Promise<Bytes | undefined> {
    const found = await this.store.getItem(this.#key(name));
    return found === null ? undefined : decodeBase64(found);
  }

  async write(name: string, data: Bytes): Promise<void> {
    await this.store.setItem(this.#key(name), encodeBase64(data));
  }

  async remove(name: string): Promise<void> {
    await this.store.removeItem(this.#key(name));
  }

  async place(): Promise<string> {
    return this.installation;
  }

  #key(name: string): string {
    return `secemb/${this.name}/${name}`;
  }
}

const DIGITS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/** Return base64, which not every JavaScript engine of a phone has built in. */
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

/** Read base64, in the usual digits or in those for addresses, with or without padding. */
export function decodeBase64(written: string): Bytes {
  const digits = written.replace(/-/g, "+").replace(/_/g, "/").replace(/=+$/, "");
  const data = new Uint8Array(Math.floor((digits.length * 3) / 4));
  let [bits, count, at] = [0, 0, 0];
  for (const digit of digits) {
    const value = DIGITS.indexOf(digit);
    if (value < 0) throw new DamagedError("a record of the home is corrupted; call forget() and start again");
    bits = ((bits << 6) | value) & 0xffff;
    count += 6;
    if (count >= 8) data[at++] = (bits >>> (count -= 8)) & 0xff;
  }
  return data;
}
