// The proof that a device's update is short, shown to two servers without revealing it (docs/reference/norm-proof.md).

import { Aes } from "../core/aes.js";
import { concat, sha256, type Bytes } from "../core/bytes.js";
import type { Label } from "../core/labels.js";
import type { Elements, Ring } from "../core/ring.js";
import type { Field } from "./field.js";
import { PROJECTIONS, ROWS, type NormShape } from "./shape.js";

/** The messages of a proof: the commitments to both servers, the share to server 0 only. */
export interface Proof {
  readonly shared: Bytes;
  readonly share: Bytes;
}

/** The public parts of one session that the proof covers, and the device's own. */
export interface Claim {
  readonly label: Label; // of the session
  readonly keysDigest: Bytes;
  readonly words: Elements; // correction words
  readonly seeds: readonly [Bytes, Bytes];
  readonly payload: Elements; // (slots, width)
  readonly dense: Elements;
  readonly slotSums: Elements; // (slots, width) server 1's share of the payload
}

/** Return the proof that payload and dense part are short, or undefined if they are too long. */
export function prove(shape: NormShape, claim: Claim): Proof | undefined {
  const { label, seeds, words } = claim;
  const { ring, field } = shape;
  const denseShare = ring.hide(label.key("stream/dense", seeds[1]), claim.dense);
  const ownSums = claim.payload.slice();
  ring.subtract(ownSums, claim.slotSums);
  const share0 = joined(ownSums, denseShare);
  const share1 = joined(claim.payload, claim.dense);
  ring.subtract(share1, share0);
  const committed = [
    label.derive("norm/commit", Uint8Array.of(0), seeds[0], ring.pack(denseShare)),
    label.derive("norm/commit", Uint8Array.of(1), seeds[1]),
  ] as const;
  const seed = label.derive("norm/challenge", claim.keysDigest, sha256(ring.pack(words)), ...committed);
  const lifted = [0, 1].map((party) => lift(ring, party, project(ring, seed.slice(0, 16), party ? share1 : share0)));
  const sums = lifted[0]!.map((value, at) => value + lifted[1]![at]!);
  const witness = witnessOf(shape, sums);
  if (witness === undefined) return undefined;

  const masks = 2 * shape.columns;
  const own0 = field.stream(label.key("stream/norm", seeds[0]), masks);
  const own1 = field.stream(label.key("stream/norm", seeds[1]), masks + shape.witness + 2 * ROWS + 1);
  const witnessShare = field.encode(minus(field, witness, own1.slice(masks)));
  const committedWitness = label.derive("norm/commit", Uint8Array.of(2), seeds[0], witnessShare);
  const joint = label.derive("norm/joint", seed, committedWitness);
  const rho = field.stream(joint.slice(0, 16), 1)[0]!;
  const { z, weighted } = assign(shape, rho, sums, witness);
  const masked = own0.map((value, at) => field.reduce(value + own1[at]!));
  const product = multiply(field, [masked.slice(0, shape.columns), ...z], [masked.slice(shape.columns), ...weighted]);
  const productShare = field.encode(minus(field, product, own1.slice(masks + shape.witness)));
  return { shared: concat(...committed, committedWitness), share: concat(witnessShare, productShare) };
}

/** Return the 128 projections: element i times bit k of block 2i minus bit k of block 2i + 1 of the stream. */
export function project(ring: Ring, key: Bytes, values: Elements): Elements {
  const cipher = new Aes(key);
  const sums = ring.zeros(PROJECTIONS);
  const count = values.length / ring.words;
  const atOnce = 1024;
  for (let first = 0; first < count; first += atOnce) {
    const some = Math.min(atOnce, count - first);
    const blocks = cipher.stream(2 * some, 2 * first);
    for (let index = 0; index < some; index++) {
      const low = values[(first + index) * ring.words]!;
      const high = ring.words === 2 ? values[(first + index) * 2 + 1]! : 0;
      if (low === 0 && high === 0) continue;
      for (let word = 0; word < 4; word++) {
        const plus = blocks[8 * index + word]!;
        const less = blocks[8 * index + 4 + word]!;
        let entries = plus ^ less; // where they are equal, the entry is 0
        while (entries !== 0) {
          const bit = 31 - Math.clz32(entries & -entries);
          entries &= entries - 1;
          addTo(ring, sums, 32 * word + bit, low, high, (plus >>> bit) & 1);
        }
      }
    }
  }
  return sums;
}

