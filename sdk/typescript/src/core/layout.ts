// Where items are in a round, and how a device's items are placed in its slots: PadOrTruncIdx of the paper.

import { LayoutError } from "../errors.js";
import type { Label } from "./labels.js";
import { maximumMatching } from "./matching.js";
import { Permutation } from "./permutation.js";
import { drawBelow, sample, type RandomBytes } from "./random.js";

export const PADDING = -1;
const MOST_ITEMS = 2 ** 31 - 1;
const MOST_TABLES = 255;

/** The public shape of a task's rounds. Slot (table · bins + bin) · slotsPerBin + k is the k-th tree over that bin. */
export class Geometry {
  readonly slotsPerBin: number;
  readonly slots: number;
  readonly leaves: number; // of the fullest bin
  readonly depth: number;

  constructor(
    readonly items: number,
    readonly tables: number,
    readonly bins: number,
    capacity: number,
  ) {
    if (!(items >= 1 && items <= MOST_ITEMS)) throw new LayoutError(`a catalogue has between 1 and ${MOST_ITEMS} items`);
    if (!(tables >= 1 && tables <= MOST_TABLES)) throw new LayoutError(`a layout has between 1 and ${MOST_TABLES} tables`);
    if (!(bins >= 1 && bins <= items)) throw new LayoutError("a table has between one bin and one bin for each item");
    if (capacity < 1) throw new LayoutError("the capacity must be at least one item");
    this.slotsPerBin = this.isDirect ? capacity : 1;
    this.slots = tables * bins * this.slotsPerBin;
    this.leaves = Math.ceil(items / bins);
    this.depth = 32 - Math.clz32(this.leaves - 1);
  }

  get isDirect(): boolean {
    return this.tables === 1 && this.bins === 1;
  }

  /** Return how many positions a bin has. */
  binSize(bin: number): number {
    return Math.ceil((this.items - bin) / this.bins);
  }

  /** Return how many positions exist under each slot's tree. */
  leavesBySlot(): Int32Array {
    return Int32Array.from({ length: this.slots }, (_, slot) =>
      this.binSize(Math.floor(slot / this.slotsPerBin) % this.bins),
    );
  }
}

/** One device's items by slot. Private: the servers must never learn it. */
export interface Placement {
  readonly items: Int32Array; // (slots,) the item in each slot, −1 in a padding slot
  readonly leaves: Int32Array; // (slots,) the position that each slot's key points at
  readonly truncated: number; // how many of the device's items could not be placed
}

/** The assignment of items to leaves of slots, for one round. Of more items than `capacity` a device keeps a sample. */
export class Layout {
  readonly #permutations: Permutation[];

  constructor(
    readonly geometry: Geometry,
    readonly capacity: number,
    label: Label,
  ) {
    const tables = geometry.isDirect ? 0 : geometry.tables;
    this.#permutations = Array.from(
      { length: tables },
      (_, table) => new Permutation(geometry.items, label.key("layout", Uint8Array.of(table))),
    );
  }

  /** Return for each item, and each table, the first slot of its bin and its position there. */
  locate(items: ArrayLike<number>): { slots: Int32Array[]; positions: Int32Array[] } {
    const { bins, isDirect, tables } = this.geometry;
    const slots = Array.from({ length: items.length }, () => new Int32Array(tables));
    const positions = Array.from({ length: items.length }, () => new Int32Array(tables));
    if (isDirect) {
      positions.forEach((own, item) => (own[0] = items[item]!));
      return { slots, positions };
    }
    this.#permutations.forEach((permutation, table) => {
      permutation.forward(items).forEach((dealt, item) => {
        slots[item]![table] = table * bins + (dealt % bins);
        positions[item]![table] = Math.floor(dealt / bins);
      });
    });
    return { slots, positions };
  }

  /** Place a device's items, pad or truncate them to the round's shape. */
  place(items: ArrayLike<number>, randomBytes: RandomBytes): Placement {
    this.#check(items);
    // The sample is in random order: which item is placed first must not depend on its number.
    const chosen = sample(items, this.capacity, randomBytes);
    const found = this.geometry.isDirect ? this.#fillDirect(chosen, randomBytes) : this.#fillBins(chosen, randomBytes);
    const placed = found.items.reduce((count, item) => count + (item === PADDING ? 0 : 1), 0);
    return { ...found, truncated: items.length - placed };
  }

  #fillBins(chosen: Int32Array, randomBytes: RandomBytes): { items: Int32Array; leaves: Int32Array } {
    const { geometry } = this;
    const { slots: choices, positions } = this.locate(chosen);
    const slots = maximumMatching(choices, geometry.slots);
    const items = new Int32Array(geometry.slots).fill(PADDING);
    const leaves = drawBelow(geometry.leavesBySlot(), randomBytes);
    slots.forEach((slot, index) => {
      if (slot === PADDING) return;
      items[slot] = chosen[index]!;
      leaves[slot] = positions[index]![Math.floor(slot / geometry.bins)]!;
    });
    return { items, leaves };
  }

  #fillDirect(chosen: Int32Array, randomBytes: RandomBytes): { items: Int32Array; leaves: Int32Array } {
    const { slots: count } = this.geometry;
    const slots = sample(Int32Array.from({ length: count }, (_, at) => at), count, randomBytes);
    const targets = [...chosen, ...this.#padding(chosen, count - chosen.length, randomBytes)];
    const items = new Int32Array(count).fill(PADDING);
    const leaves = new Int32Array(count);
    slots.forEach((slot, index) => {
      if (index < chosen.length) items[slot] = chosen[index]!;
      leaves[slot] = targets[index]!;
    });
    return { items, leaves };
  }

  /** Return random items for the remaining slots: distinct ones not in `chosen` while there are any. */
  #padding(chosen: Int32Array, missing: number, randomBytes: RandomBytes): number[] {
    const { items } = this.geometry;
    const taken = new Set(chosen);
    if (2 * (missing + chosen.length) <= items) {
      while (taken.size < chosen.length + missing) {
        drawBelow(new Float64Array(missing).fill(items), randomBytes).forEach((item) => taken.add(item));
      }
      return [...taken].slice(chosen.length, chosen.length + missing);
    }
    const others = Array.from({ length: items }, (_, item) => item).filter((item) => !taken.has(item));
    const fresh = sample(others, missing, randomBytes);
    const repeats = drawBelow(new Float64Array(missing - fresh.length).fill(items), randomBytes);
    return [...fresh, ...repeats];
  }

  #check(items: ArrayLike<number>): void {
    const seen = new Set<number>();
    for (let at = 0; at < items.length; at++) {
      const item = items[at]!;
      if (!Number.isInteger(item) || item < 0 || item >= this.geometry.items) throw new LayoutError("an item lies outside the catalogue");
      seen.add(item);
    }
    if (seen.size !== items.length) throw new LayoutError("an item was given twice");
  }
}
