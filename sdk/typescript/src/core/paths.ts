// Point functions: FSS.PathGen and FSS.ConvertGen of the paper, and the corrections of the leaf hashes.
//
// A node is one block of four words: the seed, with the control bit in bit 0 of the first word.

import { PathSpentError } from "../errors.js";
import { Aes } from "./aes.js";
import { bytesOf, type Bytes } from "./bytes.js";
import type { Label } from "./labels.js";
import type { Elements, Ring } from "./ring.js";

export type Blocks = Uint32Array; // (…, 4)

const HASHES = 3; // blocks of a leaf's hash
export const HASH_BYTES = 16 * HASHES;

/** The public part of a session's keys, the same for both parties. */
export interface CorrectionWords {
  readonly left: Blocks; // (depth, slots, 4): s_CW with t_CW^L in the lowest bit
  readonly right: Uint8Array; // (depth, slots): t_CW^R
}

/** Both parties' nodes at the chosen leaves, for single use: two words from one path reveal their difference. */
export class PathSecret {
  #leaves: readonly [Blocks, Blocks] | undefined;

  constructor(first: Blocks, second: Blocks) {
    this.#leaves = [first, second];
  }

  /** Return the nodes and erase them; raise the second time. */
  spend(): readonly [Blocks, Blocks] {
    if (this.#leaves === undefined) {
      throw new PathSpentError("this path has been used; send the same bytes again, or start a new session");
    }
    const leaves = this.#leaves;
    this.#leaves = undefined;
    return leaves;
  }
}

/** Return the roots behind one party's master seed: its stream with the lowest bits cleared. */
export function expandRoots(label: Label, seed: Bytes, slots: number): Blocks {
  const roots = new Aes(label.key("stream/roots", seed)).stream(slots);
  for (let at = 0; at < roots.length; at += 4) roots[at] = (roots[at]! & ~1) >>> 0;
  return roots;
}

/** FSS.PathGen for all slots of a session: correction words, and both parties' nodes at the leaves `alpha`. */
export function pathGen(
  label: Label,
  roots: readonly [Blocks, Blocks],
  alpha: ArrayLike<number>,
  depth: number,
): { words: CorrectionWords; ends: [Blocks, Blocks] } {
  const slots = alpha.length;
  const [leftKey, rightKey] = [new Aes(label.key("path/left")), new Aes(label.key("path/right"))];
  const left = new Uint32Array(depth * slots * 4);
  const right = new Uint8Array(depth * slots);
  const nodes: [Blocks, Blocks] = [roots[0].slice(), roots[1].slice()];
  for (let at = 0; at < 4 * slots; at += 4) nodes[1][at] = nodes[1][at]! | 1;
  for (let level = 0; level < depth; level++) {
    const seeds = nodes.map(clearBits) as [Blocks, Blocks];
    const lefts = [leftKey.hash(seeds[0].slice()), leftKey.hash(seeds[1].slice())] as const;
    const rights = [rightKey.hash(seeds[0]), rightKey.hash(seeds[1])] as const;
    for (let slot = 0; slot < slots; slot++) {
      const at = 4 * slot;
      const goesRight = (alpha[slot]! >>> (depth - 1 - level)) & 1;
      const [kept, lost] = goesRight ? [rights, lefts] : [lefts, rights];
      const leftBit = (lefts[0][at]! ^ lefts[1][at]! ^ goesRight ^ 1) & 1;
      const rightBit = (rights[0][at]! ^ rights[1][at]! ^ goesRight) & 1;
      const word = left.subarray(4 * (level * slots + slot), 4 * (level * slots + slot) + 4);
      for (let index = 0; index < 4; index++) word[index] = lost[0][at + index]! ^ lost[1][at + index]!;
      word[0] = (word[0]! & ~1) | leftBit;
      right[level * slots + slot] = rightBit;
      const keptBit = goesRight ? rightBit : leftBit;
      for (const party of [0, 1] as const) {
        const node = nodes[party];
        const mask = -(node[at]! & 1);
        node[at] = kept[party][at]! ^ (mask & ((word[0]! & ~1) | keptBit));
        for (let index = 1; index < 4; index++) node[at + index] = kept[party][at + index]! ^ (mask & word[index]!);
      }
    }
  }
  return { words: { left, right }, ends: nodes };
}

