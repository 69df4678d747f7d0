// The public specification of a task and of a round: every length and every derivation follows from it.

import { SecEmbError, SpecError } from "../errors.js";
import { NormShape } from "../norm/shape.js";
import { ascii, hex, isHex, sha256, text, type Bytes } from "./bytes.js";
import { decimal, decodeCanonical, encodeCanonical, isGroup, signedDecimal, type Group } from "./canonical.js";
import { HALF, SINGLE, wordsOfRow } from "./half.js";
import { Label, PROTOCOL } from "./labels.js";
import { Geometry, Layout } from "./layout.js";
import { HASH_BYTES } from "./paths.js";
import { Privacy, type Kind } from "./privacy.js";
import { Ring, SUM_RING } from "./ring.js";

export type { Kind } from "./privacy.js";

const NUMBERS = [
  "bins", "bound", "capacity", "cohort", "dense_size", "fraction_bits", "items", "join_seconds", "min_cohort",
  "norm_bound", "ring_bits", "rounds", "row_bits", "row_width", "seed", "tables", "upload_seconds",
] as const;
const OPTIONAL: Readonly<Record<string, number>> = { row_bits: SINGLE }; // left out where they have these values
const TEXTS = [
  "bias_decay", "bias_rate", "catalogue", "centre", "dense_rate", "guard", "highest", "identity0", "initial_scale",
  "loss", "lowest", "name", "optimiser", "predecessor", "relay_key", "row_decay", "row_rate", "schedule", "spread",
] as const;
const OPTIMISERS = ["adam", "lazy-adam", "momentum", "sgd"];
const SCHEDULES = ["constant", "cosine"];
const LOSSES = ["squared", "bpr", "softmax", "next"];
export const SURVEY_CAPACITIES = Array.from({ length: 10 }, (_, at) => 2 ** (at + 3));
/** The length of a round's secure sum. */
export const SUM_SIZES: Readonly<Record<Kind, number>> = { train: 0, survey: 4 + SURVEY_CAPACITIES.length, evaluate: 22 };
const LARGEST_SUM = 2 ** 23 - 1;
const LARGEST_MESSAGE = 2 ** 28;

type Fields = Record<(typeof NUMBERS)[number], number> & Record<(typeof TEXTS)[number], string>;

/** One training job. Its id is the SHA-256 of its canonical form. */
export class TaskSpec {
  readonly id: Bytes;
  readonly fields: Readonly<Fields>;
  readonly privacy: Privacy | undefined;
  readonly ring: Ring;
  readonly geometry: Geometry;
  readonly normShape: NormShape | undefined;
  readonly #canonical: Bytes;

  private constructor(data: Bytes) {
    const written = decodeCanonical(data);
    if (Object.keys(OPTIONAL).some((name) => written[name] === OPTIONAL[name])) {
      throw new SpecError("a field must be left out where it has its usual value");
    }
    const found: Group = { ...OPTIONAL, ...written };
    expect(found, NUMBERS, TEXTS, ["privacy"]);
    const group = found["privacy"];
    if (!isGroup(group)) throw new SpecError("field privacy has the wrong type");
    this.#canonical = data;
    this.id = sha256(data);
    this.fields = found as unknown as Fields;
    this.privacy = Object.keys(group).length ? new Privacy(group) : undefined;
    this.ring = new Ring(this.fields.ring_bits, this.fields.fraction_bits);
    const { items, tables, bins, capacity, row_width: width, dense_size: dense, norm_bound: bound } = this.fields;
    checkSizes(this.fields);
    this.geometry = new Geometry(items, tables, bins, capacity);
    this.normShape = bound ? new NormShape(this.ring, this.geometry.slots, width, dense, bound) : undefined;
    this.#check();
  }

  /** Read the canonical form; unknown and missing members, and values that are not allowed, are refused. */
  static decode(data: Bytes): TaskSpec {
    return asSpecError(() => new TaskSpec(data));
  }

  encode(): Bytes {
    return this.#canonical;
  }

