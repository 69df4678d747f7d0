// Every test vector of the protocol, positive and negative, against this package. Runs in Node and in a browser.

import { x25519, ed25519 } from "@noble/curves/ed25519.js";

import { Aes } from "../src/core/aes.js";
import { ascii, bytesOf, concat, hex, sha256, u64, unhex, wordsOf, type Bytes } from "../src/core/bytes.js";
import { HALF, halfToNumber, rowsOfWords } from "../src/core/half.js";
import { Label, PURPOSES, type Purpose } from "../src/core/labels.js";
import { denseMark, holdOf, mask, receiptOf, uploadMac } from "../src/core/marks.js";
import {
  ENVELOPE_BYTES, KINDS, decodeAnswer, encodeKeys, encodeSumShare, encodeUpdate, envelope, publicKeysDigest, sizesOf,
  type MessageKind,
} from "../src/core/messages.js";
import { convertGen, expandRoots, leafCorrections, pathGen } from "../src/core/paths.js";
import { Permutation } from "../src/core/permutation.js";
import {
  KEY_ID_BYTES, boxContent, boxInfo, decodeRelayedAnswer, encodeRelayed, keyIdOf, readRelayKey, stepOf,
} from "../src/core/relay.js";
import { Ring, SUM_BOUND, SUM_RING, type Elements } from "../src/core/ring.js";
import { recover, rowTags } from "../src/core/rows.js";
import { DeviceSession } from "../src/core/session.js";
import { RoundSpec, SUM_SIZES, TaskSpec } from "../src/core/spec.js";
import { SecEmbError } from "../src/errors.js";
import {
  accumulate, answer, checkMac, convertEval, decodeKeys, decodeSumShare, decodeUpdate, fingerprint, nodesOf, openContent,
  orderOf, rebuild, splitRelayed, sumShareOf, tagTable, type Held,
} from "./party.js";

// eslint-disable-next-line @typescript-eslint/no-explicit-any
type Case = any;

/** How many cases were checked in each part of each file. */
export type Checked = Record<string, number>;

/** Check the vectors; throw at the first failure. */
export function checkVectors(files: Readonly<Record<string, Case>>): Checked {
  const checked: Checked = {};
  const parts: Record<string, (found: Case) => void> = {
    "labels.cases": checkLabel,
    "prg.sigma": checkSigma,
    "prg.hash": checkHash,
    "prg.stream": checkStream,
    "prg.hide": checkHide,
    "permutation.whole": checkPermutation,
    "permutation.sampled": checkSampledPermutation,
    "ring.encode": checkEncode,
    "ring.refused": checkRefusedNumber,
    "ring.decode": checkDecode,
    "ring.budget": checkBudget,
    "tags.cases": checkTag,
    "paths.cases": checkPaths,
    "convert.cases": checkConvert,
    "specs.tasks": checkTask,
    "session.rounds": checkRound,
    "sums.rounds": checkSums,
    "short.rounds": checkRound,
    "short.halves": checkHalf,
    "short.elements": checkPacked,
    "short.refused": checkRefusedTask,
    "relay.keys": checkRelayKey,
    "relay.sessions": checkRelayed,
  };
  const refusals = new Refusals(files["negative"]);
  parts["negative.accepted"] = parts["negative.refused"] = (one) => refusals.check(one);
  for (const [name, check] of Object.entries(parts)) {
    const [file, part] = name.split(".") as [string, string];
    const cases = files[file]![part] as Case[];
    cases.forEach((one, index) => {
      try {
        check(one);
      } catch (error) {
        throw new Error(`${file}.json, ${part}, case ${index}: ${(error as Error).message}`, { cause: error });
      }
    });
    checked[name] = cases.length;
  }
  return checked;
}

function equal(found: unknown, expected: unknown): void {
  const [one, other] = [JSON.stringify(found), JSON.stringify(expected)];
  if (one !== other) throw new Error(`${one?.slice(0, 200)} is not ${other?.slice(0, 200)}`);
}

function errorOf(action: () => unknown): string | null {
  try {
    action();
  } catch (error) {
    if (error instanceof SecEmbError) return error.name;
    throw error;
  }
  return null;
}

