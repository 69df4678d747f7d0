// Clips an update to the limits of a task: as a whole, or the part of each rating; exactly, in whole steps.

import type { BudgetLine } from "../core/privacy.js";
import type { TaskSpec } from "../core/spec.js";
import { NotFiniteError, NotFiniteLossError } from "../errors.js";
import type { Model, Ratings } from "./model.js";

const SLACK = 1 - 2 ** -20; // the norm is computed in binary64, whose error is far below this margin
const SHORT = 1 - 2 ** -10; // rounding to whole steps lengthens an update by far less than this margin
const SUM_FRACTION_BITS = 16;

export type Numbers = Float32Array | Float64Array;

export interface Update {
  readonly rows: Numbers;
  readonly dense: Numbers;
  readonly trouble?: string; // the name of an error, if a rating cannot be learned from
}

/** Return the parts of one vector scaled by min{1, limit / length}, as whole steps rounded towards zero. */
export function clipToSteps(parts: readonly Numbers[], limit: number, fractionBits: number): Float64Array[] {
  const scale = 2 ** fractionBits;
  let squares = 0;
  for (const part of parts) for (let at = 0; at < part.length; at++) squares += (part[at]! * scale) ** 2;
  const length = Math.sqrt(squares);
  if (!Number.isFinite(length)) throw new NotFiniteError("a vector with NaN or infinity has no length; drop the update");
  const most = limit * SLACK;
  const factor = length <= most ? scale : (most / length) * scale;
  return parts.map((part) => Float64Array.from(part, (value) => Math.trunc(value * factor)));
}

/** Return a device's whole update, clipped for a task with noise; the values are whole steps. */
export function clipUpdate(update: Update, task: TaskSpec): Update {
  const privacy = task.privacy!;
  return restore(cut(update.rows, update.dense, privacy.train.clip, privacy.denseClip, task.fields.fraction_bits), task);
}

/** Return the sum of the contributions of a device's ratings, each clipped. */
export function clipRecords(model: Model, rows: Float32Array, dense: Float32Array, own: Float32Array, ratings: Ratings, task: TaskSpec): Update {
  const privacy = task.privacy!;
  const byRow = new Float64Array(rows.length);
  const byDense = new Float64Array(dense.length);
  let trouble: string | undefined;
  for (let at = 0; at < ratings.items.length; at++) {
    const some = [at * task.width, (at + 1) * task.width] as const;
    const one = { items: ratings.items.slice(at, at + 1), values: ratings.values.slice(at, at + 1) };
    // A faulty rating does not affect the update from the others: if it were suppressed, one rating could change
    // more than its clip.
    try {
      const alone = model.gradients(rows.slice(...some), dense, own, one);
      const steps = cut(alone.rows, alone.dense, privacy.train.clip, privacy.denseClip, task.fields.fraction_bits);
      byRow.set(steps[0]!, some[0]);
      steps[1]!.forEach((value, index) => (byDense[index]! += value));
    } catch (error) {
      trouble = (error as Error).name;
    }
  }
  return { ...restore([byRow, byDense], task), ...(trouble === undefined ? {} : { trouble }) };
}

/** Return a device's whole update, clipped to the task's norm bound; one that is short enough is unchanged. */
export function fitNorm(update: Update, task: TaskSpec): Update {
  const bound = task.fields.norm_bound;
  const squares = [update.rows, update.dense].map((part) => (part as Float64Array).reduce((sum, value) => sum + value * value, 0));
  if (!bound || Math.sqrt(squares[0]! + squares[1]!) <= (bound / 2 ** task.fields.fraction_bits) * SHORT) return update;
  return restore(cut(update.rows, update.dense, bound, 0, task.fields.fraction_bits), task);
}

/** Return the values clipped to the task's bound for one element. */
export function fitBound(values: Numbers, task: TaskSpec): Numbers {
  const largest = task.fields.bound / 2 ** task.fields.fraction_bits;
  return Float64Array.from(values, (value) => Math.min(Math.max(value, -largest), largest));
}

/** Return a device's contribution to a secure sum, scaled to the clip of its budget line. */
export function clipSums(values: Float64Array, line: BudgetLine): Float64Array {
  const [steps] = clipToSteps([values], line.clip, SUM_FRACTION_BITS);
  return steps!.map((value) => value / 2 ** SUM_FRACTION_BITS);
}

function cut(rows: Numbers, dense: Numbers, limit: number, denseLimit: number, fractionBits: number): Float64Array[] {
  try {
    if (!denseLimit) return clipToSteps([rows, dense], limit, fractionBits);
    return [...clipToSteps([rows], limit, fractionBits), ...clipToSteps([dense], denseLimit, fractionBits)];
  } catch (error) {
    if (!(error instanceof NotFiniteError)) throw error;
    throw new NotFiniteLossError("a gradient is not finite; upload zeros and check ratings and rates");
  }
}

function restore(steps: readonly Float64Array[], task: TaskSpec): Update {
  const [rows, dense] = steps.map((part) => part.map((value) => value / 2 ** task.fields.fraction_bits));
  return { rows: rows!, dense: dense! };
}
