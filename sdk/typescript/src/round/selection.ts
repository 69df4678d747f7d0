// Selects the items that a device uses in a round.
//
//     train      all that it has rated, except held-out ones; if the task has no ratings: a sample of these, and as many
//                strangers as there is room for
//     survey     all that it has rated
//     evaluate   held-out items; strangers to rank them among; and items to solve for its private part

import { hmac } from "@noble/hashes/hmac.js";
import { sha256 } from "@noble/hashes/sha2.js";

import { u64, wordsOf, type Bytes } from "../core/bytes.js";
import { drawBelow, sample, type RandomBytes } from "../core/random.js";
import type { RoundSpec, TaskSpec } from "../core/spec.js";
import type { Ratings } from "../models/model.js";
import { Scale } from "../models/scale.js";

const BESIDE = 5; // items per chosen one, including it, from which a private part is solved

/** Items and their owner's ratings, standardised for models. Private. */
export interface Selection {
  readonly items: Int32Array;
  readonly values: Float32Array; // NaN for strangers to rank among
  readonly heldOut: Uint8Array; // 1 for those only measured, never learned from
  readonly leftOut: number; // items of this device outside the catalogue
}

/** Return the ratings of some items of a selection, in the given order. */
export function ratingsOf(selection: Selection, items: Int32Array): Ratings {
  const placeOf = places(selection);
  return { items, values: Float32Array.from(items, (item) => selection.values[placeOf.get(item)!]!) };
}

export function places(selection: Selection): Map<number, number> {
  return new Map([...selection.items].map((item, at) => [item, at]));
}

/** Return whether a rating is reserved for evaluation: a keyed hash of the item decides, so that this never changes. */
export type IsHeldOut = (item: number) => boolean;

export function holdOut(key: Bytes, fraction: number): IsHeldOut {
  return (item) => {
    const [low, high] = wordsOf(hmac(sha256, key, u64(item)).slice(0, 8)) as unknown as [number, number];
    return high * 2 ** 32 + low < fraction * 2 ** 64;
  };
}

export function select(round: RoundSpec, ratings: ReadonlyMap<number, number>, isHeldOut: IsHeldOut, randomBytes: RandomBytes): Selection {
  const { task } = round;
  const known = knownOf(task, ratings);
  const leftOut = ratings.size - known.size;
  if (round.kind === "evaluate") return selectToMeasure(task, known, leftOut, isHeldOut, randomBytes);
  if (round.kind !== "train") return selectionOf(known, leftOut);
  const toTrain = new Map([...known].filter(([item]) => !isHeldOut(item)));
  if (task.loss === "squared") return selectionOf(toTrain, leftOut);
  const own = amongStrangers(task, [...toTrain.keys()], new Set(known.keys()), task.capacity, randomBytes);
  return { ...own, heldOut: new Uint8Array(own.items.length), leftOut };
}

/** Return these ratings to solve for a private part; for rankings with strangers. */
export function toFit(task: TaskSpec, ratings: ReadonlyMap<number, number>, randomBytes: RandomBytes): Ratings {
  const own = knownOf(task, ratings);
  if (task.loss !== "squared") {
    return amongStrangers(task, [...own.keys()], new Set(ratings.keys()), BESIDE * own.size, randomBytes);
  }
  return { items: Int32Array.from(own.keys()), values: Float32Array.from(own.values()) };
}

/** Return up to `count` items that are not known, without listing the catalogue. */
export function drawStrangers(items: number, count: number, known: ReadonlySet<number>, randomBytes: RandomBytes): Int32Array {
  const drawn = drawBelow(new Float64Array(4 * count).fill(items), randomBytes);
  const found = new Set([...drawn].filter((item) => !known.has(item)));
  return Int32Array.from([...found].slice(0, count));
}

export function countStrangers(capacity: number): number {
  return Math.min(100, Math.floor(capacity / 3));
}

function amongStrangers(task: TaskSpec, chosen: number[], known: ReadonlySet<number>, count: number, randomBytes: RandomBytes): Ratings {
  const own = sample(chosen, Math.floor(count / 2), randomBytes);
  const others = own.length ? drawStrangers(task.items, count - own.length, known, randomBytes) : new Int32Array(0);
  return {
    items: Int32Array.from([...own, ...others]),
    values: Float32Array.from({ length: own.length + others.length }, (_, at) => (at < own.length ? 1 : 0)),
  };
}

/** Return the ratings of items in the catalogue, standardised for models and clipped to the scale. */
function knownOf(task: TaskSpec, ratings: ReadonlyMap<number, number>): Map<number, number> {
  const scale = new Scale(task);
  const known = [...ratings].filter(([item]) => item < task.items);
  return new Map(known.map(([item, rating]) => [item, scale.cut(scale.standardise(rating))]));
}

function selectToMeasure(task: TaskSpec, known: Map<number, number>, leftOut: number, isHeldOut: IsHeldOut, randomBytes: RandomBytes): Selection {
  const { capacity } = task;
  const count = countStrangers(capacity);
  const most = Math.max(1, Math.floor(capacity / 2) - count);
  const held = sample([...known.keys()].filter(isHeldOut), most, randomBytes);
  if (held.length === 0) return selectionOf(new Map(), leftOut);
  const strangers = drawStrangers(task.items, count, new Set(known.keys()), randomBytes);
  const rest = [...known.keys()].filter((item) => !isHeldOut(item));
  const room = capacity - held.length - strangers.length;
  let trained: Ratings;
  if (task.loss === "squared") {
    const items = sample(rest, room, randomBytes);
    trained = { items, values: Float32Array.from(items, (item) => known.get(item)!) };
  } else {
    // The fit needs different strangers: those to rank among would rank too low.
    trained = amongStrangers(task, rest, new Set([...known.keys(), ...strangers]), room, randomBytes);
  }
  const items = Int32Array.from([...held, ...strangers, ...trained.items]);
  const values = [...held].map((item) => known.get(item)!);
  return {
    items,
    values: Float32Array.from([...values, ...Array.from(strangers, () => NaN), ...trained.values]),
    heldOut: Uint8Array.from(items, (_, at) => (at < held.length ? 1 : 0)),
    leftOut,
  };
}

function selectionOf(ratings: ReadonlyMap<number, number>, leftOut: number): Selection {
  return {
    items: Int32Array.from(ratings.keys()),
    values: Float32Array.from(ratings.values()),
    heldOut: new Uint8Array(ratings.size),
    leftOut,
  };
}