/** Parse a number in C's %a format. */
export function hexFloat(text: string): number {
  if (text === "nan") return NaN;
  if (text.endsWith("inf")) return text.startsWith("-") ? -Infinity : Infinity;
  const found = /^(-?)0x([01])(?:\.([0-9a-f]+))?p([+-]\d+)$/.exec(text)!;
  const digits = found[3] ?? "";
  const mantissa = Number(BigInt(`0x${found[2]}${digits}`)) * 2 ** (-4 * digits.length);
  // In two steps: 2^−1074 times something may need a power that a double cannot represent.
  const power = Number(found[4]);
  const half = Math.trunc(power / 2);
  return (found[1] ? -1 : 1) * mantissa * 2 ** half * 2 ** (power - half);
}

const raw = unhex;
const blocks = (texts: string[]): Uint32Array => wordsOf(concat(...texts.map(raw)));
const each = (words: Uint32Array, size: number): string[] =>
  Array.from({ length: words.length / size }, (_, at) => hex(bytesOf(words.subarray(at * size, (at + 1) * size))));
const plain = (words: ArrayBufferView): string => hex(bytesOf(words));

function checkLabel(one: Case): void {
  const label = new Label(raw(one.task_id), one.number, raw(one.session_id));
  if (!PURPOSES.includes(one.purpose)) throw new Error(`unknown purpose ${one.purpose}`);
  equal(hex(label.derive(one.purpose as Purpose, raw(one.context))), one.derived);
  equal(hex(label.key(one.purpose as Purpose, raw(one.context))), one.key);
}

function checkSigma(one: Case): void {
  const [w0, w1, w2, w3] = wordsOf(raw(one.block)) as unknown as [number, number, number, number];
  equal(plain(Uint32Array.of(w2, w3, w0 ^ w2, w1 ^ w3)), one.result);
}

function checkHash(one: Case): void {
  equal(each(new Aes(raw(one.key)).hash(blocks(one.blocks)), 4), one.results);
}

function checkStream(one: Case): void {
  equal(each(new Aes(raw(one.key)).stream(one.blocks.length, one.first), 4), one.blocks);
}

function checkHide(one: Case): void {
  const ring = new Ring(one.ring_bits);
  const share = ring.hide(raw(one.key), wordsOf(raw(one.values)));
  equal(plain(share), one.share);
  ring.add(share, new Aes(raw(one.key)).words(share.length));
  equal(plain(share), one.values);
}

function checkPermutation(one: Case): void {
  const all = Array.from({ length: one.items }, (_, at) => at);
  equal([...new Permutation(one.items, raw(one.key)).forward(all)], one.forward);
}

function checkSampledPermutation(one: Case): void {
  const permutation = new Permutation(one.items, raw(one.key));
  equal([...permutation.forward(one.values)], one.forward);
  equal([...permutation.forward(one.inverse)], one.values);
  const all = permutation.forward(Array.from({ length: one.items }, (_, at) => at));
  equal(hex(sha256(bytesOf(all))), one.forward_u32_sha256);
}

function checkEncode(one: Case): void {
  const ring = new Ring(one.ring_bits, one.fraction_bits);
  const value = hexFloat(one.value);
  equal(Number(one.decimal), value);
  const element = ring.encode([value], one.bound ?? undefined);
  equal(plain(element), one.element);
  equal(ring.decode(element)[0], hexFloat(one.decoded));
}

function checkRefusedNumber(one: Case): void {
  const ring = new Ring(one.ring_bits, one.fraction_bits);
  equal(errorOf(() => ring.encode([hexFloat(one.value)], one.bound ?? undefined)), one.error);
}

function checkDecode(one: Case): void {
  const found = new Ring(one.ring_bits, one.fraction_bits).decode(wordsOf(raw(one.element)))[0];
  equal(found, hexFloat(one.value));
  equal(found, Number(one.decimal));
}

function checkBudget(one: Case): void {
  equal(errorOf(() => new Ring(one.ring_bits).checkBudget(one.cohort, one.bound, BigInt(one.noise_tail))), one.error);
}

