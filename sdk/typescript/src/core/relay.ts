// The relayed transport: server 1's relay key, and the messages of a device that talks to server 0 alone.

import { ed25519 } from "@noble/curves/ed25519.js";

import { LengthError, RelayKeyError } from "../errors.js";
import { ascii, concat, readU64, sha256, u64, unhex, wordsOf, type Bytes } from "./bytes.js";
import { BOX_OVERHEAD, encryptBox } from "./hpke.js";
import type { Label } from "./labels.js";
import { MARK_BYTES } from "./marks.js";
import { ENVELOPE_BYTES, KINDS, SEED_BYTES, envelope, openEnvelope, sizesOf, type MessageKind } from "./messages.js";
import { secureBytes } from "./random.js";
import type { RoundSpec, TaskSpec } from "./spec.js";

const KEY_DOMAIN = ascii("secemb/1 relay key");
const BOX_DOMAIN = ascii("secemb/1 relay box");
export const KEY_ID_BYTES = 8;
const ANNOUNCEMENT_BYTES = 112;
const SIGNED = 48;

/** The key that boxes are encrypted to, and its validity: seconds since 1970. */
export interface RelayKey {
  readonly publicKey: Bytes;
  readonly notBefore: number;
  readonly notAfter: number;
}

/** Return the key in an announcement, or raise unless the task's server 1 has signed it for this task. */
export function readRelayKey(task: TaskSpec, data: Bytes): RelayKey {
  if (data.length !== ANNOUNCEMENT_BYTES) {
    throw new LengthError(`the announcement of a relay key has exactly ${ANNOUNCEMENT_BYTES} bytes`);
  }
  const fields = data.subarray(0, SIGNED);
  if (!isSigned(task, fields, data.subarray(SIGNED))) {
    throw new RelayKeyError("the relay key is not signed by the server 1 that the task names");
  }
  return { publicKey: fields.slice(0, 32), notBefore: readU64(fields, 32), notAfter: readU64(fields, 40) };
}

export function keyIdOf(publicKey: Bytes): Bytes {
  return sha256(publicKey).slice(0, KEY_ID_BYTES);
}

/** Return the data that a box is bound to; `step` is the kind of the direct message to server 1. */
export function boxInfo(label: Label, step: MessageKind): Bytes {
  return concat(BOX_DOMAIN, Uint8Array.of(1), label.taskId, u64(label.number), label.sessionId, Uint8Array.of(step));
}

/** Return which direct message a relayed one replaces. */
export function stepOf(round: RoundSpec, kind: MessageKind): MessageKind {
  if (kind === KINDS.RELAYED_KEYS) return KINDS.KEYS;
  return round.kind === "train" ? KINDS.UPDATE : KINDS.SUM_SHARE;
}

/** Return the length of key id and box. */
export function boxBytes(step: MessageKind): number {
  const seed = step === KINDS.UPDATE ? 0 : SEED_BYTES;
  return KEY_ID_BYTES + BOX_OVERHEAD + 64 + seed + (step === KINDS.KEYS ? 0 : MARK_BYTES);
}

/** Return the content of the box besides the direct message to server 1. */
export function boxContent(round: RoundSpec, step: MessageKind, message: Bytes, mac: Bytes = new Uint8Array(0)): Bytes {
  const body = message.subarray(ENVELOPE_BYTES);
  const seed = body.subarray(0, step === KINDS.UPDATE ? 0 : SEED_BYTES);
  return concat(sha256(body.subarray(seed.length)), round.digest, seed, mac);
}

/** Return the relayed message of `own`, the direct message to server 0, and the content of a box for server 1. */
export function encodeRelayed(
  round: RoundSpec, sessionId: Bytes, kind: MessageKind, own: Bytes, content: Bytes, key: RelayKey, ephemeral?: Bytes,
): Bytes {
  const info = boxInfo(round.label(sessionId), stepOf(round, kind));
  // Always fresh, even if the session's bytes are drawn again after a restart: each box has its own key.
  const box = encryptBox(key.publicKey, info, content, ephemeral ?? secureBytes(32));
  return concat(envelope(round, sessionId, kind, 0), own.subarray(ENVELOPE_BYTES), keyIdOf(key.publicKey), box);
}

export interface RelayedAnswer {
  readonly words: Uint32Array; // (slots, row words + 1), masked
  readonly receipt: Bytes;
  readonly confirmed: Bytes; // the mark of the dense part
}

export function decodeRelayedAnswer(round: RoundSpec, sessionId: Bytes, data: Bytes): RelayedAnswer {
  const size = sizesOf(round.task).answer - ENVELOPE_BYTES;
  const body = openEnvelope(data, envelope(round, sessionId, KINDS.RELAYED_ANSWER, 0), size + 2 * MARK_BYTES);
  return {
    words: wordsOf(body.subarray(0, size)),
    receipt: body.slice(size, size + MARK_BYTES),
    confirmed: body.slice(size + MARK_BYTES),
  };
}

function isSigned(task: TaskSpec, fields: Bytes, signature: Bytes): boolean {
  try {
    // As in RFC 8032: anything that other implementations refuse must be refused here.
    return ed25519.verify(signature, concat(KEY_DOMAIN, task.id, fields), unhex(task.fields.relay_key), { zip215: false });
  } catch {
    return false;
  }
}
