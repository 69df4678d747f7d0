// Private reads: rows of some items from both servers, neither of which learns which. Nothing is written.

import { sizesOf, type Messages } from "../core/messages.js";
import { seededBytes } from "../core/random.js";
import { DeviceSession, SESSION_SEED_BYTES, sessionIdOf } from "../core/session.js";
import type { RoundSpec, TaskSpec } from "../core/spec.js";
import { MessageError, RowTagError, UnavailableError } from "../errors.js";
import type { Exchange } from "../exchange.js";
import { askPermission, decodeRound } from "../round/join.js";
import { carry } from "../round/route.js";

const ATTEMPTS = 3; // to read everything from one version

/** Rows of one version of the model, by item. */
export interface RowsRead {
  readonly round: RoundSpec | undefined; // undefined: nothing was read
  readonly rows: ReadonlyMap<number, Float32Array>;
  readonly wrong: boolean; // an answer failed its check
}

/**
 * Return the rows of different items of the catalogue, all from one version of the model. A wrong answer does not
 * change what is sent: a device that stopped early would tell a server whether it had guessed an item right.
 */
export async function readRows(exchange: Exchange, task: TaskSpec, items: readonly number[]): Promise<RowsRead> {
  for (let attempt = 0; attempt < ATTEMPTS; attempt++) {
    const found = await readAll(exchange, task, items);
    if (found !== undefined) return found;
  }
  throw new UnavailableError("the model changed while its rows were being read; try again");
}

/** Return all rows, or undefined if the version changed in the meantime. */
async function readAll(exchange: Exchange, task: TaskSpec, wanted: readonly number[]): Promise<RowsRead | undefined> {
  const { context } = exchange;
  const rows = new Map<number, Float32Array>();
  let round: RoundSpec | undefined;
  let wrong = false;
  let items = wanted;
  while (items.length > 0) {
    const chunk = items.slice(0, task.capacity);
    const seed = context.randomBytes(SESSION_SEED_BYTES);
    const place = await askPermission(exchange, sessionIdOf(seed), "read");
    const own = decodeRound(place.round, task);
    if (round !== undefined && round.modelVersion !== own.modelVersion) return undefined;
    round = own;
    // The time until keys are sent must not reveal how many items were to be placed.
    const keysAt = context.clock() + context.keysSeconds;
    const session = new DeviceSession(own, chunk, seededBytes(seed));
    await exchange.waitUntil(keysAt);
    const answers = await sendKeys(exchange, session, place.ticket);
    let missing = chunk.slice(0, session.truncated); // after a wrong answer only their number matters
    try {
      const found = session.read(answers);
      found.items.forEach((item, at) => rows.set(item, found.rows.slice(at * task.width, (at + 1) * task.width)));
      missing = chunk.filter((item) => !rows.has(item));
    } catch (error) {
      if (!(error instanceof RowTagError || error instanceof MessageError)) throw error;
      wrong = true;
    }
    items = [...missing, ...items.slice(task.capacity)];
  }
  return { round, rows, wrong };
}

async function sendKeys(exchange: Exchange, session: DeviceSession, ticket: string): Promise<Messages> {
  const { round, id: sessionId } = session;
  const most = sizesOf(round.task).answer;
  const requests = session.keys.map((body, server) =>
    carry({ round, sessionId, ticket }, { server: server as 0 | 1, what: "rows", body, method: "POST", most }),
  );
  const [first, second] = await exchange.askAll(requests);
  return [first!.body, second!.body];
}
