// The computations of a server, as far as the tests need them: reading messages, answering keys, adding updates.

import { Aes } from "../src/core/aes.js";
import { bytesOf, concat, same, sha256, wordsOf, type Bytes } from "../src/core/bytes.js";
import { decryptBox } from "../src/core/hpke.js";
import { Label } from "../src/core/labels.js";
import { uploadMac } from "../src/core/marks.js";
import {
  ENVELOPE_BYTES, KINDS, SEED_BYTES, envelope, openEnvelope, packedBytes, publicKeysBytes, publicUpdateBytes, sizesOf,
  sumShareBytes, type MessageKind,
} from "../src/core/messages.js";
import { convert, evaluate, expandRoots, leafHash, leafKeys, type Blocks, type CorrectionWords } from "../src/core/paths.js";
import { Permutation } from "../src/core/permutation.js";
import { KEY_ID_BYTES, boxBytes, boxInfo, stepOf } from "../src/core/relay.js";
import { SUM_RING, type Elements, type Ring } from "../src/core/ring.js";
import { rowTags } from "../src/core/rows.js";
import type { RoundSpec } from "../src/core/spec.js";
import { AlteredError, BoxError, EncodingError, MacError, OtherRoundError } from "../src/errors.js";
import { FIELDS } from "../src/norm/field.js";

/** The data that a party holds for a session. */
export interface Held {
  readonly party: number;
  readonly label: Label;
  readonly roots: Blocks;
  readonly words: CorrectionWords;
}

export function decodeKeys(round: RoundSpec, sessionId: Bytes, party: number, data: Bytes): Held {
  const { depth, slots } = round.task.geometry;
  const expected = envelope(round, sessionId, KINDS.KEYS, party);
  const body = openEnvelope(data, expected, SEED_BYTES + publicKeysBytes(round.task));
  const packed = body.subarray(SEED_BYTES, SEED_BYTES + packedBytes(depth, slots));
  const count = depth * slots;
  const bits = packed.subarray(16 * count);
  const last = bits.at(-1);
  if (last !== undefined && last >> (((count - 1) % 8) + 1)) throw new EncodingError("the bits after the last control bit must be zero");
  const right = Uint8Array.from({ length: count }, (_, at) => (bits[at >> 3]! >> (at & 7)) & 1);
  const label = round.label(sessionId);
  const roots = expandRoots(label, body.slice(0, SEED_BYTES), slots);
  return { party, label, roots, words: { left: wordsOf(packed.subarray(0, 16 * count)), right } };
}

/** Return the nodes of all leaves of one slot. */
export function nodesOf(held: Held, slot: number, depth: number, leaves: number): Blocks {
  const slots = held.roots.length / 4;
  return evaluate(held.label, held.party, held.roots.subarray(4 * slot, 4 * slot + 4), held.words, { slot, slots, depth, leaves });
}

/** FSS.ConvertEval of nodes: (−1)^b · (Convert(s) + t · CW), node by node. */
export function convertEval(held: Held, nodes: Blocks, word: Elements, width: number, ring: Ring): Elements {
  const share = convert(new Aes(held.label.key("convert/update")), nodes, width, ring);
  const length = width * ring.words;
  for (let node = 0; node < nodes.length / 4; node++) {
    const own = share.subarray(node * length, (node + 1) * length);
    if (nodes[4 * node]! & 1) ring.add(own, word);
    if (held.party) ring.negate(own);
  }
  return share;
}

/** Return the item at each position of each bin of each table, −1 after the end of short bins. */
export function orderOf(round: RoundSpec): Int32Array[] {
  const { items, tables, bins, leaves, isDirect } = round.task.geometry;
  if (isDirect) return [Int32Array.from({ length: items }, (_, item) => item)];
  const all = Int32Array.from({ length: items }, (_, item) => item);
  const label = new Label(round.task.id, round.number);
  return Array.from({ length: tables }, (_, table) => {
    const found = Array.from({ length: bins }, () => new Int32Array(leaves).fill(-1));
    new Permutation(items, label.key("layout", Uint8Array.of(table)))
      .forward(all)
      .forEach((dealt, item) => (found[dealt % bins]![Math.floor(dealt / bins)] = item));
    return found;
  }).flat();
}