  get items(): number {
    return this.fields.items;
  }
  get width(): number {
    return this.fields.row_width;
  }
  /** Return how many 32-bit words a row has when it is read, without its tag. */
  get rowWords(): number {
    return wordsOfRow(this.fields.row_width, this.fields.row_bits);
  }
  get denseSize(): number {
    return this.fields.dense_size;
  }
  get capacity(): number {
    return this.fields.capacity;
  }
  get loss(): string {
    return this.fields.loss;
  }
  /** Tell whether devices may send everything through server 0. */
  get relays(): boolean {
    return this.fields.relay_key !== "";
  }

  #check(): void {
    const { fields, privacy, ring, geometry } = this;
    let tail = 0n;
    if (privacy !== undefined) {
      tail = privacy.rows.tail > privacy.dense.tail ? privacy.rows.tail : privacy.dense.tail;
      if (privacy.denseClip && !fields.dense_size) throw new SpecError("dense_clip is for tasks with a dense part");
      for (const kind of ["survey", "evaluate"] as const) {
        const noise = privacy.sums(kind);
        if (noise) SUM_RING.checkBudget(fields.cohort, privacy.line(kind)!.clip, noise.tail);
      }
      if (fields.norm_bound && BigInt(fields.norm_bound) < privacy.longest(fields.capacity)) {
        throw new SpecError("norm_bound must not be below what the privacy group lets an update be");
      }
    }
    ring.checkBudget(fields.cohort, fields.bound, tail);
    checkTraining(fields);
    const width = Math.max(fields.row_width * ring.elementBytes, 4 * (this.rowWords + 1));
    const longest = geometry.slots * Math.max(width, 17 * geometry.depth + HASH_BYTES);
    if (longest + fields.dense_size * ring.elementBytes > LARGEST_MESSAGE) {
      throw new SpecError(`a message would be longer than ${LARGEST_MESSAGE} bytes; use fewer slots or shorter rows`);
    }
  }
}

/** One round of a task: which model version devices read, and the scope of everything derived in it. */
export class RoundSpec {
  readonly number: number;
  readonly kind: Kind;
  readonly modelVersion: number;
  readonly modelDigest: string;
  readonly digest: Bytes;
  readonly #canonical: Bytes;
  #layout: Layout | undefined;

  private constructor(
    data: Bytes,
    readonly task: TaskSpec,
  ) {
    const found = decodeCanonical(data);
    expect(found, ["model_version", "round"], ["kind", "model_digest", "task"], []);
    if (found["task"] !== hex(task.id)) throw new SpecError("this round belongs to another task");
    if (!isHex(found["model_digest"], 32)) throw new SpecError("model_digest must be 64 lower-case hexadecimal digits");
    this.number = found["round"] as number;
    this.modelVersion = found["model_version"] as number;
    this.modelDigest = found["model_digest"];
    this.kind = found["kind"] as Kind;
    if (this.number < 0 || this.modelVersion < 0) throw new SpecError("round and model version must be whole numbers below 2^53");
    if (!Object.hasOwn(SUM_SIZES, this.kind)) throw new SpecError("the kind of a round is train, survey or evaluate");
    if (this.sumSize && task.fields.cohort > LARGEST_SUM) {
      throw new SpecError(`a round with a secure sum needs a task with a cohort of at most ${LARGEST_SUM}`);
    }
    this.#canonical = data;
    this.digest = sha256(data);
  }

  /** Read the canonical form of a round of `task`. */
  static decode(data: Bytes, task: TaskSpec): RoundSpec {
    return asSpecError(() => new RoundSpec(data, task));
  }

  encode(): Bytes {
    return this.#canonical;
  }

