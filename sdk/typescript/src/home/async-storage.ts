// A home in React Native's async storage, or in anything else with its three methods.

import { decodeBase64, encodeBase64 } from "../core/base64.js";
import type { Bytes } from "../core/bytes.js";
import { DamagedError } from "../errors.js";
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
   * `name` is unique for each device and task. `installation` is a text that a restored backup does not copy to another
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
    try {
      return found === null ? undefined : decodeBase64(found);
    } catch {
      throw new DamagedError(`the record '${name}' of the home is corrupted; call forget(), or use a new home`);
    }
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
