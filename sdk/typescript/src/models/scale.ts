// The scale of a task's ratings: models see z = (rating − centre) / spread, and predict z.

import { decimal, signedDecimal } from "../core/canonical.js";
import type { TaskSpec } from "../core/spec.js";

export class Scale {
  readonly #centre: number = 0;
  readonly #spread: number = 1;
  readonly lowest: number = -Infinity; // as models see it
  readonly highest: number = Infinity;

  constructor(task: TaskSpec) {
    if (task.loss !== "squared") return; // choices have no scale
    const { centre, spread, lowest, highest } = task.fields;
    this.#centre = signedDecimal(centre);
    this.#spread = decimal(spread);
    if (lowest !== "") this.lowest = this.standardise(signedDecimal(lowest));
    if (highest !== "") this.highest = this.standardise(signedDecimal(highest));
  }

  standardise(rating: number): number {
    return (rating - this.#centre) / this.#spread;
  }

  /** Convert a prediction to a rating; it may exceed the scale, so that a ranking has no ties. */
  restore(score: number): number {
    return this.#centre + this.#spread * score;
  }

  /** Clip a prediction to the scale. */
  cut(score: number): number {
    return Math.min(Math.max(score, this.lowest), this.highest);
  }
}
