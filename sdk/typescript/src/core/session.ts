// A device's part in one round, without I/O: it encodes and decodes messages, and a route sends them.

import { LayoutError, SessionError, SpecError } from "../errors.js";
import { prove, type Proof } from "../norm/proof.js";
import { Aes } from "./aes.js";
import { bytesOf, sha256, type Bytes } from "./bytes.js";
import type { Label } from "./labels.js";
import { PADDING, type Placement } from "./layout.js";
import { holdOf, mask, receiptOf, uploadMac } from "./marks.js";
import {
  SEED_BYTES, decodeAnswer, encodeKeys, encodeSumShare, encodeUpdate, publicKeysDigest, type Messages,
} from "./messages.js";
import {
  PathSecret, convert, convertGen, evaluate, expandRoots, leafCorrections, pathGen, type Blocks, type CorrectionWords,
} from "./paths.js";
import { seededBytes, type RandomBytes } from "./random.js";
import { decodeRelayedAnswer } from "./relay.js";
import { SUM_BOUND, SUM_RING, type Elements } from "./ring.js";
import { recover, type ReadRows } from "./rows.js";
import type { RoundSpec } from "./spec.js";

export const SESSION_SEED_BYTES = 32;
const SESSION_BYTES = 16;

/** Return the id that a session with this seed draws: its first bytes. */
export function sessionIdOf(seed: Bytes): Bytes {
  return seededBytes(seed)(SESSION_BYTES);
}

/** The marks sent and stored with an upload; the holds that they are derived from are not stored. */
export interface Marks {
  readonly macs: Messages; // prove to each server that the upload is from the device that made the keys
  readonly receipt: Bytes; // proves to the device that server 1 holds a relayed upload
}

export class DeviceSession {
  readonly id: Bytes;
  readonly keys: Messages;
  readonly holds: Messages;
  readonly label: Label;
  readonly #placement: Placement;
  readonly #seeds: Messages;
  readonly #roots: readonly [Blocks, Blocks];
  readonly #words: CorrectionWords;
  readonly #secret: PathSecret;
  readonly #randomBytes: RandomBytes;
  #update: Messages | undefined;

