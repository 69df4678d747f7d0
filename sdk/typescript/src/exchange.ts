// Requests to the servers: retries with the same bytes, deadlines and budgets, and errors from problem documents.

import { text as read, wordsOf, type Bytes } from "./core/bytes.js";
import type { Context } from "./context.js";
import {
  ConflictError, CopyError, DeviceError, EndedError, EnrolmentError, ExchangeError, GoneError, OutdatedKeyError, PinError,
  RefusedError, RoundFullError, TokenExpiredError, TokenRevokedError, UnavailableError,
} from "./errors.js";
import type { Misconduct } from "./home/detections.js";
import { noTraffic, readEndedRounds, type EndedRounds, type Receipt, type Traffic } from "./home/receipts.js";
import { Lost, type Answer, type Request } from "./transport.js";

const PREFIX = "urn:secemb:problem:";
export const ENDED = "the task has ended: no more rounds will open";
export const LONGEST_WAIT = 86_400; // seconds that a server can make a device wait
const FIRST_PAUSE = 0.5; // seconds; doubled after each failure
const BUSY_PAUSE = 30; // the maximum, for a server that responds that it is unavailable
const AWAY_PAUSE = 900; // the maximum, for a server that does not respond
const POLICY_SECONDS = 60; // until the policy is checked again after a refusal
const TIMED_OUT = "the time for this call has run out";
const ANSWERED = [200, 202, 206, 304];
const LATER = "server {server} cannot do this now";
const NOT_PASSED_ON = "server 0 does not forward to server 1 what this device sent";
const GONE = "the round, the ticket or the model version has ended at server {server}";

type Entry = readonly [new (words: string) => DeviceError, string];
const UNAUTHORIZED: Entry = [EnrolmentError, "server {server} does not know the token; ask its operator for a new one"];
const CONFLICT: Entry = [ConflictError, "server {server} already has a different message for this session"];
const HAS_ENDED: Entry = [GoneError, GONE];
const BUSY: Entry = [UnavailableError, LATER];
const SLOW: Entry = [UnavailableError, "server {server} gave up waiting for the message"];

const BY_SLUG: Readonly<Record<string, Entry>> = {
  unauthorized: UNAUTHORIZED,
  "token-expired": [TokenExpiredError, "the token of this device has expired at server {server}; get its next one from the app's backend"],
  "token-revoked": [TokenRevokedError, "server {server} has revoked the token of this device; ask its operator why"],
  "token-suspended": [UnavailableError, "server {server} has suspended this device for now; ask its operator why"],
  "task-unknown": [PinError, "server {server} does not serve this task; check the task's id and the addresses"],
  "task-ended": [EndedError, ENDED],
  // This device does not follow by itself yet.
  "task-succeeded": [EndedError, "the task goes on as another one; open a new home with the successor's id, and log the ratings again"],
  "task-stopped": [UnavailableError, "server {server} does not run this task now; its operator can start it again"],
  "session-conflict": CONFLICT,
  "round-closed": HAS_ENDED,
  "round-full": [RoundFullError, "the round is full at server {server}"],
  "round-unknown": HAS_ENDED,
  "session-unknown": HAS_ENDED,
  "ticket-refused": HAS_ENDED,
  "model-unknown": HAS_ENDED,
  "catalogue-unavailable": [CopyError, "server {server} does not have the task's catalogue; tell its operator, or pass titles: false"],
  "not-found": [UnavailableError, "server {server} has no such endpoint; check which server is 0 and which is 1"],
  "relay-key-outdated": [OutdatedKeyError, "server 1 no longer uses the key that this was encrypted to"],
  "relay-box": [UnavailableError, NOT_PASSED_ON],
  "relay-altered": [UnavailableError, NOT_PASSED_ON],
  "proof-refused": [UnavailableError, "server {server} does not accept the MAC of this session's upload"],
  "relay-round": [UnavailableError, "the two servers announce different rounds"],
  "peer-refused": BUSY,
  busy: BUSY,
  unavailable: BUSY,
  internal: BUSY,
  "body-slow": SLOW,
};
/** The misconduct that a refusal proves. */
const NOTICED: Readonly<Record<string, Misconduct>> = {
  "relay-box": "not-passed-on",
  "relay-altered": "not-passed-on",
  "relay-round": "round",
  "proof-refused": "proof",
};
/** For proxies and load balancers, which send no problem documents. */
const BY_STATUS: Readonly<Record<number, Entry>> = {
  401: UNAUTHORIZED,
  404: [UnavailableError, "there is no SecEmb server at the address of server {server}; check the address"],
  408: SLOW,
  409: CONFLICT,
  410: HAS_ENDED,
  425: BUSY,
  429: BUSY,
};

