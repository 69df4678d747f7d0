// A task's privacy guarantee: how updates are clipped, and how much noise each server adds.

import { SpecError } from "../errors.js";
import { decimal, exactDecimal, isGroup, type Group, type Value } from "./canonical.js";

export type Kind = "train" | "survey" | "evaluate";

const LARGEST_EPSILON = 1000;
const LARGEST_CLIP = 2 ** 52;
const SMALLEST_VARIANCE = 65_536n;
const LARGEST_VARIANCE = 1n << 82n;
const TAIL = 18n;

/** The noise of one kind of round. */
export interface BudgetLine {
  readonly clip: number; // in steps
  readonly multiplier: string;
  readonly epsilon: string;
}

/** Noise on a sum: its variance in squared steps, and its bound. */
export interface Noise {
  readonly variance: bigint;
  readonly tail: bigint;
}

export class Privacy {
  readonly unit: "user" | "record";
  readonly delta: string;
  readonly denseClip: number;
  readonly samplingRate: string;
  readonly #lines: Readonly<Record<Kind, BudgetLine | undefined>>;

  constructor(found: Group) {
    const names = ["delta", "dense_clip", "evaluate", "sampling_rate", "survey", "train", "unit"];
    if (Object.keys(found).sort().join() !== names.join()) throw new SpecError("the group privacy has unknown or missing members");
    const { unit, delta, dense_clip: denseClip, sampling_rate: samplingRate } = found;
    if (typeof denseClip !== "number" || typeof delta !== "string" || typeof samplingRate !== "string") {
      throw new SpecError("the members of privacy are whole numbers, text and budget lines");
    }
    if (unit !== "user" && unit !== "record") throw new SpecError("the unit of privacy is user or record");
    this.unit = unit;
    this.delta = delta;
    this.denseClip = denseClip;
    this.samplingRate = samplingRate;
    this.#lines = { train: readLine(found["train"]), survey: readLine(found["survey"]), evaluate: readLine(found["evaluate"]) };
    this.#check();
  }

  /** Return the budget line of a kind of round; without it there are no such rounds. */
  line(kind: Kind): BudgetLine | undefined {
    return this.#lines[kind];
  }

  get train(): BudgetLine {
    return this.#lines.train!;
  }

  /** Return the noise on every row. */
  get rows(): Noise {
    return noiseOf(this.train, this.train.clip, this.denseClip ? 2 : 1);
  }

  /** Return the noise on every number of the dense part. */
  get dense(): Noise {
    return noiseOf(this.train, this.denseClip || this.train.clip, this.denseClip ? 2 : 1);
  }

  /** Return the noise on the secure sum of a survey or an evaluation. */
  sums(kind: "survey" | "evaluate"): Noise | undefined {
    const line = this.#lines[kind];
    return line && noiseOf(line, line.clip, this.unit === "record" ? 2 : 1);
  }

  /** Return the maximum norm of a whole update, in steps. */
  longest(capacity: number): bigint {
    const squared = BigInt(this.train.clip) ** 2n + BigInt(this.denseClip) ** 2n;
    return (squareRoot(squared) + 1n) * BigInt(this.unit === "record" ? capacity : 1);
  }

  #check(): void {
    if (this.#lines.train === undefined) throw new SpecError("privacy needs a budget line for training");
    const delta = decimal(this.delta);
    if (!(delta > 0 && delta < 1)) throw new SpecError("delta must be between 0 and 1, and should be well below 1 / number of users");
    if (this.samplingRate !== "") {
      const rate = decimal(this.samplingRate);
      if (!(rate > 0 && rate <= 1)) throw new SpecError("a sampling rate must be above 0 and at most 1, or empty");
    }
    for (const line of Object.values(this.#lines)) if (line !== undefined) checkLine(line);
    void [this.rows, this.dense, this.sums("survey"), this.sums("evaluate")]; // refuse noise that cannot be drawn
  }
}

function checkLine(line: BudgetLine): void {
  decimal(line.multiplier);
  const epsilon = decimal(line.epsilon);
  if (!(epsilon > 0 && epsilon <= LARGEST_EPSILON)) throw new SpecError(`a budget's epsilon must be above 0 and at most ${LARGEST_EPSILON}`);
}

function readLine(found: Value | undefined): BudgetLine | undefined {
  if (!isGroup(found)) throw new SpecError("a budget line has a clip, a multiplier and an epsilon, or is an empty group");
  if (Object.keys(found).length === 0) return undefined;
  const { clip, multiplier, epsilon } = found;
  if (Object.keys(found).length !== 3 || typeof clip !== "number" || typeof multiplier !== "string" || typeof epsilon !== "string") {
    throw new SpecError("a budget line has a clip in whole steps, and a multiplier and an epsilon as text");
  }
  return { clip, multiplier, epsilon };
}

/** Return σ² = ⌈z² · Δ² · parts⌉ in exact arithmetic. */
function noiseOf(line: BudgetLine, clip: number, parts: number): Noise {
  if (!(clip >= 1 && clip <= LARGEST_CLIP)) throw new SpecError("a clip must be 1 to 2^52 steps of the ring");
  const { digits, places } = exactDecimal(line.multiplier);
  if (digits <= 0n) throw new SpecError("a noise multiplier must be positive");
  const above = digits ** 2n * BigInt(clip) ** 2n * BigInt(parts);
  const below = 10n ** BigInt(2 * places);
  const variance = (above + below - 1n) / below;
  if (variance < SMALLEST_VARIANCE || variance > LARGEST_VARIANCE) {
    throw new SpecError("the noise is finer or wider than can be drawn: change fraction bits or multiplier");
  }
  return { variance, tail: TAIL * (squareRoot(variance - 1n) + 1n) };
}

/** Return the square root, rounded down. */
export function squareRoot(value: bigint): bigint {
  if (value < 2n) return value;
  let root = 1n << BigInt((value.toString(2).length + 1) >> 1);
  for (;;) {
    const next = (root + value / root) >> 1n;
    if (next >= root) return root;
    root = next;
  }
}