function addTo(ring: Ring, sums: Elements, at: number, low: number, high: number, positive: number): void {
  if (ring.words === 1) {
    sums[at] = positive ? sums[at]! + low : sums[at]! - low;
  } else if (positive) {
    const sum = sums[2 * at]! + low;
    sums[2 * at + 1] = sums[2 * at + 1]! + high + (sum >= 2 ** 32 ? 1 : 0);
    sums[2 * at] = sum;
  } else {
    const sum = sums[2 * at]! - low;
    sums[2 * at + 1] = sums[2 * at + 1]! - high - (sum < 0 ? 1 : 0);
    sums[2 * at] = sum;
  }
}

/** Return a party's projections as integers whose sum is R + 2^b · carry. */
function lift(ring: Ring, party: number, projections: Elements): bigint[] {
  const size = 1n << BigInt(ring.bits);
  const half = size >> 1n;
  return Array.from({ length: PROJECTIONS }, (_, at) => {
    const low = BigInt(projections[at * ring.words]!);
    const value = ring.words === 2 ? low + (BigInt(projections[2 * at + 1]!) << 32n) : low;
    return party ? value % size : ((value + half) % size) - half; // a word may have more bits than the ring
  });
}

/** Return the carries and the bits of the slack, or undefined if the update is too long for the bound. */
function witnessOf(shape: NormShape, sums: readonly bigint[]): bigint[] | undefined {
  const bits = BigInt(shape.ring.bits);
  const half = 1n << (bits - 1n);
  const carries = sums.map((sum) => (sum + half) >> bits);
  const squares = sums.reduce((total, sum, at) => total + (sum - (carries[at]! << bits)) ** 2n, 0n);
  const slack = shape.threshold - squares;
  if (slack < 0n) return undefined;
  return [...carries, ...Array.from({ length: shape.slackBits }, (_, at) => (slack >> BigInt(at)) & 1n)];
}

/** Lay out the witness and its products with the weights, in rows of columns. */
function assign(shape: NormShape, rho: bigint, sums: readonly bigint[], witness: readonly bigint[]): { z: bigint[][]; weighted: bigint[][] } {
  const { field } = shape;
  const bits = BigInt(shape.ring.bits);
  let power = 1n;
  const weighted = witness.map((bit) => {
    power = (power * rho) % field.prime;
    return (power * bit) % field.prime;
  });
  const numbers = sums.map((sum, at) => field.reduce(sum - (witness[at]! << bits)));
  return { z: inRows(shape, [...numbers, ...witness]), weighted: inRows(shape, [...numbers, ...weighted]) };
}

function inRows(shape: NormShape, values: bigint[]): bigint[][] {
  return Array.from({ length: ROWS }, (_, row) =>
    Array.from({ length: shape.columns }, (_, column) => values[row * shape.columns + column] ?? 0n),
  );
}

/** Return h = Σ f_j · g_j at 0 … 2c: f_j and g_j pass through the rows at 0 … c. */
function multiply(field: Field, f: bigint[][], g: bigint[][]): bigint[] {
  const columns = f[0]!.length;
  for (const weights of BEYOND) {
    for (const rows of [f, g]) {
      const before = rows.slice(0, ROWS + 1);
      rows.push(Array.from({ length: columns }, (_, column) => field.dot(weights, before.map((row) => row[column]!))));
    }
  }
  return f.map((row, at) => field.dot(row, g[at]!));
}

/** The weights that map values at 0 … c to those at c + 1 … 2c: integers, so no field is needed. */
const BEYOND = Array.from({ length: ROWS }, (_, index) => {
  const point = BigInt(ROWS + 1 + index);
  return Array.from({ length: ROWS + 1 }, (_, node) => {
    let [above, below] = [1n, 1n];
    for (let other = 0; other <= ROWS; other++) {
      if (other === node) continue;
      above *= point - BigInt(other);
      below *= BigInt(node - other);
    }
    return above / below;
  });
});

function minus(field: Field, values: readonly bigint[], pads: readonly bigint[]): bigint[] {
  return values.map((value, at) => field.reduce(value - pads[at]!));
}

function joined(first: Elements, second: Elements): Elements {
  const whole = new Uint32Array(first.length + second.length);
  whole.set(first);
  whole.set(second, first.length);
  return whole;
}
