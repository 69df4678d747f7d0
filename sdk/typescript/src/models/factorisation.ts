// Biased matrix factorisation: score = b_u + b_i + ⟨p_u, q_i⟩.
//
// An item's row is its vector q_i followed by its bias b_i. The private part is the person's vector p_u, then b_u.
// With ratings it minimises squared errors, without ratings one of the losses of `ranking`.

import { PartError } from "../errors.js";
import type { Gradients, Model, Ratings } from "./model.js";
import { bpr, fitVector, softmax } from "./ranking.js";
import { PENALTIES, solveCautiously } from "./ridge.js";

const SCALE = 0.05; // standard deviation of initial vectors

export class MatrixFactorisation implements Model {
  readonly rowWidth: number;
  readonly denseSize = 0;
  readonly privateSize: number;

  constructor(
    dimension: number,
    readonly loss: string = "squared",
  ) {
    this.rowWidth = this.privateSize = dimension + 1;
  }

  firstPrivate(normal: () => number): Float32Array {
    return Float32Array.from({ length: this.privateSize }, (_, at) => (at < this.privateSize - 1 ? SCALE * normal() : 0));
  }

  fitPrivate(rows: Float32Array, _dense: Float32Array, _own: Float32Array, ratings: Ratings): Float32Array {
    const width = this.rowWidth;
    const count = ratings.values.length;
    const biases = Float64Array.from({ length: count }, (_, at) => rows[at * width + width - 1]!);
    if (this.loss !== "squared") {
      const vectors = Float64Array.from({ length: count * (width - 1) }, (_, at) => rows[Math.floor(at / (width - 1)) * width + (at % (width - 1))]!);
      return Float32Array.from([...fitVector(vectors, width - 1, ratings.values), 0]);
    }
    const inputs = Float64Array.from(rows, (value, at) => (at % width === width - 1 ? 1 : value));
    const targets = biases.map((bias, at) => ratings.values[at]! - bias);
    return Float32Array.from(solveCautiously({ inputs, targets, width, diagonal: this.#diagonal(count) }));
  }

  gradients(rows: Float32Array, dense: Float32Array, own: Float32Array, ratings: Ratings): Gradients {
    const width = this.rowWidth;
    const scores = this.scores(rows, dense, own, ratings.items);
    const squared = this.loss === "squared";
    const { loss, slopes } = squared
      ? { loss: 0, slopes: Float64Array.from(scores, (score, at) => 2 * (score - ratings.values[at]!)) }
      : (this.loss === "bpr" ? bpr : softmax)(scores, ratings.values);
    const byRow = new Float32Array(rows.length);
    const byPrivate = new Float64Array(width);
    const penalty = squared ? PENALTIES.rating : 0;
    let total = loss;
    slopes.forEach((slope, row) => {
      for (let at = 0; at < width; at++) {
        const isBias = at === width - 1;
        const value = rows[row * width + at]!;
        byRow[row * width + at] = slope * (isBias ? 1 : own[at]!) + (isBias ? 0 : 2 * penalty * value);
        byPrivate[at]! += slope * (isBias ? 1 : value);
        if (!isBias) total += penalty * value * value;
      }
      if (squared) total += (slope / 2) ** 2;
    });
    if (squared) {
      this.#diagonal(slopes.length).forEach((weight, at) => {
        byPrivate[at]! += 2 * weight * own[at]!;
        total += weight * own[at]! ** 2;
      });
    }
    return { loss: total, rows: byRow, dense: new Float32Array(0), private: Float32Array.from(byPrivate) };
  }

  scores(rows: Float32Array, dense: Float32Array, own: Float32Array, items: Int32Array): Float32Array {
    const width = this.rowWidth;
    if (rows.length !== items.length * width || own.length !== this.privateSize || dense.length) {
      throw new PartError("matrix factorisation takes a row for each item, a private part and no dense part");
    }
    return Float32Array.from({ length: items.length }, (_, row) => {
      let score = rows[row * width + width - 1]! + own[width - 1]!;
      for (let at = 0; at < width - 1; at++) score += rows[row * width + at]! * own[at]!;
      return score;
    });
  }

  #diagonal(ratings: number): Float64Array {
    const vector = PENALTIES.rating * ratings + PENALTIES.person;
    return Float64Array.from({ length: this.privateSize }, (_, at) => (at < this.privateSize - 1 ? vector : PENALTIES.bias));
  }
}