function checkTag(one: Case): void {
  const key = new Label(raw(one.task_id), one.model_version).key("row-tag");
  equal(hex(key), one.key);
  const row = wordsOf(raw(one.row));
  equal(plain(rowTags(new Aes(key), row, row.length, [one.item])), one.tag);
}

/** Check one session's trees, and return the data that each party holds. */
function checkTrees(one: Case): [Held, Held] {
  const label = new Label(raw(one.task_id), one.round, raw(one.session_id));
  equal(hex(label.key("path/left")), one.keys.left);
  equal(hex(label.key("path/right")), one.keys.right);
  equal(hex(label.key("convert/update")), one.keys.convert);
  const slots = one.alpha.length as number;
  const roots = [0, 1].map((party) => {
    const found = expandRoots(label, raw(one.seeds[party]), slots);
    equal(each(found, 4), one.roots[party]);
    return found;
  }) as [Uint32Array, Uint32Array];
  const { words, ends } = pathGen(label, roots, one.alpha, one.depth);
  const levels = Array.from({ length: one.depth }, (_, level) => level);
  equal(levels.map((level) => each(words.left.subarray(4 * slots * level, 4 * slots * (level + 1)), 4)), one.left_words);
  equal(levels.map((level) => [...words.right.subarray(slots * level, slots * (level + 1))]), one.right_bits);
  equal(ends.map((end) => each(end, 4)), one.ends);
  return [0, 1].map((party) => ({ party, label, roots: roots[party]!, words })) as unknown as [Held, Held];
}

function checkPaths(one: Case): void {
  const held = checkTrees(one);
  const { label } = held[0];
  const ends = [blocks(one.ends[0]), blocks(one.ends[1])] as const;
  equal(hex(label.key("check/leaf")), one.leaf_key);
  const corrections = leafCorrections(label, one.alpha, ends);
  equal(each(wordsOf(corrections), 12), one.corrections);
  const leaves = 2 ** one.depth;
  const nodes = held.map((own) => one.alpha.map((_: number, slot: number) => nodesOf(own, slot, one.depth, leaves)));
  if (one.nodes) equal(nodes.map((party) => party.map((slot: Uint32Array) => each(slot, 4))), one.nodes);
  else equal(nodes.map((party) => party.map((slot: Uint32Array) => hex(sha256(bytesOf(slot))))), one.nodes_sha256);
  const round = new Label(label.taskId, label.number);
  const keys = [0, 1].flatMap((half) => {
    const both = round.derive("check/fingerprint", raw(one.check_key), Uint8Array.of(half));
    return [both.slice(0, 16), both.slice(16)];
  });
  equal(keys.map(hex), one.fingerprint_keys);
  if (leaves > 256) return; // computed by servers; a few shallow trees suffice to check the definition
  for (const own of held) equal(hex(fingerprint(own, one.depth, leaves, corrections, keys)), one.fingerprints[own.party]);
}

function checkConvert(one: Case): void {
  const held = checkTrees(one);
  const ring = new Ring(one.ring_bits);
  const payload = wordsOf(raw(one.payload));
  const word = convertGen(held[0].label, [blocks(one.ends[0]), blocks(one.ends[1])], payload, one.width, ring);
  equal(plain(word), one.word);
  const total = ring.zeros(2 * one.width);
  for (const own of held) {
    const nodes = nodesOf(own, 0, 1, 2);
    equal(each(nodes, 4), one.nodes[own.party]);
    const share = convertEval(own, nodes, word, one.width, ring);
    equal(each(share, payload.length), one.shares[own.party]);
    ring.add(total, share);
  }
  const expected = ring.zeros(2 * one.width);
  expected.set(payload, one.alpha[0] * payload.length);
  equal(plain(total), plain(expected));
}

