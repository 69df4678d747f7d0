// The measurements of an evaluation: protocol, section 12, and docs/evaluation.md.

import { LARGEST_SUM_VALUE } from "../core/ring.js";
import { SURVEY_CAPACITIES, type TaskSpec } from "../core/spec.js";
import type { Model } from "../models/model.js";
import { Scale } from "../models/scale.js";
import { fitPrivate, type PrivateState } from "../models/update.js";
import { places, ratingsOf, type Selection } from "./selection.js";

const RIDGE = 3.0; // shrinkage of a person's bias towards zero, in ratings
const FIRST_PLACES = 10;

/** Return a device's item count, sums of its ratings above and below the centre and squared, and the kept counts. */
export function survey(values: Float32Array): Float64Array {
  const count = values.length;
  const sum = (part: (value: number) => number) => values.reduce((total, value) => total + part(value), 0);
  const sums = [sum((value) => Math.max(value, 0)), sum((value) => Math.max(-value, 0)), sum((value) => value * value)];
  return atMost([count, ...sums, ...SURVEY_CAPACITIES.map((capacity) => Math.min(count, capacity))]);
}

/** Return the 22 numbers of an evaluation; row i belongs to `found[i]`. */
export function measure(
  task: TaskSpec, model: Model, state: PrivateState, selection: Selection, found: Int32Array, rows: Float32Array, dense: Float32Array,
): Float64Array {
  const { width } = task;
  const placeOf = places(selection);
  // Float sums depend on the order, and items are in the order of their slots.
  const order = [...found.keys()].sort((left, right) => found[left]! - found[right]!);
  const all = order.map((at) => {
    const place = placeOf.get(found[at]!)!;
    const row = rows.subarray(at * width, (at + 1) * width);
    return { item: found[at]!, row, bias: row[width - 1]!, value: selection.values[place]!, held: selection.heldOut[place] === 1, score: 0 };
  });
  const trained = all.filter((one) => !one.held && !Number.isNaN(one.value));
  const items = Int32Array.from(trained, (one) => one.item);
  const own = fitPrivate(model, state, joinRows(trained, width), dense, ratingsOf(selection, items));
  model
    .scores(joinRows(all, width), dense, own.values, Int32Array.from(all, (one) => one.item))
    .forEach((score, at) => (all[at]!.score = score));

  const held = all.filter((one) => one.held);
  const strangers = all.filter((one) => Number.isNaN(one.value));
  const numbers = new Float64Array(22);
  if (task.loss === "squared") {
    const scale = new Scale(task);
    const person = trained.reduce((sum, one) => sum + one.value - one.bias, 0) / (trained.length + RIDGE);
    numbers[0] = held.length;
    for (const one of held) {
      const error = scale.cut(one.score) - one.value;
      const simpler = scale.cut(one.bias + person) - one.value;
      numbers[1]! += error * error;
      numbers[2]! += Math.abs(error);
      numbers[3]! += Math.max(one.value, 0);
      numbers[4]! += Math.max(-one.value, 0);
      numbers[5]! += one.value * one.value;
      numbers[6]! += simpler * simpler;
    }
  }
  if (held.length && strangers.length) {
    const byModel = rank(held.map((one) => one.score), strangers.map((one) => one.score));
    const byBias = rank(held.map((one) => one.bias), strangers.map((one) => one.bias));
    numbers[10] = 1;
    numbers.set(byModel, 11);
    numbers.set(byBias, 18);
  }
  if (task.privacy === undefined) {
    // For the variance over devices. These are large, and a clip would scale down all others with them.
    numbers[7] = numbers[0]! ** 2 / task.capacity;
    numbers[8] = (numbers[0]! * numbers[1]!) / task.capacity;
    numbers[9] = numbers[1]! ** 2 / task.capacity;
    numbers.set([12, 13, 14].map((at) => numbers[at]! ** 2), 15);
  }
  return atMost(numbers);
}

/** Return hit, recall, NDCG and reciprocal of relevant items among others; in ties the relevant item comes last. */
export function rank(relevant: readonly number[], others: readonly number[]): [number, number, number, number] {
  const before = relevant.map((score) => others.filter((other) => other >= score).length).sort((left, right) => left - right);
  const placed = before.map((count, at) => count + at + 1); // the relevant ones before it
  const first = placed.filter((place) => place <= FIRST_PLACES);
  const gain = (found: readonly number[]) => found.reduce((sum, place) => sum + 1 / Math.log2(place + 1), 0);
  const ideal = gain(Array.from({ length: Math.min(FIRST_PLACES, placed.length) }, (_, at) => at + 1));
  return [first.length ? 1 : 0, first.length / placed.length, gain(first) / ideal, 1 / placed[0]!];
}

function joinRows(some: readonly { row: Float32Array }[], width: number): Float32Array {
  const joined = new Float32Array(some.length * width);
  some.forEach((one, at) => joined.set(one.row, at * width));
  return joined;
}

function atMost(numbers: ArrayLike<number>): Float64Array {
  return Float64Array.from(numbers, (number) => Math.min(number, LARGEST_SUM_VALUE));
}
