// A home in a directory, for Node: files that are replaced atomically, and that only their owner can read.

import { closeSync, openSync, readFileSync, unlinkSync, writeSync } from "node:fs";
import { mkdir, open, readFile, rename, rm, stat, utimes } from "node:fs/promises";
import { join } from "node:path";

import { HomeError, HomeInUseError } from "../errors.js";
import type { Bytes } from "../core/bytes.js";
import { takeName, type Storage } from "./storage.js";

const LOCK = "lock";
const PLACE = "place";
const CLOCK_ERROR = 1000; // milliseconds

export class FileStorage implements Storage {
  #release: (() => void) | undefined;

  /** `folder` is a directory used only by this device and task; it is created if missing. */
  constructor(readonly folder: string) {}

  async open(): Promise<void> {
    await mkdir(this.folder, { recursive: true, mode: 0o700 });
    const release = takeName(this.folder);
    try {
      takeLock(join(this.folder, LOCK));
      await (await open(join(this.folder, PLACE), "a", 0o600)).close();
    } catch (error) {
      release();
      throw error;
    }
    this.#release = release;
  }

  async close(): Promise<void> {
    if (this.#release === undefined) return;
    unlinkSync(join(this.folder, LOCK));
    this.#release();
    this.#release = undefined;
  }

  async read(name: string): Promise<Bytes | undefined> {
    this.#check();
    try {
      return new Uint8Array(await readFile(join(this.folder, name)));
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code === "ENOENT") return undefined;
      throw unusable(error);
    }
  }

  async write(name: string, data: Bytes): Promise<void> {
    this.#check();
    const unfinished = join(this.folder, `${name}.new`);
    try {
      const file = await open(unfinished, "w", 0o600);
      try {
        await file.writeFile(data);
        await file.sync();
      } finally {
        await file.close();
      }
      await rename(unfinished, join(this.folder, name));
      await this.#syncFolder();
    } catch (error) {
      throw unusable(error);
    }
  }

  async remove(name: string): Promise<void> {
    this.#check();
    await rm(join(this.folder, name), { force: true });
    await this.#syncFolder();
  }

  /** Return the inode number and the change time, which no program can reset. */
  async place(renew: boolean): Promise<string> {
    const path = join(this.folder, PLACE);
    if (renew) await utimes(path, new Date(), new Date());
    const found = await stat(path, { bigint: true });
    return `${found.ino} ${found.ctimeNs}`;
  }

  async #syncFolder(): Promise<void> {
    const folder = await open(this.folder, "r");
    try {
      await folder.sync();
    } finally {
      await folder.close();
    }
  }

  #check(): void {
    if (this.#release === undefined) throw new HomeError("this device is closed; open it again");
  }
}

/**
 * Node cannot lock files: the lock is a file with the number of the process and when that began, and void once it has
 * ended. A container gives its process the same number each time, so that its own number alone says nothing.
 */
function takeLock(path: string): void {
  for (let attempt = 0; attempt < 2; attempt++) {
    try {
      const file = openSync(path, "wx", 0o600);
      writeSync(file, `${process.pid} ${startOfProcess()}`);
      closeSync(file);
      return;
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== "EEXIST") throw unusable(error);
      const [owner, began] = readFileSync(path, "utf8").split(" ").map(Number) as [number, number];
      const held = owner === process.pid ? Math.abs(began - startOfProcess()) <= CLOCK_ERROR : isRunning(owner);
      if (held) throw new HomeInUseError("another process or thread has this home open; end it first");
      unlinkSync(path);
    }
  }
  throw new HomeInUseError("another process has just opened this home");
}

/** Return when this process began, in milliseconds: the same in all of its threads. */
function startOfProcess(): number {
  return Math.round(Date.now() - 1000 * process.uptime());
}

function isRunning(number: number): boolean {
  if (!Number.isInteger(number) || number <= 0) return false;
  try {
    process.kill(number, 0);
    return true;
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === "EPERM";
  }
}

function unusable(error: unknown): HomeError {
  return new HomeError(`the home cannot be read or written: ${(error as Error).message}; give a directory that you can write to`);
}