function checkTask(one: Case): void {
  const task = TaskSpec.decode(ascii(one.canonical));
  const { geometry } = task;
  equal(hex(task.id), one.task_id);
  equal([geometry.slots, geometry.slotsPerBin], [one.slots, one.slots_per_bin]);
  equal([geometry.leaves, geometry.depth], [one.leaves, one.depth]);
  equal(Array.from({ length: geometry.bins }, (_, bin) => geometry.binSize(bin)), one.bin_sizes);
  const sizes = sizesOf(task);
  equal([sizes.keys, sizes.answer, ...sizes.update], [one.message_bytes.keys, one.message_bytes.answer, ...one.message_bytes.update]);
  equal([sizes.relayedUpload, sizes.relayedDownload], [one.relayed_bytes.upload, one.relayed_bytes.download]);
  const { privacy } = task;
  if (privacy !== undefined) {
    const noises = { rows: privacy.rows, dense: privacy.dense, survey: privacy.sums("survey"), evaluate: privacy.sums("evaluate") };
    for (const [name, noise] of Object.entries(noises)) {
      const expected = one.noise[name];
      equal(noise && [String(noise.variance), Number(noise.tail)], expected && [expected.variance, expected.tail]);
    }
  } else equal(one.noise ?? {}, {});
  for (const shown of one.rounds) checkRoundSpec(task, shown);
}

function checkRoundSpec(task: TaskSpec, one: Case): void {
  const round = RoundSpec.decode(ascii(one.canonical), task);
  equal([hex(round.digest), round.sumSize], [one.digest, one.sum_size]);
  const { slots, positions } = round.layout.locate(one.items);
  equal(slots.map((own) => [...own]), one.first_slots);
  equal(positions.map((own) => [...own]), one.positions);
  const order = orderOf(round);
  if (one.order) equal(order.map((bin) => [...bin]), one.order);
  else equal(hex(sha256(concat(...order.map(bytesOf)))), one.order_i32_sha256);
}

const openRound = (one: Case): RoundSpec => RoundSpec.decode(ascii(one.round), TaskSpec.decode(ascii(one.task)));
const floats = (texts: string[]): number[] => texts.map(hexFloat);

function checkRound(one: Case): void {
  const round = openRound(one);
  const { task } = round;
  const { ring, rowWords } = task;
  const half = task.fields.row_bits === HALF;
  const order = orderOf(round);
  equal(order.map((bin) => [...bin]), one.order);
  const table = concat(...one.table.map((row: string) => (half ? halved(raw(row), rowWords) : raw(row))));
  const tagged = tagTable(round, wordsOf(table));
  equal(Array.from({ length: task.items }, (_, item) => each(tagged.slice(item * (rowWords + 1) + rowWords, (item + 1) * (rowWords + 1)), 1)[0]), one.tags);
  const shares = [0, 1].map(() => ({ rows: ring.zeros(task.items * task.width), dense: ring.zeros(task.denseSize) }));
  for (const session of one.sessions) {
    const id = raw(session.session_id);
    checkExplicit(round, session);
    // Again as a device, with the same random bytes.
    let drawn = raw(session.drawn);
    const device = new DeviceSession(round, session.items, (count) => {
      const some = drawn.slice(0, count);
      drawn = drawn.slice(count);
      return some;
    });
    equal([hex(device.id), device.truncated], [session.session_id, session.truncated]);
    equal(device.keys.map(hex), session.keys);
    equal(device.holds.map(hex), session.holds);
    const held = device.keys.map((message, party) => decodeKeys(round, id, party, message));
    const answers = held.map((own) => answer(round, id, own, order, tagged)) as [Bytes, Bytes];
    equal(answers.map(hex), session.answers);
    const read = device.read(answers);
    equal([...read.items], session.read_items);
    equal(each(new Uint32Array(read.rows.buffer), task.width), session.read_rows);
    const update = device.write(session.items, session.updates.flatMap(floats), floats(session.dense));
    equal(update.map(hex), session.update);
    equal(device.marks.macs.map(hex), session.proofs);
    held.forEach((own, party) => {
      const said = decodeUpdate(round, id, party, update[party as 0 | 1]);
      accumulate(round, own, said, raw(session.seeds[1]), order, shares[party]!.rows, shares[party]!.dense);
    });
  }
  const total = { rows: ring.zeros(task.items * task.width), dense: ring.zeros(task.denseSize) };
  const written = (sums: typeof total): unknown => ({ dense: hex(ring.pack(sums.dense)), rows: packedRows(ring, sums.rows, task.width) });
  shares.forEach((share, party) => {
    equal(written(share), { dense: one.shares[party].dense, rows: one.shares[party].rows });
    ring.add(total.rows, share.rows);
    ring.add(total.dense, share.dense);
  });
  equal(written(total), { dense: one.sum.dense, rows: one.sum.rows });
}