/** Return rows with their tags, (items, row words + 1) words. */
export function tagTable(round: RoundSpec, table: Uint32Array): Uint32Array {
  const { items, rowWords: width } = round.task;
  const key = new Aes(round.modelLabel.key("row-tag"));
  const tags = rowTags(key, table, width, Int32Array.from({ length: items }, (_, item) => item));
  const tagged = new Uint32Array(items * (width + 1));
  for (let item = 0; item < items; item++) {
    tagged.set(table.subarray(item * width, (item + 1) * width), item * (width + 1));
    tagged[item * (width + 1) + width] = tags[item]!;
  }
  return tagged;
}

/** Return a party's ANSWER message. */
export function answer(round: RoundSpec, sessionId: Bytes, held: Held, order: readonly Int32Array[], tagged: Uint32Array): Bytes {
  const { slots, slotsPerBin, depth, leaves } = round.task.geometry;
  const width = round.task.rowWords + 1;
  const words = new Uint32Array(slots * width);
  for (let slot = 0; slot < slots; slot++) {
    const nodes = nodesOf(held, slot, depth, leaves);
    order[Math.floor(slot / slotsPerBin)]!.forEach((item, leaf) => {
      if (item < 0 || !(nodes[4 * leaf]! & 1)) return;
      for (let at = 0; at < width; at++) words[slot * width + at] = words[slot * width + at]! ^ tagged[item * width + at]!;
    });
  }
  return concat(envelope(round, sessionId, KINDS.ANSWER, held.party), bytesOf(words));
}

/** The content of an UPDATE message. */
export interface Update {
  readonly words: Elements;
  readonly dense: Elements | undefined;
}

export function decodeUpdate(round: RoundSpec, sessionId: Bytes, party: number, data: Bytes): Update {
  const { task } = round;
  const body = openEnvelope(data, envelope(round, sessionId, KINDS.UPDATE, party), sizesOf(task).update[party]! - ENVELOPE_BYTES);
  const words = task.ring.unpack(body.subarray(0, task.geometry.slots * task.width * task.ring.elementBytes));
  if (party === 1) return { words, dense: undefined };
  const start = publicUpdateBytes(task);
  const end = start + task.denseSize * task.ring.elementBytes;
  const shape = task.normShape;
  if (shape !== undefined) FIELDS[task.ring.bits]!.decode(body.subarray(end), shape.shareBytes / shape.field.size);
  return { words, dense: task.ring.unpack(body.subarray(start, end)) };
}

/** Add one session's update to a party's sums, rows and dense part, in place. */
export function accumulate(round: RoundSpec, held: Held, update: Update, seed1: Bytes, order: readonly Int32Array[], rows: Elements, dense: Elements): void {
  const { ring, width, geometry } = round.task;
  const { slots, slotsPerBin, depth, leaves } = geometry;
  const length = width * ring.words;
  for (let slot = 0; slot < slots; slot++) {
    const word = update.words.subarray(slot * length, (slot + 1) * length);
    const share = convertEval(held, nodesOf(held, slot, depth, leaves), word, width, ring);
    order[Math.floor(slot / slotsPerBin)]!.forEach((item, leaf) => {
      if (item >= 0) ring.add(rows.subarray(item * length, (item + 1) * length), share.subarray(leaf * length, (leaf + 1) * length));
    });
  }
  ring.add(dense, update.dense ?? new Aes(held.label.key("stream/dense", seed1)).words(dense.length));
}

export function decodeSumShare(round: RoundSpec, sessionId: Bytes, party: number, data: Bytes): Bytes {
  const body = openEnvelope(data, envelope(round, sessionId, KINDS.SUM_SHARE, party), sumShareBytes(round, party) - ENVELOPE_BYTES);
  return body.slice();
}

/** Return a party's share of a secure sum: explicit, or the stream of its seed. */
export function sumShareOf(round: RoundSpec, sessionId: Bytes, party: number, body: Bytes): Elements {
  if (party === 0) return wordsOf(body);
  return new Aes(round.label(sessionId).key("stream/sum", body)).words(round.sumSize * SUM_RING.words);
}

