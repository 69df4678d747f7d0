// A home in a browser's IndexedDB, which only one tab can have open at a time.

import { HomeError, HomeInUseError } from "../errors.js";
import type { Bytes } from "../core/bytes.js";
import type { Storage } from "./storage.js";

const STORE = "records";

export class IndexedDbStorage implements Storage {
  #database: IDBDatabase | undefined;
  #release: (() => void) | undefined;

  /** `name` is the name of the database: one for each device and task. */
  constructor(readonly name: string) {}

  async open(): Promise<void> {
    this.#release = await takeLock(`secemb ${this.name}`);
    try {
      const opening = indexedDB.open(this.name, 1);
      opening.onupgradeneeded = () => opening.result.createObjectStore(STORE);
      this.#database = await settled(opening);
    } catch (error) {
      this.#release();
      throw error;
    }
  }

  async close(): Promise<void> {
    this.#database?.close();
    this.#database = undefined;
    this.#release?.();
  }

  async read(name: string): Promise<Bytes | undefined> {
    return settled(this.#store("readonly").get(name)) as Promise<Bytes | undefined>;
  }

  async write(name: string, data: Bytes): Promise<void> {
    await this.#change((store) => store.put(data.slice(), name));
  }

  async remove(name: string): Promise<void> {
    await this.#change((store) => store.delete(name));
  }

  /** A page cannot tell a copied or restored profile from its own. */
  async place(): Promise<string> {
    return "";
  }

  #store(mode: IDBTransactionMode): IDBObjectStore {
    if (this.#database === undefined) throw new HomeError("this device is closed; open it again");
    // Strict: the event fires when the data are on disk, not when the system has accepted them.
    return this.#database.transaction(STORE, mode, { durability: "strict" }).objectStore(STORE);
  }

  #change(change: (store: IDBObjectStore) => IDBRequest): Promise<void> {
    const store = this.#store("readwrite");
    change(store);
    return new Promise((resolve, reject) => {
      store.transaction.oncomplete = () => resolve();
      store.transaction.onabort = () => reject(new HomeError(`the home cannot be written: ${store.transaction.error?.message ?? "aborted"}; make room`));
    });
  }
}

/** Acquire a lock that the browser releases with the page; return a function that releases it earlier. */
function takeLock(name: string): Promise<() => void> {
  if (globalThis.navigator?.locks === undefined) {
    throw new HomeError("this page cannot keep other tabs away: serve it over HTTPS, or from localhost");
  }
  return new Promise((resolve, reject) => {
    const held = navigator.locks.request(name, { ifAvailable: true }, (lock) => {
      if (lock === null) throw new HomeInUseError("another tab has this home open; close it first");
      return new Promise<void>((release) => resolve(release));
    });
    held.catch(reject);
  });
}

function settled<Result>(request: IDBRequest<Result>): Promise<Result> {
  return new Promise((resolve, reject) => {
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(new HomeError(`the home cannot be used: ${request.error?.message ?? "unknown"}`));
  });
}