function packedRows(ring: Ring, rows: Elements, width: number): string[] {
  const length = width * ring.words;
  return Array.from({ length: rows.length / length }, (_, row) => hex(ring.pack(rows.subarray(row * length, (row + 1) * length))));
}

/** Return the words of a row whose numbers are all binary16: dropping bits loses nothing. */
function halved(row: Bytes, words: number): Bytes {
  const found = new Uint16Array(2 * words);
  new Float32Array(wordsOf(row).buffer).forEach((value, at) => (found[at] = numberToHalf(value)));
  return bytesOf(found);
}

function numberToHalf(value: number): number {
  const half = Array.from({ length: 2 ** 15 }, (_, at) => at).find((at) => halfToNumber(at) === Math.abs(value))!;
  return half | (value < 0 || Object.is(value, -0) ? 0x8000 : 0);
}

function checkHalf(one: Case): void {
  const half = wordsOf(concat(raw(one.half), new Uint8Array(2)))[0]!;
  equal(Object.is(halfToNumber(half), hexFloat(one.read)), true);
  equal(halfToNumber(half), rowsOfWords(Uint32Array.of(half), 1, HALF)[0]);
  const wanted = Math.max(-65504, Math.min(65504, hexFloat(one.value)));
  const away = (neighbour: number): number => Math.abs(halfToNumber((half & 0x8000) | neighbour) - wanted);
  const size = half & 0x7fff;
  for (const neighbour of [size - 1, size + 1]) {
    if (neighbour < 0 || neighbour >= 0x7c00) continue; // of zero, and of the largest number
    const [own, other] = [away(size), away(neighbour)];
    equal(own < other || (own === other && size % 2 === 0), true);
  }
}

function checkPacked(one: Case): void {
  const ring = new Ring(24, 12);
  const element = ring.encode([hexFloat(one.value)]);
  equal(hex(ring.pack(element)), one.element);
  equal([...ring.unpack(raw(one.element))], [...element]);
  equal(ring.decode(element)[0], hexFloat(one.decoded));
}

function checkRefusedTask(one: Case): void {
  equal(errorOf(() => TaskSpec.decode(ascii(one.text))), one.error);
}

/** Make a session's messages from seeds, leaves and payload only. */
function checkExplicit(round: RoundSpec, one: Case): void {
  const { task } = round;
  const id = raw(one.session_id);
  const label = round.label(id);
  const seeds = one.seeds.map(raw) as [Bytes, Bytes];
  const roots = seeds.map((seed) => expandRoots(label, seed, task.geometry.slots)) as [Uint32Array, Uint32Array];
  const { words, ends } = pathGen(label, roots, one.slot_leaves, task.geometry.depth);
  const corrections = leafCorrections(label, one.slot_leaves, ends);
  equal([0, 1].map((party) => hex(encodeKeys(round, id, party, seeds[party]!, words, corrections))), one.keys);
  const payload = task.ring.unpack(concat(...one.payload.map(raw)));
  const correction = convertGen(label, ends, payload, task.width, task.ring);
  equal(hex(task.ring.pack(task.ring.encode(floats(one.dense), task.fields.bound))), one.dense_elements);
  const share = task.ring.hide(label.key("stream/dense", seeds[1]), task.ring.unpack(raw(one.dense_elements)));
  if (task.normShape === undefined) {
    equal([0, 1].map((party) => hex(encodeUpdate(round, id, party, correction, share, undefined))), one.update);
  }
  equal(one.keys.map((keys: string) => hex(publicKeysDigest(raw(keys)))), [one.keys_digest, one.keys_digest]);
  one.update.forEach((update: string, party: number) => {
    equal(hex(holdOf(raw(one.keys[party]))), one.holds[party]);
    equal(hex(uploadMac(label, raw(one.holds[party]), raw(update))), one.proofs[party]);
  });
  const placement = { items: Int32Array.from(one.slot_items as number[]), leaves: Int32Array.from(one.slot_leaves as number[]), truncated: one.truncated };
  const answers = [0, 1].map((party) => decodeAnswer(round, id, party, raw(one.answers[party])));
  const read = recover(round, placement, answers[0]!.map((word, at) => word ^ answers[1]![at]!));
  equal([[...read.items], each(new Uint32Array(read.rows.buffer), task.width)], [one.read_items, one.read_rows]);
}

