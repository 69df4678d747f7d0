// The binary messages of a session as a device encodes and decodes them: docs/reference/protocol.md, section 13.

import { BindingError, EncodingError, KindError, LengthError, SpecError, VersionError } from "../errors.js";
import type { Proof } from "../norm/proof.js";
import { ascii, bytesOf, concat, same, sha256, wordsOf, type Bytes } from "./bytes.js";
import { HASH_BYTES, type CorrectionWords } from "./paths.js";
import { SUM_RING, type Elements } from "./ring.js";
import type { RoundSpec, TaskSpec } from "./spec.js";

export const SEED_BYTES = 16;
export const ENVELOPE_BYTES = 24;
const MAGIC = ascii("secemb");
const VERSION = 2;
const RELAYED_EXTRA = 136; // key id and box after each relayed message of a training round
const MARKS = 32; // receipt and confirmation after a relayed answer

export const KINDS = {
  KEYS: 1, ANSWER: 2, UPDATE: 3, SUM_SHARE: 4, RELAYED_KEYS: 5, RELAYED_ANSWER: 6, RELAYED_UPLOAD: 7,
} as const;
export type MessageKind = (typeof KINDS)[keyof typeof KINDS];
export type Messages = readonly [Bytes, Bytes]; // to server 0, to server 1

/** Return the first 24 bytes of a message to or from a party. */
export function envelope(round: RoundSpec, sessionId: Bytes, kind: MessageKind, party: number): Bytes {
  const binding = round.label(sessionId).derive("binding", round.digest, Uint8Array.of(kind, party));
  return concat(MAGIC, Uint8Array.of(VERSION, kind), binding.subarray(0, 16));
}

/** Return the body of a message, or raise an error that describes what is wrong with it. */
export function openEnvelope(data: Bytes, expected: Bytes, bodyBytes: number): Bytes {
  if (data.length !== ENVELOPE_BYTES + bodyBytes) {
    throw new LengthError(`expected exactly ${ENVELOPE_BYTES + bodyBytes} bytes, got ${data.length}`);
  }
  if (!same(data.subarray(0, 6), MAGIC)) throw new EncodingError("not a SecEmb message");
  if (data[6] !== VERSION) throw new VersionError(`this side speaks protocol version ${VERSION}; update the older of the two`);
  if (data[7] !== expected[7]) throw new KindError("a message of another kind was expected");
  if (!same(data.subarray(8, ENVELOPE_BYTES), expected.subarray(8))) {
    throw new BindingError("made for another task, round, session, purpose or party");
  }
  return data.subarray(ENVELOPE_BYTES);
}

/** The exact length of every message of a task, envelopes included. */
export interface Sizes {
  readonly keys: number;
  readonly answer: number;
  readonly update: readonly [number, number];
  readonly upload: number;
  readonly download: number;
  readonly relayedUpload: number;
  readonly relayedDownload: number;
}

export function sizesOf(task: TaskSpec): Sizes {
  const { slots } = task.geometry;
  const keys = ENVELOPE_BYTES + SEED_BYTES + publicKeysBytes(task);
  const answer = ENVELOPE_BYTES + slots * (task.rowWords + 1) * 4;
  const shared = ENVELOPE_BYTES + publicUpdateBytes(task);
  const own = shared + task.denseSize * task.ring.elementBytes + (task.normShape?.shareBytes ?? 0);
  return {
    keys,
    answer,
    update: [own, shared],
    upload: 2 * keys + own + shared,
    download: 2 * answer,
    relayedUpload: keys + own + 2 * RELAYED_EXTRA,
    relayedDownload: answer + MARKS,
  };
}

export function packedBytes(depth: number, slots: number): number {
  return depth * slots * 16 + Math.ceil((depth * slots) / 8);
}

export function publicKeysBytes(task: TaskSpec): number {
  return packedBytes(task.geometry.depth, task.geometry.slots) + task.geometry.slots * HASH_BYTES;
}

export function publicUpdateBytes(task: TaskSpec): number {
  const words = task.geometry.slots * task.width * task.ring.elementBytes;
  return words + (task.normShape === undefined ? 0 : task.normShape.publicBytes);
}

/** Return the KEYS message for one party; `corrections` are those of the leaf hashes, 48 bytes a slot. */
export function encodeKeys(
  round: RoundSpec, sessionId: Bytes, party: number, seed: Bytes, words: CorrectionWords, corrections: Bytes,
): Bytes {
  if (seed.length !== SEED_BYTES) throw new SpecError("a master seed is 16 bytes");
  const bits = new Uint8Array(Math.ceil(words.right.length / 8));
  words.right.forEach((bit, at) => (bits[at >> 3] = bits[at >> 3]! | (bit << (at & 7))));
  return concat(envelope(round, sessionId, KINDS.KEYS, party), seed, bytesOf(words.left), bits, corrections);
}

/** Return the SHA-256 of the part of the keys that is the same for both parties. */
export function publicKeysDigest(message: Bytes): Bytes {
  return sha256(message.subarray(ENVELOPE_BYTES + SEED_BYTES));
}

/** Return the (slots, row words + 1) words of one party's answer. */
export function decodeAnswer(round: RoundSpec, sessionId: Bytes, party: number, data: Bytes): Uint32Array {
  const expected = envelope(round, sessionId, KINDS.ANSWER, party);
  return wordsOf(openEnvelope(data, expected, sizesOf(round.task).answer - ENVELOPE_BYTES));
}

/** Return the UPDATE message for one party; only party 0 gets the explicit dense share and a share of the proof. */
export function encodeUpdate(
  round: RoundSpec, sessionId: Bytes, party: number, words: Elements, denseShare: Elements, proof: Proof | undefined,
): Bytes {
  const parts = [envelope(round, sessionId, KINDS.UPDATE, party), round.task.ring.pack(words)];
  if (proof !== undefined) parts.push(proof.shared);
  if (party === 0) parts.push(round.task.ring.pack(denseShare));
  if (party === 0 && proof !== undefined) parts.push(proof.share);
  return concat(...parts);
}

/** Return the SUM_SHARE message: the round's numbers for party 0, the seed for party 1. */
export function encodeSumShare(round: RoundSpec, sessionId: Bytes, party: number, share: Bytes): Bytes {
  if (share.length !== sumShareBytes(round, party) - ENVELOPE_BYTES) {
    throw new SpecError("party 0 gets the explicit share of all numbers and party 1 the 16-byte seed");
  }
  return concat(envelope(round, sessionId, KINDS.SUM_SHARE, party), share);
}

export function sumShareBytes(round: RoundSpec, party: number): number {
  return ENVELOPE_BYTES + (party === 0 ? round.sumSize * SUM_RING.elementBytes : SEED_BYTES);
}