export function checkMac(label: Label, hold: Bytes, upload: Bytes, shown: Bytes): void {
  if (!same(uploadMac(label, hold, upload), shown)) throw new MacError("this upload does not come from the device that made the keys");
}

/** A relayed message as parsed by server 0. */
export interface Split {
  readonly own: Bytes;
  readonly shared: Bytes;
  readonly box: Bytes;
}

export function splitRelayed(round: RoundSpec, sessionId: Bytes, kind: MessageKind, data: Bytes): Split {
  const step = stepOf(round, kind);
  const { task } = round;
  const sizes: Record<number, number> = { 1: sizesOf(task).keys, 3: sizesOf(task).update[0], 4: sumShareBytes(round, 0) };
  const shares: Record<number, number> = { 1: publicKeysBytes(task), 3: publicUpdateBytes(task), 4: 0 };
  const ownBytes = sizes[step]! - ENVELOPE_BYTES;
  const body = openEnvelope(data, envelope(round, sessionId, kind, 0), ownBytes + boxBytes(step));
  const start = step === KINDS.KEYS ? SEED_BYTES : 0;
  return {
    own: concat(envelope(round, sessionId, step, 0), body.subarray(0, ownBytes)),
    shared: body.slice(start, start + shares[step]!),
    box: body.slice(ownBytes),
  };
}

export function openContent(round: RoundSpec, sessionId: Bytes, step: MessageKind, privateKey: Bytes, box: Bytes): Bytes {
  let content: Bytes;
  try {
    content = decryptBox(privateKey, boxInfo(round.label(sessionId), step), box.subarray(KEY_ID_BYTES));
  } catch {
    throw new BoxError("the box does not open");
  }
  if (content.length !== boxBytes(step) - KEY_ID_BYTES - 48) throw new BoxError("the content of the box has the wrong length");
  return content;
}

/** Return the direct message to party 1 and its MAC, or raise if the relay forwarded anything else. */
export function rebuild(round: RoundSpec, sessionId: Bytes, step: MessageKind, shared: Bytes, content: Bytes): [Bytes, Bytes] {
  if (!same(content.subarray(32, 64), round.digest)) throw new OtherRoundError("made for another round");
  if (!same(content.subarray(0, 32), sha256(shared))) throw new AlteredError("the relay passed on other bytes");
  const end = 64 + (step === KINDS.UPDATE ? 0 : SEED_BYTES);
  return [concat(envelope(round, sessionId, step, 1), content.subarray(64, end), shared), content.slice(end)];
}

/** Return the fingerprint of all leaves: protocol, section 8.6. */
export function fingerprint(held: Held, depth: number, leaves: number, corrections: Bytes, keys: readonly Bytes[]): Bytes {
  const corrected = wordsOf(corrections);
  const ciphers = keys.map((key) => new Aes(key));
  const leafKey = new Aes(held.label.key("check/leaf"));
  const found = new Uint32Array(4);
  for (let leaf = 0; leaf < leaves; leaf++) {
    const ownKeys = leafKeys(leafKey, leaf);
    const leafMask = ciphers[3]!.stream(1, leaf);
    for (let slot = 0; slot < held.roots.length / 4; slot++) {
      const node = nodesOf(held, slot, depth, leaves).subarray(4 * leaf, 4 * leaf + 4);
      const hashes = leafHash(ownKeys, node);
      const slotMask = ciphers[3]!.encrypt(Uint32Array.of(slot, 0, 1, 0));
      for (let one = 0; one < 3; one++) {
        const block = Uint32Array.from({ length: 4 }, (_, at) => {
          const correction = node[0]! & 1 ? corrected[12 * slot + 4 * one + at]! : 0;
          return hashes[4 * one + at]! ^ correction ^ leafMask[at]! ^ slotMask[at]!;
        });
        ciphers[one]!.encrypt(block).forEach((word, at) => (found[at] = found[at]! ^ word));
      }
    }
  }
  return bytesOf(found);
}

