// Losses for feedback that has no ratings: items that the owner has chosen (1) among strangers (0).
//
//     bpr       Σ over the chosen of the mean over the strangers of log(1 + exp(s − c))
//     softmax   Σ over the chosen of −log(exp(c) / (exp(c) + Σ over the strangers of exp(s)))

import { solveRidge } from "./ridge.js";

const LENGTH = 4.0; // norm of a person's vector: without ratings there is no scale, and this one spreads scores enough
const STRANGERS = 4.0; // total weight of all strangers in the fit, per chosen item

/** The loss, and its derivative by each score. */
export interface Slopes {
  readonly loss: number;
  readonly slopes: Float64Array;
}

export function bpr(scores: Float32Array, values: Float32Array): Slopes {
  const { chosen, strangers } = split(values);
  const slopes = new Float64Array(scores.length);
  let loss = 0;
  for (const own of chosen) {
    for (const other of strangers) {
      const difference = scores[other]! - scores[own]!;
      const each = 1 / strangers.length / (1 + Math.exp(-difference));
      slopes[own]! -= each;
      slopes[other]! += each;
      loss += logAddExp(0, difference) / strangers.length;
    }
  }
  return { loss, slopes };
}

export function softmax(scores: Float32Array, values: Float32Array): Slopes {
  const { chosen, strangers } = split(values);
  const slopes = new Float64Array(scores.length);
  if (chosen.length === 0 || strangers.length === 0) return { loss: 0, slopes };
  const rest = strangers.map((other) => scores[other]!).reduce(logAddExp);
  let loss = 0;
  for (const own of chosen) {
    const total = logAddExp(scores[own]!, rest);
    slopes[own] = Math.exp(scores[own]! - total) - 1;
    for (const other of strangers) slopes[other]! += Math.exp(scores[other]! - total);
    loss += total - scores[own]!;
  }
  return { loss, slopes };
}

/** Return a person's vector of fixed norm, in the direction that best separates the chosen from the strangers. */
export function fitVector(vectors: Float64Array, width: number, values: Float32Array): Float64Array {
  const { chosen, strangers } = split(values);
  const weight = (STRANGERS * chosen.length) / Math.max(1, strangers.length);
  const roots = Float64Array.from(values, (value) => Math.sqrt(value > 0 ? 1 : weight));
  const inputs = vectors.map((value, at) => value * roots[Math.floor(at / width)]!);
  const targets = Float64Array.from(values, (value, at) => value * roots[at]!);
  const found = solveRidge({ inputs, targets, width, diagonal: new Float64Array(width).fill(1) });
  const length = Math.sqrt(found.reduce((sum, value) => sum + value * value, 0));
  return length > 0 ? found.map((value) => (value * LENGTH) / length) : found;
}

function split(values: Float32Array): { chosen: number[]; strangers: number[] } {
  const all = [...values.keys()];
  return { chosen: all.filter((at) => values[at]! > 0), strangers: all.filter((at) => !(values[at]! > 0)) };
}

function logAddExp(left: number, right: number): number {
  const larger = Math.max(left, right);
  return larger + Math.log1p(Math.exp(-Math.abs(left - right)));
}
