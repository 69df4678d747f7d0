// Rows from a read: their tags, and which of them belong to the device's items.

import { RowTagError } from "../errors.js";
import { Aes } from "./aes.js";
import { rowsOfWords } from "./half.js";
import { PADDING, type Placement } from "./layout.js";
import type { RoundSpec } from "./spec.js";

/** Items and their rows, row by row. */
export interface ReadRows {
  readonly items: Int32Array; // (n,)
  readonly rows: Float32Array; // (n, width)
}

/** Return the 32-bit tag of each row of `width` words: h = H(h ⊕ block) over its bytes, from the item's number. */
export function rowTags(key: Aes, rows: Uint32Array, width: number, items: ArrayLike<number>): Uint32Array {
  const tags = new Uint32Array(items.length);
  const state = new Uint32Array(4);
  for (let row = 0; row < items.length; row++) {
    state.fill(0);
    state[0] = items[row]!;
    for (let block = 0; block < width; block += 4) {
      const count = Math.min(4, width - block);
      for (let at = 0; at < count; at++) state[at] = state[at]! ^ rows[row * width + block + at]!;
      key.hash(state);
    }
    tags[row] = state[0]!;
  }
  return tags;
}

/** Return the items that were placed, and their rows, from the words of both answers; raise if a tag is wrong. */
export function recover(round: RoundSpec, placement: Placement, words: Uint32Array): ReadRows {
  const { rowWords, width, fields } = round.task;
  const slots = [...placement.items.keys()].filter((slot) => placement.items[slot] !== PADDING);
  const items = Int32Array.from(slots, (slot) => placement.items[slot]!);
  const bits = new Uint32Array(slots.length * rowWords);
  const shown = new Uint32Array(slots.length);
  slots.forEach((slot, at) => {
    const start = slot * (rowWords + 1);
    bits.set(words.subarray(start, start + rowWords), at * rowWords);
    shown[at] = words[start + rowWords]!;
  });
  const tags = rowTags(new Aes(round.modelLabel.key("row-tag")), bits, rowWords, items);
  if (tags.some((tag, at) => tag !== shown[at])) {
    throw new RowTagError("a row is altered, stale or not the one asked for; do not train on it, upload zeros");
  }
  return { items, rows: rowsOfWords(bits, width, fields.row_bits) };
}
