// The sizes of a task's norm proof, which follow from its ring, the length of its updates and the bound.

import type { Ring } from "../core/ring.js";
import { SpecError } from "../errors.js";
import { FIELDS, type Field } from "./field.js";

export const PROJECTIONS = 128;
export const ROWS = 16; // c: values of the witness on each polynomial
export const PRODUCT = 2 * ROWS + 1; // values that give the product polynomial

export class NormShape {
  readonly threshold: bigint; // T = 128 · bound²
  readonly slackBits: number;
  readonly witness: number; // bits that the device shares: a carry for each projection, and the slack
  readonly columns: number;
  readonly publicBytes = 96;
  readonly field: Field;

  constructor(
    readonly ring: Ring,
    readonly slots: number,
    readonly width: number,
    readonly dense: number,
    bound: number,
  ) {
    if (!(bound >= 1 && bound <= 2 ** (ring.bits - 5))) {
      throw new SpecError(`norm_bound must be from 1 to 2^${ring.bits - 5} steps of the ring`);
    }
    this.field = FIELDS[ring.bits]!;
    this.threshold = BigInt(PROJECTIONS) * BigInt(bound) ** 2n;
    this.slackBits = this.threshold.toString(2).length;
    this.witness = PROJECTIONS + this.slackBits;
    this.columns = Math.ceil((PROJECTIONS + this.witness) / ROWS);
  }

  /** Return the size of server 0's share of the witness and of the product; server 1's is a stream. */
  get shareBytes(): number {
    return (this.witness + PRODUCT) * this.field.size;
  }
}