function checkSums(one: Case): void {
  const round = openRound(one);
  equal([round.sumSize, SUM_SIZES[round.kind]], [one.sum_size, one.sum_size]);
  const shares = [0, 1].map(() => SUM_RING.zeros(one.sum_size));
  for (const session of one.sessions) {
    const id = raw(session.session_id);
    const values = SUM_RING.encode(floats(session.values), SUM_BOUND);
    equal(plain(values), session.elements);
    const seed = raw(session.seed);
    const share = SUM_RING.hide(round.label(id).key("stream/sum", seed), values);
    const messages = [encodeSumShare(round, id, 0, bytesOf(share)), encodeSumShare(round, id, 1, seed)];
    equal(messages.map(hex), session.messages);
    messages.forEach((message, party) => SUM_RING.add(shares[party]!, sumShareOf(round, id, party, decodeSumShare(round, id, party, message))));
  }
  equal(shares.map(plain), one.shares);
  SUM_RING.add(shares[0]!, shares[1]!);
  equal(plain(shares[0]!), one.sum);
  equal([...SUM_RING.decode(shares[0]!)], floats(one.totals));
}

function checkRelayKey(one: Case): void {
  const task = TaskSpec.decode(ascii(one.task));
  equal(hex(ed25519.getPublicKey(raw(one.identity))), task.fields.relay_key);
  equal(hex(x25519.getPublicKey(raw(one.private))), one.public);
  const key = readRelayKey(task, raw(one.announcement));
  equal([hex(key.publicKey), key.notBefore, key.notAfter], [one.public, one.not_before, one.not_after]);
  equal(hex(keyIdOf(key.publicKey)), one.key_id);
  const fields = concat(key.publicKey, u64(key.notBefore), u64(key.notAfter));
  const signature = ed25519.sign(concat(ascii("secemb/1 relay key"), task.id, fields), raw(one.identity));
  equal(hex(concat(fields, signature)), one.announcement);
}

function checkRelayed(one: Case): void {
  const round = openRound(one);
  const id = raw(one.session_id);
  const label = round.label(id);
  const [keys, upload] = [one.keys.map(raw), one.upload.map(raw)] as [[Bytes, Bytes], [Bytes, Bytes]];
  equal(keys.map((message) => hex(holdOf(message))), one.holds);
  const macs = upload.map((message, party) => uploadMac(label, raw(one.holds[party]), message));
  equal(macs.map(hex), one.proofs);
  checkRelayedMessage(one, round, KINDS.RELAYED_KEYS, one.relayed_keys, keys, new Uint8Array(0));
  checkRelayedMessage(one, round, KINDS.RELAYED_UPLOAD, one.relayed_upload, upload, macs[1]!);
  const hold = raw(one.holds[1]);
  equal([keys[1], upload[1]].map((message) => hex(receiptOf(label, hold, sha256(message)))), one.receipts);
  const answers = one.answers.map(raw) as [Bytes, Bytes];
  const words = answers.map((message, party) => decodeAnswer(round, id, party, message));
  equal(plain(mask(label, hold, words[1]!)), one.masked);
  equal(hex(denseMark(label, hold, sha256(raw(one.dense)))), one.dense_mark);
  const found = decodeRelayedAnswer(round, id, raw(one.relayed_answer));
  equal([hex(found.receipt), hex(found.confirmed)], [one.receipts[0], one.dense_mark]);
  equal(plain(mask(label, hold, found.words)), plain(words[0]!.map((word, at) => word ^ words[1]![at]!)));
  const own = answers[0].subarray(ENVELOPE_BYTES).map((byte, at) => byte ^ raw(one.masked)[at]!);
  equal(hex(concat(envelope(round, id, KINDS.RELAYED_ANSWER, 0), own, raw(one.receipts[0]), raw(one.dense_mark))), one.relayed_answer);
}