  /** Return the canonical form as text. */
  get text(): string {
    return text(this.#canonical);
  }

  get sumSize(): number {
    return SUM_SIZES[this.kind];
  }

  /** Return the scope of everything derived for one session. */
  label(sessionId: Bytes): Label {
    return new Label(this.task.id, this.number, sessionId);
  }

  /** Return the scope of everything derived for the model version. */
  get modelLabel(): Label {
    return new Label(this.task.id, this.modelVersion);
  }

  /** Return the positions of items in this round. */
  get layout(): Layout {
    return (this.#layout ??= new Layout(this.task.geometry, this.task.capacity, new Label(this.task.id, this.number)));
  }
}

/** Return the canonical form of a round, for tests and tools. */
export function encodeRound(fields: Group): Bytes {
  return encodeCanonical({ ...fields, protocol: PROTOCOL });
}

/** Return the id of a task in its text form. */
export function taskIdOf(canonical: string): Bytes {
  return sha256(ascii(canonical));
}


function asSpecError<Result>(action: () => Result): Result {
  try {
    return action();
  } catch (error) {
    if (error instanceof SecEmbError && error.name !== "EncodingError" && !(error instanceof SpecError)) {
      throw new SpecError(error.message);
    }
    throw error;
  }
}

function expect(found: Group, numbers: readonly string[], texts: readonly string[], groups: readonly string[]): void {
  if (found["protocol"] !== PROTOCOL) throw new SpecError(`not a specification of protocol ${PROTOCOL}`);
  const names = ["protocol", ...numbers, ...texts, ...groups].sort();
  if (Object.keys(found).sort().join() !== names.join()) throw new SpecError("a specification has unknown or missing fields");
  for (const name of numbers) if (typeof found[name] !== "number") throw new SpecError(`field ${name} has the wrong type`);
  for (const name of texts) if (typeof found[name] !== "string") throw new SpecError(`field ${name} has the wrong type`);
}

function checkSizes(fields: Fields): void {
  if (!(fields.name.length >= 1 && fields.name.length <= 100)) throw new SpecError("a task needs a name of 1 to 100 characters");
  if (!(fields.row_width >= 1 && fields.row_width <= 2 ** 16) || !(fields.dense_size >= 0 && fields.dense_size <= 2 ** 26)) {
    throw new SpecError("row width must be 1 to 65,536 and dense size 0 to 2^26");
  }
  if (fields.row_bits !== HALF && fields.row_bits !== SINGLE) throw new SpecError("the numbers of a row have 16 or 32 bits");
  if (!(fields.capacity >= 1 && fields.capacity <= fields.items)) {
    throw new SpecError("capacity (m') must be at least 1 and at most the number of items");
  }
  if (!(fields.min_cohort >= 2 && fields.min_cohort <= fields.cohort)) {
    throw new SpecError("min_cohort must be at least 2 and at most the cohort");
  }
  if (fields.norm_bound < 0) throw new SpecError("norm_bound is a number of steps of the ring, or 0");
}

function checkTraining(fields: Fields): void {
  if (!(fields.rounds >= 1 && fields.rounds <= 2 ** 32) || fields.seed < 0) {
    throw new SpecError("a task has 1 to 2^32 rounds, and its seed is not negative");
  }
  const { join_seconds: join, upload_seconds: upload } = fields;
  if (!(join >= 1 && join <= upload && upload <= 30 * 86_400)) {
    throw new SpecError("join_seconds must be at least 1, and upload_seconds at least that and at most 30 days");
  }
  if (!OPTIMISERS.includes(fields.optimiser)) throw new SpecError(`the optimiser must be one of ${OPTIMISERS.join(", ")}`);
  if (!SCHEDULES.includes(fields.schedule) || !LOSSES.includes(fields.loss)) {
    throw new SpecError(`the schedule is one of ${SCHEDULES.join(", ")}, the loss one of ${LOSSES.join(", ")}`);
  }
  const guard = decimal(fields.guard);
  if (guard > 0 && guard < 1) throw new SpecError("the guard is 0 for none, or a multiple of at least 1");
  const rates = ["row_rate", "bias_rate", "dense_rate", "row_decay", "bias_decay", "initial_scale"] as const;
  for (const name of rates) decimal(fields[name]);
  signedDecimal(fields.centre);
  if (!(decimal(fields.spread) > 0)) throw new SpecError("the spread of the ratings must be above zero");
  const ends = [fields.lowest, fields.highest].filter((end) => end !== "").map(signedDecimal);
  if (ends.length === 2 && !(ends[0]! < ends[1]!)) throw new SpecError("the lowest rating must be below the highest");
  for (const name of ["catalogue", "relay_key", "identity0", "predecessor"] as const) {
    if (fields[name] !== "" && !isHex(fields[name], 32)) throw new SpecError(`${name} must be 64 lower-case hexadecimal digits, or empty`);
  }
  if (fields.identity0 !== "" && fields.identity0 === fields.relay_key) {
    throw new SpecError("identity0 and relay_key must be different keys, of two different operators");
  }
}
