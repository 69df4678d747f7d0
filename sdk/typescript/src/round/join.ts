// Before a session: the task and the round that both servers announce, and a place in the round.

import { hmac } from "@noble/hashes/hmac.js";
import { sha256 as hash } from "@noble/hashes/sha2.js";

import { ascii, concat, hex, isHex, sha256, wordsOf, type Bytes } from "../core/bytes.js";
import { decimal } from "../core/canonical.js";
import { RoundSpec, TaskSpec } from "../core/spec.js";
import type { Context } from "../context.js";
import { EndedError, ExchangeError, PinError, RefusedError, SecEmbError, UnavailableError } from "../errors.js";
import { ENDED, LONGEST_WAIT, jsonObject, retryAfter, serverTime, type Exchange, type Json } from "../exchange.js";
import type { Answer, Request } from "../transport.js";

export const BETWEEN_ROUNDS = 2; // seconds until there may be another round
const ONCE = 5; // seconds until a round that this device took part in may have ended
const MOST = 1 << 16; // bytes of a task with its round, or of a ticket
const LONGEST_TICKET = 128;
const LATEST = 1e12; // seconds since 1970, later than any deadline
const DOMAIN = ascii("secemb/1 takes part");
const PAUSED = "the operators have paused the task";
const NO_ROUND = { join: "no round is open to join", read: "no round has opened yet to read in" };

/** The version of the model that both servers have announced, and its digest. */
export interface Published {
  readonly version: number;
  readonly digest: string;
}

/** Server 0's permission to take part in a round or to read in it. */
export interface Permission {
  readonly round: string; // canonical form, not yet decoded
  readonly ticket: string;
  readonly relay: string | undefined; // the announcement of server 1's relay key
}

/** Return the task: from the home, or the first time from the servers. */
export async function findTask(exchange: Exchange): Promise<TaskSpec> {
  const { context } = exchange;
  const known = await context.vault.task();
  if (known !== undefined) return known;
  // Its digest is the pinned id, so either server can send it. Both are asked if both are needed later.
  const servers = context.parts.transport === "direct" ? ([0, 1] as const) : ([0] as const);
  const answers = await exchange.askAll(servers.map((server) => askTask(context, server)));
  const views = answers.map((answer, server) => readView(context, server, answer));
  const task = decodeTask(views[0]!["task"] as string);
  if (servers.length === 1 && context.transportFor(task) !== "relayed") {
    readView(context, 1, await exchange.ask(askTask(context, 1)));
  }
  await context.vault.keepTask(task);
  return task;
}

/** Return the version of the model that both servers announce. */
export async function findPublished(exchange: Exchange): Promise<Published> {
  const { context } = exchange;
  const answers = await exchange.askAll(([0, 1] as const).map((server) => askTask(context, server)));
  const [first, second] = answers.map((answer, server) => readView(context, server, answer)) as [Json, Json];
  const { model_version: version, model_digest: digest } = first;
  if (version !== second["model_version"] || digest !== second["model_digest"] || !Number.isSafeInteger(version)) {
    throw new UnavailableError("the two servers announce different models", BETWEEN_ROUNDS, "model");
  }
  if (!isHex(digest, 32)) throw new RefusedError("the servers announce a model that this app cannot read; update the app");
  return { version: version as number, digest };
}

/** Return the round that a server announces; raise if there is none, or if this device may not take part. */
export async function findRound(exchange: Exchange, task: TaskSpec, seed: Bytes, server: 0 | 1): Promise<string> {
  const announced = await announcedRound(exchange, server);
  if (announced === undefined) throw await noRound(exchange);
  await checkPrivacy(exchange, decodeRound(announced, task), seed);
  return announced;
}

/** Return the round that a server announces, if there is one. */
export async function announcedRound(exchange: Exchange, server: 0 | 1): Promise<string | undefined> {
  const view = readView(exchange.context, server, await exchange.ask(askTask(exchange.context, server)));
  return view["round"] === null || view["round"] === undefined ? undefined : textOf(view, "round");
}

/** Return the error for a missing round: server 0 knows when the next one opens, and whether there will be one. */
async function noRound(exchange: Exchange): Promise<ExchangeError> {
  const view = readView(exchange.context, 0, await exchange.ask(askTask(exchange.context, 0)));
  exchange.hearOfRounds(view["rounds"]);
  if (view["ended"] === true) return new EndedError(ENDED);
  const asked: unknown = view["retry_after"];
  const seconds = typeof asked === "number" && asked > 0 && asked <= LONGEST_WAIT ? asked : BETWEEN_ROUNDS;
  return new UnavailableError(view["paused"] === true ? PAUSED : "no round is open", seconds);
}

/** Ask server 0 for the task again, if possible, because no more tickets will tell how the last rounds ended. */
export async function askHowRoundsEnded(exchange: Exchange): Promise<void> {
  try {
    const answer = await exchange.ask(askTask(exchange.context, 0));
    exchange.hearOfRounds(jsonObject(answer.body)["rounds"]);
  } catch (error) {
    if (!(error instanceof ExchangeError)) throw error;
  }
}