function checkRelayedMessage(one: Case, round: RoundSpec, kind: MessageKind, shown: Case, direct: [Bytes, Bytes], mac: Bytes): void {
  const id = raw(one.session_id);
  const step = stepOf(round, kind);
  const content = boxContent(round, step, direct[1], mac);
  equal([hex(content), hex(boxInfo(round.label(id), step))], [shown.content, shown.info]);
  const key = { publicKey: x25519.getPublicKey(raw(one.private)), notBefore: 0, notAfter: 0 };
  equal(hex(encodeRelayed(round, id, kind, direct[0], content, key, raw(shown.ephemeral))), shown.message);
  const split = splitRelayed(round, id, kind, raw(shown.message));
  equal(hex(split.own), hex(direct[0]));
  const opened = openContent(round, id, step, raw(one.private), split.box);
  equal(rebuild(round, id, step, split.shared, opened).map(hex), [hex(direct[1]), hex(mac)]);
  equal(split.box.length > KEY_ID_BYTES, true);
}

/** Inputs that must be refused, and inputs that must not be. */
class Refusals {
  readonly #task: TaskSpec;
  readonly #rounds: Record<string, RoundSpec>;
  readonly #id: Bytes;

  constructor(readonly file: Case) {
    this.#task = TaskSpec.decode(ascii(file.task));
    this.#rounds = Object.fromEntries(
      Object.entries(file.rounds as Record<string, string>).map(([kind, shown]) => [kind, RoundSpec.decode(ascii(shown), this.#task)]),
    );
    this.#id = raw(file.session_id);
  }

  check(one: Case): void {
    equal(errorOf(() => this.#try(one)), one.error ?? null);
  }

  #try(one: Case): unknown {
    const round = this.#rounds[one.round_kind ?? "train"]!;
    const data = () => ("data" in one ? raw(one.data) : ascii(one.text));
    switch (one.decoder as string) {
      case "keys":
        return decodeKeys(round, this.#id, one.party, data());
      case "answer":
        return decodeAnswer(round, this.#id, one.party, data());
      case "update":
        return decodeUpdate(round, this.#id, one.party, data());
      case "sum_share":
        return decodeSumShare(round, this.#id, one.party, data());
      case "rows":
        return this.#recover(one);
      case "relayed_keys":
        return splitRelayed(round, this.#id, KINDS.RELAYED_KEYS, data());
      case "relayed_upload":
        return splitRelayed(round, this.#id, KINDS.RELAYED_UPLOAD, data());
      case "relayed_answer":
        return decodeRelayedAnswer(this.#rounds["train"]!, this.#id, data());
      case "proof":
        return checkMac(round.label(this.#id), raw(this.file.holds[one.party]), data(), raw(one.proof));
      case "box":
        return this.#open(one, round);
      case "relay_key":
        return readRelayKey(this.#task, data());
      case "task":
        return TaskSpec.decode(data());
      case "round":
        return RoundSpec.decode(data(), this.#task);
      default:
        throw new Error(`unknown decoder ${one.decoder}`);
    }
  }

  #recover(one: Case): unknown {
    const round = this.#rounds["train"]!;
    const words = [0, 1].map((party) => decodeAnswer(round, this.#id, party, raw(one.answers[party])));
    const items = Int32Array.from(this.file.slot_items as number[]);
    const leaves = Int32Array.from(this.file.slot_leaves as number[]);
    return recover(round, { items, leaves, truncated: 0 }, words[0]!.map((word, at) => word ^ words[1]![at]!));
  }

  #open(one: Case, round: RoundSpec): unknown {
    const step = stepOf(round, one.relayed === "relayed_keys" ? KINDS.RELAYED_KEYS : KINDS.RELAYED_UPLOAD);
    const content = openContent(round, this.#id, step, raw(this.file.relay_private), raw(one.sealed));
    const [message, mac] = rebuild(round, this.#id, step, raw(one.public), content);
    if (step !== KINDS.KEYS) checkMac(round.label(this.#id), raw(this.file.holds[1]), message, mac);
    return message;
  }
}
