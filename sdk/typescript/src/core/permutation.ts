// The public permutation that assigns a catalogue to bins: a Feistel network on a rectangle of a · c ≥ m places.

import { Aes } from "./aes.js";
import type { Bytes } from "./bytes.js";

const ROUNDS = 6;

export class Permutation {
  readonly rows: number; // a
  readonly columns: number; // c
  readonly #key: Aes;

  constructor(
    readonly items: number,
    key: Bytes,
  ) {
    this.rows = Math.ceil(Math.sqrt(items)); // exact: items are below 2^31
    this.columns = Math.ceil(items / this.rows);
    this.#key = new Aes(key);
  }

  /** Return where each item goes. */
  forward(values: ArrayLike<number>): Int32Array {
    const found = new Int32Array(values.length);
    let places = Array.from({ length: values.length }, (_, at) => at);
    const current = Float64Array.from(values);
    while (places.length > 0) {
      const turned = this.#turn(Float64Array.from(places, (at) => current[at]!));
      places.forEach((at, index) => (current[at] = turned[index]!));
      places = places.filter((at) => current[at]! >= this.items); // outside the catalogue: apply it again
    }
    found.set(current);
    return found;
  }

  #turn(values: Float64Array): Float64Array {
    const left = values.map((value) => Math.floor(value / this.columns));
    const right = values.map((value) => value % this.columns);
    for (let round = 0; round < ROUNDS; round++) {
      const [own, other, modulus] = round % 2 === 0 ? [left, right, this.rows] : [right, left, this.columns];
      const shift = this.shift(round, other);
      for (let at = 0; at < own.length; at++) own[at] = (own[at]! + shift[at]!) % modulus;
    }
    return values.map((_, at) => left[at]! * this.columns + right[at]!);
  }

  /** Return F_round at these positions: the reduced words of the round's stream. */
  shift(round: number, places: Float64Array): Float64Array {
    const even = round % 2 === 0;
    const [size, modulus] = even ? [this.columns, this.rows] : [this.rows, this.columns];
    const start = Math.ceil(round / 2) * this.columns + Math.floor(round / 2) * this.rows;
    if (places.length >= size) {
      const first = Math.floor(start / 4);
      const words = this.#key.stream(Math.ceil((start + size) / 4) - first, first);
      return places.map((place) => words[start - 4 * first + place]! % modulus);
    }
    // A device has few items in a catalogue of any size, so it computes only the words that it needs.
    return places.map((place) => this.#key.stream(1, Math.floor((start + place) / 4))[(start + place) % 4]! % modulus);
  }
}