/**
 * Raise unless the task's privacy guarantee lets this device take part in a round. In a task with a guarantee a
 * device takes part in a round at most once. If it assumes random sampling, participation is drawn for each round.
 */
export async function checkPrivacy(exchange: Exchange, round: RoundSpec, seed: Bytes): Promise<void> {
  const { task } = round;
  const { vault } = exchange.context;
  if (task.privacy === undefined) return;
  const newest = await vault.newestRound();
  if (newest === undefined) await vault.enterRound(round.number); // it may have been this one; later ones are known again
  if (newest === undefined || round.number <= newest) {
    throw new UnavailableError("a device takes part in a round once, and this one may have done so", ONCE);
  }
  if (task.privacy.samplingRate) exchange.tossed = round.number;
  if (!takesPart(task, round.encode(), seed)) {
    throw new UnavailableError("this device was not sampled for the round", task.fields.join_seconds);
  }
}

/** Skip the round that was drawn for already: another seed must not draw again. */
export async function leaveOut(exchange: Exchange): Promise<void> {
  if (exchange.tossed !== undefined) await exchange.context.vault.enterRound(exchange.tossed);
}

/** Tell whether the session of this seed takes part in a round. */
export function takesPart(task: TaskSpec, round: Bytes, seed: Bytes): boolean {
  if (!task.privacy?.samplingRate) return true;
  const [low, high] = wordsOf(hmac(hash, seed, concat(DOMAIN, round)).slice(0, 8)) as unknown as [number, number];
  return high * 2 ** 32 + low < decimal(task.privacy.samplingRate) * 2 ** 64;
}

/** Ask server 0 for a place in a round: to take part, or to read. */
export async function askPermission(exchange: Exchange, sessionId: Bytes, purpose: "join" | "read"): Promise<Permission> {
  const { taskId, parts } = exchange.context;
  const headers: Record<string, string> = { "content-type": "application/json" };
  if (parts.token !== undefined) headers["authorization"] = `Bearer ${parts.token}`;
  const body = ascii(JSON.stringify({ session: hex(sessionId) }));
  const answer = await exchange.ask({ server: 0, method: "POST", path: `/v1/tasks/${taskId}/${purpose}`, headers, body, most: MOST });
  const found = readAnswer(0, answer);
  exchange.hearOfRounds(found["rounds"]);
  if (answer.status !== 200) {
    throw new UnavailableError(found["paused"] === true ? PAUSED : NO_ROUND[purpose], retryAfter(answer) || BETWEEN_ROUNDS);
  }
  heedDeadline(exchange, answer, found);
  return {
    round: textOf(found, "round"),
    ticket: textOf(found, "ticket", LONGEST_TICKET),
    relay: typeof found["relay"] === "string" ? found["relay"] : undefined,
  };
}

/** Return a round that a server announces. */
export function decodeRound(text: string, task: TaskSpec): RoundSpec {
  try {
    return RoundSpec.decode(ascii(text), task);
  } catch (error) {
    if (!(error instanceof SecEmbError)) throw error;
    throw new RefusedError("the servers announce a round that this app cannot read; update the app");
  }
}

function askTask(context: Context, server: 0 | 1): Request {
  return { server, method: "GET", path: `/v1/tasks/${context.taskId}`, most: MOST };
}

/** Return a server's view of the task, if it is the pinned one. */
function readView(context: Context, server: number, answer: Answer): Json {
  const view = readAnswer(server, answer);
  if (hex(sha256(ascii(textOf(view, "task")))) !== context.taskId) {
    throw new PinError(`server ${server} announces another task than this device was opened with; nothing was sent`, "task");
  }
  return view;
}

function readAnswer(server: number, answer: Answer): Json {
  const found = jsonObject(answer.body);
  if (Object.keys(found).length === 0 && answer.status === 200) {
    throw new UnavailableError(`there is no SecEmb server at the address of server ${server}; check the address`);
  }
  return found;
}

/** Return a text that is valid in a header: it may be stored and sent repeatedly. */
function textOf(found: Json, name: string, most = MOST): string {
  const text: unknown = found[name];
  if (typeof text !== "string" || text.length > most || !/^[\x20-\x7e]*$/.test(text)) {
    throw new UnavailableError("a server's answer cannot be read by this app; update the app");
  }
  return text;
}

function decodeTask(text: string): TaskSpec {
  try {
    return TaskSpec.decode(ascii(text));
  } catch (error) {
    if (!(error instanceof SecEmbError)) throw error;
    throw new RefusedError("this app cannot take part in the task; update the app");
  }
}

/** End before the round does, by the server's clock, because this device's may be wrong. */
function heedDeadline(exchange: Exchange, answer: Answer, found: Json): void {
  const now = serverTime(answer);
  const until: unknown = found["upload_until"];
  if (now !== undefined && typeof until === "number" && Math.abs(until) < LATEST) exchange.endWithin(until - now);
}