// eslint-disable-next-line @typescript-eslint/no-explicit-any
export type Json = Record<string, any>;

/** Return the JSON object in an answer; an empty one if there is none, or if it contains a duplicate name. */
export function jsonObject(body: Bytes): Json {
  try {
    const written = read(body);
    const found: unknown = JSON.parse(written);
    const names = [...written.matchAll(/"(?:[^"\\]|\\.)*"(\s*:)?/g)].filter(([, colon]) => colon !== undefined);
    if (isObject(found) && names.length === countMembers(found)) return found;
  } catch {
    // none
  }
  return {};
}

function isObject(value: unknown): value is Json {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** Count the members of a value recursively: `JSON.parse` keeps only the last of duplicate names. */
function countMembers(value: unknown): number {
  if (typeof value !== "object" || value === null) return 0;
  const inner = Object.values(value).reduce<number>((sum, one) => sum + countMembers(one), 0);
  return inner + (Array.isArray(value) ? 0 : Object.keys(value).length);
}

/** Return the seconds of a Retry-After header; a date is ignored, because this device's clock may be wrong. */
export function retryAfter(answer: Answer): number | undefined {
  const text = answer.headers.get("retry-after") ?? "";
  return /^\d{1,9}$/.test(text) ? Math.min(Number(text), LONGEST_WAIT) : undefined;
}

/** Return the time of the server's clock, in seconds since 1970. */
export function serverTime(answer: Answer): number | undefined {
  const time = Date.parse(answer.headers.get("date") ?? "") / 1000;
  return Number.isNaN(time) ? undefined : time;
}

/** Return the reason why an answer fails its check. */
export type Accept = (request: Request, answer: Answer) => string | undefined;

/** One call of a device: the requests of its steps, their time limit, and the bytes transferred. */
export class Exchange {
  traffic: Traffic = noTraffic();
  /** The round for which this device has drawn its participation. */
  tossed: number | undefined;
  #ends: number;
  #endedRounds: EndedRounds | undefined;

  constructor(
    readonly context: Context,
    readonly mostBytes?: number,
  ) {
    this.#ends = context.clock() + context.policy.seconds;
  }

  /** Remember how rounds ended, from an answer that is the same for every device. */
  hearOfRounds(found: unknown): void {
    this.#endedRounds = readEndedRounds(found) ?? this.#endedRounds;
  }

  /**
   * Record the outcome of earlier rounds; return the receipts that this updates. Only at the end of a call:
   * between two requests, the time it takes would reveal to a server who was in a round.
   */
  async settle(): Promise<Receipt[]> {
    return this.#endedRounds === undefined ? [] : this.context.vault.settle(this.#endedRounds);
  }

  endWithin(seconds: number): void {
    this.#ends = Math.min(this.#ends, this.context.clock() + seconds);
  }

  /** Wait until the clock shows `time`; raise at once if the call would time out before. */
  async waitUntil(time: number): Promise<void> {
    const seconds = time - this.context.clock();
    if (seconds <= 0) return;
    if (time >= this.#ends) throw new UnavailableError(TIMED_OUT, Math.max(seconds, FIRST_PAUSE));
    await this.context.parts.sleep(seconds);
  }

  /** Run the steps of a whole call; record misconduct, and remember which servers do not respond. */
  async noting<Result>(steps: () => Promise<Result>): Promise<Result> {
    try {
      return await steps();
    } catch (error) {
      if (error instanceof DeviceError && error.noticed !== undefined) await this.context.note(error.noticed);
      throw error;
    } finally {
      await this.context.vault.keepFailures().catch(() => undefined);
    }
  }

  /** Send a request, retrying until it is answered; raise the error of a refusal. */
  async ask(request: Request, accept?: Accept): Promise<Answer> {
    return (await this.askAll([request], accept))[0]!;
  }

  /** Send requests concurrently, retrying each until it is answered; raise the error of the first refusal. */
  async askAll(requests: readonly Request[], accept: Accept = () => undefined): Promise<Answer[]> {
    const answers = new Map<Request, Answer>();
    for (;;) {
      const waiting = requests.filter((one) => !answers.has(one));
      const found = await this.#send(waiting);
      const troubles: UnavailableError[] = [];
      const failed = new Set<0 | 1>();
      for (const [at, request] of waiting.entries()) {
        const one = found[at]!;
        const trouble = troubleOf(request, one, accept);
        if (trouble instanceof UnavailableError) {
          troubles.push(trouble);
          failed.add(request.server);
          if (trouble.noticed !== undefined) await this.context.note(trouble.noticed);
        } else if (trouble !== undefined) {
          throw trouble;
        } else {
          answers.set(request, one as Answer);
        }
      }
      const { failures } = this.context.vault;
      for (const { server } of waiting) failures[server] = failed.has(server) ? failures[server] + 1 : 0;
      if (troubles.length === 0) return requests.map((one) => answers.get(one)!);
      await this.#backOff(troubles, Math.max(...[...failed].map((server) => failures[server])));
    }
  }

  async #send(requests: readonly Request[]): Promise<(Answer | Lost)[]> {
    if (!this.context.policy.allowed()) throw new UnavailableError("the policy does not allow requests now", POLICY_SECONDS);
    const left = this.#ends - this.context.clock();
    if (left <= 0) throw new UnavailableError(TIMED_OUT, FIRST_PAUSE);
    const { sent, received } = this.traffic;
    const moved = requests.reduce((sum, one) => sum + (one.body?.length ?? 0), sent[0] + sent[1] + received[0] + received[1]);
    if (this.mostBytes !== undefined && moved > this.mostBytes) throw new RefusedError("a retry would move more bytes than the policy allows");
    const found = await Promise.all(
      requests.map((one) => this.context.parts.send({ ...one, seconds: Math.min(one.seconds ?? 60, left) })),
    );
    requests.forEach((request, at) => {
      const one = found[at]!;
      sent[request.server] += request.body?.length ?? 0; // it is unknown how much of a lost one was sent
      received[request.server] += one instanceof Lost ? one.received : one.body.length;
    });
    return found;
  }

  /**
   * Wait as long as the servers ask, plus an exponential delay with jitter: devices must not retry together. If it
   * exceeds what remains of this call, the caller is told when to call again.
   */
  async #backOff(troubles: readonly UnavailableError[], failures: number): Promise<void> {
    const asked = Math.max(...troubles.map((one) => one.seconds ?? 0));
    const longest = troubles.some((one) => one.seconds === undefined) ? AWAY_PAUSE : BUSY_PAUSE;
    const ceiling = Math.min(longest, FIRST_PAUSE * 2 ** Math.min(failures - 1, 20));
    const chance = wordsOf(this.context.randomBytes(4))[0]! / 2 ** 32;
    const wait = asked + (ceiling * (1 + chance)) / 2;
    if (this.context.clock() + wait >= this.#ends) throw new UnavailableError(troubles[0]!.message, wait);
    await this.context.parts.sleep(wait);
  }
}

function troubleOf(request: Request, found: Answer | Lost, accept: Accept): DeviceError | undefined {
  if (found instanceof Lost) return new UnavailableError(`server ${request.server} does not answer (${found.reason})`);
  if (!ANSWERED.includes(found.status)) return errorFor(request.server, found);
  const wrong = accept(request, found);
  return wrong === undefined ? undefined : new UnavailableError(wrong, undefined, "receipt");
}

/** Return the error for an answer whose status is neither 2xx nor 304. */
export function errorFor(server: number, answer: Answer): DeviceError {
  const isProblem = (answer.headers.get("content-type") ?? "").startsWith("application/problem+json");
  const document = isProblem ? jsonObject(answer.body) : {};
  const slug = typeof document["type"] === "string" ? document["type"].replace(PREFIX, "") : "";
  const [Kind, words] = entryOf(slug, answer.status);
  // Server 0 can claim this about any message, so the text says which server is accused, and by which.
  const other = server === 0 && document["refused_by"] === 1;
  const said = words.replace("{server}", other ? "1 (as server 0 says)" : String(server));
  if (!(Kind.prototype instanceof ExchangeError)) return new Kind(said);
  // This device sends well-formed messages, so server 1 received something different.
  const noticed = other && slug.startsWith("message-") ? "not-passed-on" : NOTICED[slug];
  const Exchanged = Kind as unknown as new (words: string, seconds?: number, noticed?: Misconduct) => ExchangeError;
  return new Exchanged(said, retryAfter(answer), noticed);
}

function entryOf(slug: string, status: number): Entry {
  if (Object.hasOwn(BY_SLUG, slug)) return BY_SLUG[slug]!;
  if (Object.hasOwn(BY_STATUS, status)) return BY_STATUS[status]!;
  if (status >= 500) return BUSY;
  if (status < 400) return [UnavailableError, "server {server} redirects; give its final address"];
  return [RefusedError, "server {server} refuses the message; update this app or the server"];
}
