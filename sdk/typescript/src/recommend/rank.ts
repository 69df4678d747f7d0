// Recommendations: from the whole catalogue by a copy of the table, or among candidates read privately.

import type { TaskSpec } from "../core/spec.js";
import type { Context } from "../context.js";
import { CopyError, RowTagError } from "../errors.js";
import { Exchange } from "../exchange.js";
import { Scale } from "../models/scale.js";
import { fitPrivate } from "../models/update.js";
import { askServer1, readDense } from "../round/dense.js";
import { findTask } from "../round/join.js";
import { toFit } from "../round/selection.js";
import { currentPrivate } from "../round/upload.js";
import { findCatalogue, type Catalogue } from "./catalogue.js";
import { readRows } from "./private-read.js";
import { newestCopy, type TableFormat } from "./table.js";

const BLOCK = 1024; // rows passed to a model at once

/** A recommended item. Without a catalogue it has no id and no title. */
export interface Recommendation {
  readonly item: number;
  readonly score: number;
  readonly id: string | undefined;
  readonly title: string | undefined;
}

export interface RankOptions {
  readonly includeRated?: boolean;
  readonly titles?: boolean;
}

/** Return the k best items of the catalogue; without a network, from the local copy. */
export async function recommend(context: Context, k: number, options: RankOptions & { table?: TableFormat }): Promise<Recommendation[]> {
  const exchange = new Exchange(context);
  const task = await exchange.noting(() => findTask(exchange));
  const copy = await newestCopy(exchange, task, options.table ?? "int8");
  const model = context.modelFor(task);
  // From everything that the owner has rated or chosen: a new device then does as well as others.
  const ratings = await context.vault.ratings();
  const known = toFit(task, ratings, context.randomBytes);
  const state = fitPrivate(model, await currentPrivate(context, model), copy.rows(known.items), copy.dense, known);
  const scored: [number, number][] = [];
  for (let first = 0; first < task.items; first += BLOCK) {
    const items = Int32Array.from({ length: Math.min(BLOCK, task.items - first) }, (_, at) => first + at);
    const scores = model.scores(copy.rows(items), copy.dense, state.values, items);
    items.forEach((item, at) => {
      if (options.includeRated || !ratings.has(item)) scored.push([item, scores[at]!]);
    });
  }
  return named(exchange, task, best(scored).slice(0, k), options);
}

/** Return candidates with their scores, best first; neither server learns which they are. */
export async function rank(context: Context, candidates: Iterable<number>, options: RankOptions): Promise<Recommendation[]> {
  const exchange = new Exchange(context);
  const task = await exchange.noting(() => findTask(exchange));
  const model = context.modelFor(task);
  const state = await currentPrivate(context, model);
  const items = [...new Set(candidates)].filter((item) => Number.isInteger(item) && item >= 0 && item < task.items).sort((one, other) => one - other);
  const found = await exchange.noting(() => readRows(exchange, task, items));
  if (found.round === undefined) return [];
  const { modelVersion } = found.round;
  const dense = await readDense(exchange, task, modelVersion, askServer1(exchange, task, modelVersion));
  if (found.wrong) {
    // Only now: a wrong answer must not change what is sent.
    await context.note("rows");
    throw new RowTagError("a server sent wrong rows, and none of them are used; try again, and tell the operators");
  }
  if (dense === undefined) throw new CopyError("the two servers publish different dense parts; use neither, and tell both operators");
  const ratings = await context.vault.ratings();
  const read = [...found.rows];
  const rows = new Float32Array(read.length * task.width);
  read.forEach(([, row], at) => rows.set(row, at * task.width));
  const scores = model.scores(rows, dense, state.values, Int32Array.from(read, ([item]) => item));
  const scored = read.map(([item], at) => [item, scores[at]!] as [number, number]);
  // Rated items are read like all others and left out here: how much is read must not depend on the owner.
  return named(exchange, task, best(scored.filter(([item]) => options.includeRated || !ratings.has(item))), options);
}

/** Return the task's catalogue. */
export async function catalogueOf(context: Context): Promise<Catalogue> {
  const exchange = new Exchange(context);
  const task = await exchange.noting(() => findTask(exchange));
  return findCatalogue(exchange, task);
}

/** Return items by score, best first; ties are broken by the lower item number, and NaN scores come last. */
function best(scored: [number, number][]): [number, number][] {
  const value = (score: number) => (Number.isNaN(score) ? -Infinity : score);
  return scored.sort(([item, score], [other, otherScore]) => {
    const difference = value(otherScore) - value(score);
    return difference > 0 ? 1 : difference < 0 ? -1 : item - other;
  });
}

async function named(exchange: Exchange, task: TaskSpec, scored: [number, number][], options: RankOptions): Promise<Recommendation[]> {
  const scale = new Scale(task);
  const catalogue = options.titles !== false && task.fields.catalogue ? await findCatalogue(exchange, task) : undefined;
  return scored.map(([item, score]) => ({
    item,
    score: scale.restore(score),
    id: catalogue?.idOf(item),
    title: catalogue?.titleOf(item),
  }));
}
