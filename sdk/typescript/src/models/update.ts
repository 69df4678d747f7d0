// One round of training on a device: the update, and the next private part.

import { drawChance, type RandomBytes } from "../core/random.js";
import { NotFiniteLossError, PartError } from "../errors.js";
import type { Gradients, Model, Ratings } from "./model.js";

const [FIRST_BETA, SECOND_BETA, EPSILON] = [0.9, 0.999, 1e-8]; // of Adam

/** The private part of a model and the state of its optimiser: the state that a device keeps between rounds. */
export interface PrivateState {
  readonly values: Float32Array;
  readonly first: Float32Array; // Adam's mean gradient
  readonly second: Float32Array; // Adam's mean squared gradient
  readonly steps: number;
}

export interface Learned {
  readonly rows: Float32Array; // (n, rowWidth)
  readonly dense: Float32Array;
  readonly private: PrivateState;
}

/** Return the state of a device before its first round. */
export function beginPrivate(model: Model, randomBytes: RandomBytes): PrivateState {
  const values = model.firstPrivate(() => drawNormal(randomBytes));
  return { values, first: new Float32Array(values.length), second: new Float32Array(values.length), steps: 0 };
}

/**
 * Return the updates to upload and the next private state. A model that can solve for its private part does so first;
 * others update it by one step of Adam. Raises `NotFiniteLossError` if there is nothing to learn from.
 */
export function learn(model: Model, state: PrivateState, rows: Float32Array, dense: Float32Array, ratings: Ratings, rate: number): Learned {
  if (rows.length !== ratings.items.length * model.rowWidth || dense.length !== model.denseSize) {
    throw new PartError("learning needs one row for each rated item, and the model's dense part");
  }
  const solved = model.fitPrivate !== undefined;
  const before = solved ? fitPrivate(model, state, rows, dense, ratings) : state;
  const found = model.gradients(rows, dense, before.values, ratings);
  checkFinite([found.loss], found.rows, found.dense);
  return { rows: found.rows, dense: found.dense, private: solved ? before : step(before, found, rate) };
}

/** Return the private state after a round whose update is already computed. */
export function movePrivate(model: Model, state: PrivateState, rows: Float32Array, dense: Float32Array, ratings: Ratings, rate: number): PrivateState {
  return learn(model, state, rows, dense, ratings, rate).private;
}

/** Return the state with a private part fitted to these rows, if the model can do so. */
export function fitPrivate(model: Model, state: PrivateState, rows: Float32Array, dense: Float32Array, ratings: Ratings): PrivateState {
  if (ratings.items.length === 0 || model.fitPrivate === undefined) return state;
  const values = model.fitPrivate(rows, dense, state.values, ratings);
  checkFinite(values);
  return { ...state, values, steps: state.steps + 1 };
}

function step(state: PrivateState, { private: gradient }: Gradients, rate: number): PrivateState {
  const steps = state.steps + 1;
  const first = state.first.map((mean, at) => mean + (1 - FIRST_BETA) * (gradient[at]! - mean));
  const second = state.second.map((mean, at) => SECOND_BETA * mean + (1 - SECOND_BETA) * gradient[at]! ** 2);
  const size = rate / (1 - FIRST_BETA ** steps);
  const root = Math.sqrt(1 - SECOND_BETA ** steps);
  const values = state.values.map((value, at) => value - (size * first[at]!) / (Math.sqrt(second[at]!) / root + EPSILON));
  checkFinite(values, second);
  return { values, first, second, steps };
}

function checkFinite(...parts: readonly ArrayLike<number>[]): void {
  for (const part of parts) {
    if (!Array.prototype.every.call(part, Number.isFinite)) {
      throw new NotFiniteLossError("the loss or its gradient is not finite; upload zeros and check ratings and rates");
    }
  }
}

function drawNormal(randomBytes: RandomBytes): number {
  return Math.sqrt(-2 * Math.log(1 - drawChance(randomBytes))) * Math.cos(2 * Math.PI * drawChance(randomBytes));
}