  constructor(
    readonly round: RoundSpec,
    items: ArrayLike<number>,
    randomBytes: RandomBytes,
  ) {
    const { geometry } = round.task;
    this.#randomBytes = randomBytes;
    this.id = randomBytes(SESSION_BYTES);
    this.label = round.label(this.id);
    this.#placement = round.layout.place(items, randomBytes);
    this.#seeds = [randomBytes(SEED_BYTES), randomBytes(SEED_BYTES)];
    this.#roots = [
      expandRoots(this.label, this.#seeds[0], geometry.slots),
      expandRoots(this.label, this.#seeds[1], geometry.slots),
    ];
    const { words, ends } = pathGen(this.label, this.#roots, this.#placement.leaves, geometry.depth);
    const corrections = leafCorrections(this.label, this.#placement.leaves, ends);
    this.#words = words;
    this.#secret = new PathSecret(...ends);
    this.keys = [
      encodeKeys(round, this.id, 0, this.#seeds[0], words, corrections),
      encodeKeys(round, this.id, 1, this.#seeds[1], words, corrections),
    ];
    this.holds = [holdOf(this.keys[0]), holdOf(this.keys[1])];
  }

  /** Return how many items could not be placed in this round. */
  get truncated(): number {
    return this.#placement.truncated;
  }

  /** Return the marks of the upload that was written. */
  get marks(): Marks {
    if (this.#update === undefined) throw new SessionError("there is no upload yet; write first");
    const [first, second] = this.#update;
    return {
      macs: [uploadMac(this.label, this.holds[0], first), uploadMac(this.label, this.holds[1], second)],
      receipt: receiptOf(this.label, this.holds[1], sha256(second)),
    };
  }

  /** Return the items that take part and their rows, from both servers' answers; raise if a tag is wrong. */
  read(answers: Messages): ReadRows {
    const words = decodeAnswer(this.round, this.id, 0, answers[0]);
    decodeAnswer(this.round, this.id, 1, answers[1]).forEach((word, at) => (words[at] = words[at]! ^ word));
    return recover(this.round, this.#placement, words);
  }

  /** Return the same from the single answer through server 0. */
  readRelayed(answer: Bytes): ReadRows {
    const { words } = decodeRelayedAnswer(this.round, this.id, answer);
    return recover(this.round, this.#placement, mask(this.label, this.holds[1], words));
  }

  /** Return the messages that add row i of `updates` to the row of `items[i]`, and `dense` to the dense part. */
  write(items: ArrayLike<number>, updates: ArrayLike<number>, dense: ArrayLike<number>): Messages {
    const { task } = this.round;
    if (updates.length !== items.length * task.width || dense.length !== task.denseSize) {
      throw new SpecError("updates must be (items, row width) and the dense update as long as the task says");
    }
    // Everything that can fail comes before the path is spent.
    let payload = this.#arrange(items, task.ring.encode(updates, task.fields.bound));
    let encoded = task.ring.encode(dense, task.fields.bound);
    const ends = this.#secret.spend();
    let [words, proof] = this.#correct(ends, payload, encoded);
    if (task.normShape !== undefined && proof === undefined) {
      // Too long: the servers would reject it. No words have been sent, so words of zeros can be sent instead.
      payload = new Uint32Array(payload.length);
      encoded = new Uint32Array(encoded.length);
      [words, proof] = this.#correct(ends, payload, encoded);
    }
    const share = task.ring.hide(this.label.key("stream/dense", this.#seeds[1]), encoded);
    return (this.#update = [
      encodeUpdate(this.round, this.id, 0, words, share, proof),
      encodeUpdate(this.round, this.id, 1, words, share, proof),
    ]);
  }

  /** Return the messages that add `values` to the secure sum of a survey or an evaluation. */
  writeSums(values: ArrayLike<number>): Messages {
    if (!this.round.sumSize || values.length !== this.round.sumSize) {
      throw new SpecError(`a round of kind ${this.round.kind} adds up ${this.round.sumSize} numbers`);
    }
    const encoded = SUM_RING.encode(values, SUM_BOUND);
    this.#secret.spend(); // one upload per session, whatever its kind
    const seed = this.#randomBytes(SEED_BYTES);
    const share = SUM_RING.hide(this.label.key("stream/sum", seed), encoded);
    return (this.#update = [
      encodeSumShare(this.round, this.id, 0, bytesOf(share)),
      encodeSumShare(this.round, this.id, 1, seed),
    ]);
  }

  /** Return the messages of a device whose training failed: zeros, because a missing upload would reveal that. */
  writeNothing(): Messages {
    if (this.round.sumSize) return this.writeSums(new Float64Array(this.round.sumSize));
    return this.write([], [], new Float64Array(this.round.task.denseSize));
  }

  /** Return the elements by slot, zeros for padding: PadOrTruncEmb of the paper. */
  #arrange(items: ArrayLike<number>, elements: Elements): Elements {
    const { ring, width, geometry } = this.round.task;
    const slotOf = new Map<number, number>();
    this.#placement.items.forEach((item, slot) => item !== PADDING && slotOf.set(item, slot));
    const payload = ring.zeros(geometry.slots * width);
    const length = width * ring.words;
    let lost = 0;
    for (let at = 0; at < items.length; at++) {
      const slot = slotOf.get(items[at]!);
      if (slot === undefined) lost++;
      else payload.set(elements.subarray(at * length, (at + 1) * length), slot * length);
    }
    if (lost > this.#placement.truncated) throw new LayoutError("values were given for items this session was not made for");
    return payload;
  }

  #correct(ends: readonly [Blocks, Blocks], payload: Elements, dense: Elements): [Elements, Proof | undefined] {
    const { task } = this.round;
    const words = convertGen(this.label, ends, payload, task.width, task.ring);
    if (task.normShape === undefined) return [words, undefined];
    const keysDigest = publicKeysDigest(this.keys[1]);
    const slotSums = this.#slotSums(words);
    return [words, prove(task.normShape, { label: this.label, keysDigest, words, seeds: this.#seeds, payload, dense, slotSums })];
  }

  /** Return server 1's sum over all leaves of each slot, including those of short bins. */
  #slotSums(words: Elements): Elements {
    const { ring, width, geometry } = this.round.task;
    const { slots, depth, leaves } = geometry;
    const length = width * ring.words;
    const sums = ring.zeros(slots * width);
    const children = [new Aes(this.label.key("path/left")), new Aes(this.label.key("path/right"))] as const;
    const converting = new Aes(this.label.key("convert/update"));
    for (let slot = 0; slot < slots; slot++) {
      const root = this.#roots[1].subarray(4 * slot, 4 * slot + 4);
      const nodes = evaluate(this.label, 1, root, this.#words, { slot, slots, depth, leaves }, children);
      const pads = convert(converting, nodes, width, ring);
      const sum = sums.subarray(slot * length, (slot + 1) * length);
      const word = words.subarray(slot * length, (slot + 1) * length);
      for (let leaf = 0; leaf < leaves; leaf++) {
        ring.add(sum, pads.subarray(leaf * length, (leaf + 1) * length));
        if (nodes[4 * leaf]! & 1) ring.add(sum, word);
      }
      ring.negate(sum);
    }
    return sums;
  }
}