/** FSS.PathEval of the first `leaves` leaves of one slot, level by level, without unneeded nodes. */
export function evaluate(
  label: Label,
  party: number,
  root: Blocks,
  words: CorrectionWords,
  place: { slot: number; slots: number; depth: number; leaves: number },
  keys: readonly [Aes, Aes] = [new Aes(label.key("path/left")), new Aes(label.key("path/right"))],
): Blocks {
  const { slot, slots, depth, leaves } = place;
  let nodes: Blocks = root.slice();
  nodes[0] = ((nodes[0]! & ~1) | party) >>> 0;
  for (let level = 0; level < depth; level++) {
    const count = Math.ceil(leaves / 2 ** (depth - level));
    nodes = nodes.subarray(0, 4 * count);
    const seeds = clearBits(nodes);
    const lefts = keys[0].hash(seeds.slice());
    const rights = keys[1].hash(seeds);
    const first = 4 * (level * slots + slot);
    const word = words.left.subarray(first, first + 4);
    const rightFirst = (word[0]! & ~1) | words.right[level * slots + slot]!;
    const below = new Uint32Array(8 * count);
    for (let index = 0; index < count; index++) {
      const mask = -(nodes[4 * index]! & 1);
      below[8 * index] = lefts[4 * index]! ^ (mask & word[0]!);
      below[8 * index + 4] = rights[4 * index]! ^ (mask & rightFirst);
      for (let one = 1; one < 4; one++) {
        below[8 * index + one] = lefts[4 * index + one]! ^ (mask & word[one]!);
        below[8 * index + 4 + one] = rights[4 * index + one]! ^ (mask & word[one]!);
      }
    }
    nodes = below;
  }
  return nodes.subarray(0, 4 * leaves);
}

/** Return Convert(s) of nodes, `width` ring elements each: blocks H(s ⊕ 0), H(s ⊕ 1), …. */
export function convert(key: Aes, nodes: Blocks, width: number, ring: Ring): Elements {
  const count = nodes.length / 4;
  const length = width * ring.words;
  const blocks = Math.ceil(length / 4);
  const pads = new Uint32Array(4 * blocks * count);
  for (let node = 0; node < count; node++) {
    for (let block = 0; block < blocks; block++) {
      const at = 4 * (node * blocks + block);
      pads[at] = (nodes[4 * node]! & ~1) ^ block;
      pads[at + 1] = nodes[4 * node + 1]!;
      pads[at + 2] = nodes[4 * node + 2]!;
      pads[at + 3] = nodes[4 * node + 3]!;
    }
  }
  key.hash(pads);
  if (4 * blocks === length) return pads;
  const found = new Uint32Array(count * length);
  for (let node = 0; node < count; node++) {
    found.set(pads.subarray(4 * node * blocks, 4 * node * blocks + length), node * length);
  }
  return found;
}

/** FSS.ConvertGen: CW = (−1)^t₁ · (β − Convert(s₀) + Convert(s₁)) for all slots. */
export function convertGen(label: Label, ends: readonly [Blocks, Blocks], payload: Elements, width: number, ring: Ring): Elements {
  const key = new Aes(label.key("convert/update"));
  const words = payload.slice();
  ring.subtract(words, convert(key, ends[0], width, ring));
  ring.add(words, convert(key, ends[1], width, ring));
  const length = width * ring.words;
  for (let slot = 0; slot < ends[1].length / 4; slot++) {
    if (ends[1][4 * slot]! & 1) ring.negate(words.subarray(slot * length, (slot + 1) * length));
  }
  return words;
}

/** Return the hash of a node, with its control bit, at a leaf: 12 words. */
export function leafHash(keys: readonly Aes[], node: Blocks): Uint32Array {
  const found = new Uint32Array(4 * HASHES);
  keys.forEach((key, index) => found.set(key.hash(node.slice()), 4 * index));
  return found;
}

/** Return the keys of a leaf's hash. */
export function leafKeys(key: Aes, leaf: number): Aes[] {
  const keys = bytesOf(key.stream(HASHES, HASHES * leaf));
  return Array.from({ length: HASHES }, (_, index) => new Aes(keys.slice(16 * index, 16 * index + 16)));
}

/** Return what makes the leaf hashes of both parties' nodes at `alpha` equal: LH(α, v₀) ⊕ LH(α, v₁), 48 bytes a slot. */
export function leafCorrections(label: Label, alpha: ArrayLike<number>, ends: readonly [Blocks, Blocks]): Bytes {
  const key = new Aes(label.key("check/leaf"));
  const known = new Map<number, Aes[]>();
  const found = new Uint32Array(4 * HASHES * alpha.length);
  for (let slot = 0; slot < alpha.length; slot++) {
    const leaf = alpha[slot]!;
    let keys = known.get(leaf);
    if (keys === undefined) known.set(leaf, (keys = leafKeys(key, leaf)));
    const hashes = ends.map((end) => leafHash(keys, end.subarray(4 * slot, 4 * slot + 4)));
    for (let index = 0; index < 4 * HASHES; index++) found[4 * HASHES * slot + index] = hashes[0]![index]! ^ hashes[1]![index]!;
  }
  return bytesOf(found);
}

function clearBits(nodes: Blocks): Blocks {
  const seeds = nodes.slice();
  for (let at = 0; at < seeds.length; at += 4) seeds[at] = seeds[at]! & ~1;
  return seeds;
}
