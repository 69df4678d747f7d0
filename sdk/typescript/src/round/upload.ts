// The upload of a session: an update, the numbers of a survey or an evaluation, or zeros if anything failed.

import type { Messages } from "../core/messages.js";
import type { ReadRows } from "../core/rows.js";
import type { DeviceSession } from "../core/session.js";
import type { RoundSpec, TaskSpec } from "../core/spec.js";
import type { Context } from "../context.js";
import { CopyError, MessageError, MisfitError, RefusedError, RowTagError } from "../errors.js";
import { clipRecords, clipSums, clipUpdate, fitBound, fitNorm, type Update } from "../models/limits.js";
import type { Model, Ratings } from "../models/model.js";
import { beginPrivate, learn, movePrivate, type PrivateState } from "../models/update.js";
import { measure, survey } from "./measure.js";
import { ratingsOf, type Selection } from "./selection.js";

/** The data that a device sends, and those that it keeps from the round. */
export interface Upload {
  readonly messages: Messages;
  readonly private: PrivateState | undefined; // undefined: as it was
  readonly trouble: string | undefined; // the name of an error
}

/** Return the upload, or zeros if anything fails: a missing upload would reveal that. */
export async function makeUpload(
  context: Context, session: DeviceSession, selection: Selection, readRows: () => ReadRows, dense: Float32Array | undefined,
): Promise<Upload> {
  try {
    return await make(context, session, selection, readRows, dense);
  } catch (error) {
    // Any error: a wrong tag, a failing model, non-finite numbers. The owner is told its name.
    if (error instanceof RowTagError || error instanceof MessageError) await context.note("rows");
    return { messages: session.writeNothing(), private: undefined, trouble: (error as Error).name };
  }
}

async function make(
  context: Context, session: DeviceSession, selection: Selection, readRows: () => ReadRows, dense: Float32Array | undefined,
): Promise<Upload> {
  const { round } = session;
  const { task } = round;
  const nothing = { private: undefined, trouble: undefined };
  if (round.kind === "survey") return { ...nothing, messages: session.writeSums(clip(round, survey(selection.values))) };
  const { items, rows } = readRows();
  if (dense === undefined) throw new CopyError("the two servers publish different dense parts");
  if (items.length === 0) return { ...nothing, messages: session.writeNothing() };
  const model = context.modelFor(task);
  const state = await currentPrivate(context, model);
  if (round.kind === "evaluate") {
    const measured = measure(task, model, state, selection, items, rows, dense);
    return { ...nothing, messages: session.writeSums(clip(round, measured)) };
  }
  const learned = learnWithin(context, task, model, state, rows, dense, ratingsOf(selection, items));
  const fitted = fitNorm(learned.update, task);
  return {
    messages: session.write(items, fitBound(fitted.rows, task), fitBound(fitted.dense, task)),
    private: learned.private,
    trouble: learned.update.trouble,
  };
}

/** Return the update within the task's clip, and the private part after the round. */
function learnWithin(
  context: Context, task: TaskSpec, model: Model, state: PrivateState, rows: Float32Array, dense: Float32Array, ratings: Ratings,
): { update: Update; private: PrivateState } {
  const rate = context.rateFor(task);
  if (task.privacy?.unit !== "record") {
    const learned = learn(model, state, rows, dense, ratings, rate);
    return { update: task.privacy === undefined ? learned : clipUpdate(learned, task), private: learned.private };
  }
  const update = clipRecords(model, rows, dense, state.values, ratings, task);
  if (update.trouble !== undefined) return { update, private: state };
  // The private part changes only now, for the next round: it depends on all ratings of this one.
  try {
    return { update, private: movePrivate(model, state, rows, dense, ratings, rate) };
  } catch (error) {
    return { update: { ...update, trouble: (error as Error).name }, private: state };
  }
}

function clip(round: RoundSpec, values: Float64Array): Float64Array {
  const { privacy } = round.task;
  if (privacy === undefined) return values;
  const line = privacy.line(round.kind);
  if (line === undefined) throw new RefusedError("the task has no privacy budget for rounds of this kind");
  return clipSums(values, line);
}

/** Return the private part in the home, or a new one before the first round. */
export async function currentPrivate(context: Context, model: Model): Promise<PrivateState> {
  return (await keptPrivate(context, model)) ?? beginPrivate(model, context.randomBytes);
}

/** Return the private part in the home, or raise if it belongs to another model. */
export async function keptPrivate(context: Context, model: Model): Promise<PrivateState | undefined> {
  const kept = await context.vault.private();
  if (kept !== undefined && kept.values.length !== model.privateSize) {
    throw new MisfitError("the home holds the private part of another model; open it with that model, or call forget()");
  }
  return kept;
}
