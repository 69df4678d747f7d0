// Domain separation: one label for each task, round, session and purpose, so that what is derived for one is useless
// for another.

import { SpecError } from "../errors.js";
import { ascii, concat, sha256, u64, type Bytes } from "./bytes.js";

export const PROTOCOL = "secemb/2";
export const NO_SESSION: Bytes = new Uint8Array(16);

/** The purposes of derivations. The names are hashed; changing one makes a new protocol. */
export const PURPOSES = [
  "path/left", "path/right", "convert/update", "check/leaf", "check/fingerprint", "stream/roots", "stream/dense",
  "stream/sum", "binding", "layout", "row-tag", "upload/proof", "stream/mask", "relay/receipt", "relay/dense",
  "norm/commit", "norm/challenge", "norm/joint", "stream/norm", "norm/point",
] as const;
export type Purpose = (typeof PURPOSES)[number];

const EMPTY: Bytes = new Uint8Array(0);

/** The scope of one derivation: a session of a round or, without a session, a round or a model version. */
export class Label {
  readonly #place: Bytes;

  constructor(
    readonly taskId: Bytes,
    readonly number: number,
    readonly sessionId: Bytes = NO_SESSION,
  ) {
    if (taskId.length !== 32) throw new SpecError("a task's id is 32 bytes, the SHA-256 of its canonical form");
    if (sessionId.length !== 16) throw new SpecError("a session's id is 16 bytes");
    if (!Number.isSafeInteger(number) || number < 0) throw new SpecError("a round or version is a whole number below 2^53");
    this.#place = concat(ascii(PROTOCOL), taskId, u64(number), sessionId);
  }

  /** Return 32 bytes for a purpose. */
  derive(purpose: Purpose, ...context: readonly Bytes[]): Bytes {
    return sha256(concat(this.#place, Uint8Array.of(purpose.length), ascii(purpose), ...context));
  }

  /** Return the AES-128 key for a purpose. */
  key(purpose: Purpose, context: Bytes = EMPTY): Bytes {
    return this.derive(purpose, context).slice(0, 16);
  }
}
