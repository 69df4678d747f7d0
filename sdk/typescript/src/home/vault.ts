// The data that a device keeps in its home, and how they change. Every change is durable when its method returns.

import { hex, sha256, type Bytes } from "../core/bytes.js";
import type { RandomBytes } from "../core/random.js";
import type { RelayKey } from "../core/relay.js";
import { TaskSpec } from "../core/spec.js";
import { DamagedError, ForgottenError, PinError, RatingError, SecEmbError } from "../errors.js";
import type { PrivateState } from "../models/update.js";
import { withOneMore, type Detection, type Misconduct } from "./detections.js";
import type { RecordCipher } from "./encryption.js";
import { settleReceipt, type EndedRounds, type Receipt } from "./receipts.js";
import {
  decodePrivate, decodeRecord, decodeStage, encodePrivate, encodeRecord, encodeStage, type Fields, type Stage, type StoredRecord,
} from "./records.js";
import type { Storage } from "./storage.js";

const LARGEST_ITEM = 2 ** 31;
const LARGEST_RATING = 3e38;
const PRIVATE_NAMES = ["session", "private", "ratings"];
const REPORT_NAMES = ["receipts", "detections"];

export class Vault {
  /** The number of consecutive failures of each server. */
  readonly failures: [number, number] = [0, 0];
  /** How often everything was erased; a round that began earlier writes nothing afterwards. */
  forgotten = 0;
  #ratings: Map<number, number> | undefined;
  #holdOutKey: Bytes | undefined;
  #last: Promise<unknown> = Promise.resolve();

  constructor(
    readonly storage: Storage,
    readonly cipher: RecordCipher,
  ) {}

  /** Bind this home to a task and its servers, or check that it is bound to them. */
  async bind(task: string, servers: readonly string[], randomBytes: RandomBytes): Promise<void> {
    const found = await this.#read("identity");
    if (found === undefined) {
      if ((await this.#read("rounds")) === undefined) await this.#keepNewest(-1);
      this.#holdOutKey = randomBytes(32);
      await this.#write("identity", { fields: { task, servers }, parts: { "hold-out": this.#holdOutKey } });
      return;
    }
    if (found.fields["task"] !== task) throw new PinError("this home belongs to another task; use a separate home for each task");
    if (String(found.fields["servers"]) !== String(servers)) {
      throw new PinError("this home was opened with other servers; give those, or use a new home");
    }
    this.#holdOutKey = found.parts["hold-out"];
    const failures = (await this.#readCopy("failures"))?.fields;
    if (failures !== undefined) this.failures.splice(0, 2, Number(failures["0"]), Number(failures["1"]));
  }

  get holdOutKey(): Bytes {
    if (this.#holdOutKey === undefined) throw new DamagedError("the home has no identity; use a new home");
    return this.#holdOutKey;
  }

  async task(): Promise<TaskSpec | undefined> {
    const found = await this.#readCopy("task");
    try {
      return found && TaskSpec.decode(found.parts["task"]!);
    } catch (error) {
      if (error instanceof SecEmbError) return undefined; // of another version of the SDK
      throw error;
    }
  }

  async keepTask(task: TaskSpec): Promise<void> {
    await this.#write("task", { fields: {}, parts: { task: task.encode() } });
  }

  // Ratings.

  async ratings(): Promise<ReadonlyMap<number, number>> {
    return (this.#ratings ??= new Map((await this.#read("ratings"))?.fields["ratings"] as [number, number][] | undefined));
  }

  /** Add ratings; the last rating of an item counts. */
  log(ratings: Iterable<readonly [number, number]>): Promise<void> {
    const checked = [...ratings].map(([item, rating]) => [checkItem(item), checkRating(rating)] as const);
    return this.#alone(async () => {
      const merged = new Map([...(await this.ratings()), ...checked]);
      await this.#write("ratings", { fields: { ratings: [...merged] }, parts: {} });
      this.#ratings = merged;
    });
  }

  /** Remove the rating of an item, if there is one. */
  unlog(item: number): Promise<void> {
    return this.#alone(async () => {
      const left = new Map(await this.ratings());
      left.delete(item);
      await this.#write("ratings", { fields: { ratings: [...left] }, parts: {} });
      this.#ratings = left;
    });
  }

  // The private part and the session that changes it.

  async private(): Promise<PrivateState | undefined> {
    const found = await this.#read("private");
    return found && decodePrivate(found);
  }

  async session(): Promise<Stage | undefined> {
    const found = await this.#read("session");
    return found && decodeStage(found);
  }

  /** Remove a session that cannot be continued. This is always safe: it will not be sent again. */
  async dropSession(): Promise<void> {
    await this.storage.remove("session");
  }

  /** Store the stage of the session in this round, unless the owner has erased everything in the meantime. */
  keepSession(stage: Stage, forgotten: number, round?: number): Promise<void> {
    return this.#alone(async () => {
      this.#checkRemembers(forgotten);
      // First, so that a device killed in between misses the round rather than taking part in it twice.
      if (round !== undefined) await this.#enterRound(round);
      const newest = await this.newestRound();
      const place = await this.storage.place(stage.stage === "intent");
      if (stage.stage === "intent" && newest !== undefined) await this.#keepNewest(newest); // it moves to the new place
      const { fields, parts } = encodeStage(stage);
      await this.#write("session", { fields: { ...fields, place }, parts });
    });
  }

  /** Tell whether the session began in another place, so that this home is a copy or was restored. */
  async sessionIsElsewhere(): Promise<boolean> {
    const found = await this.#read("session");
    return found !== undefined && found.fields["place"] !== (await this.storage.place(false));
  }

  /** Record that this device took part in a round. */
  enterRound(number: number): Promise<void> {
    return this.#alone(() => this.#enterRound(number));
  }

  /** Return the newest round that this device took part in: −1 if none, undefined if unknown. */
  async newestRound(): Promise<number | undefined> {
    const found = await this.#readCopy("rounds");
    const here = found !== undefined && found.fields["place"] === (await this.storage.place(false));
    return here ? (found.fields["newest"] as number) : undefined;
  }

  /** Store the results of a session, and end it. This is idempotent. */
  endSession(receipt: Receipt, at: number, state: PrivateState | undefined, forgotten: number): Promise<void> {
    return this.#alone(async () => {
      this.#checkRemembers(forgotten);
      const receipts = await this.receipts();
      // First, because it records whether both servers have acknowledged, so that they are not asked again.
      if (receipts[at] === undefined) await this.#keepReceipts([...receipts, receipt]);
      if (state !== undefined) await this.#write("private", encodePrivate(state));
      await this.storage.remove("session");
    });
  }

  // Receipts and detections.

  async receipts(): Promise<Receipt[]> {
    return ((await this.#read("receipts"))?.fields["receipts"] as Receipt[] | undefined) ?? [];
  }

  /** Record the outcome of the rounds of receipts; return the receipts that this updates. */
  settle(rounds: EndedRounds): Promise<Receipt[]> {
    return this.#alone(async () => {
      const before = await this.receipts();
      const after = before.map((one) => settleReceipt(one, rounds));
      const news = after.filter((one, at) => one !== before[at]);
      if (news.length > 0) await this.#keepReceipts(after);
      return news;
    });
  }

  async detections(): Promise<Detection[]> {
    return ((await this.#readCopy("detections"))?.fields["detections"] as Detection[] | undefined) ?? [];
  }

  note(misconduct: Misconduct, date: string): Promise<void> {
    return this.#alone(async () => {
      const detections = withOneMore(await this.detections(), misconduct, date);
      await this.#write("detections", { fields: { detections }, parts: {} });
    });
  }

  /** Store which servers do not respond, for the next start. */
  async keepFailures(): Promise<void> {
    const stored = (await this.#readCopy("failures"))?.fields ?? { 0: 0, 1: 0 };
    if (stored["0"] !== this.failures[0] || stored["1"] !== this.failures[1]) {
      await this.#write("failures", { fields: { 0: this.failures[0], 1: this.failures[1] }, parts: {} });
    }
  }

  // The relay.

  async relayKey(): Promise<RelayKey | undefined> {
    const found = await this.#readCopy("relay");
    return found && { publicKey: found.parts["public"]!, ...(found.fields as { notBefore: number; notAfter: number }) };
  }

  /** Store the relay key if it is the newest; tell whether it is not older than the stored one. */
  seeRelayKey(key: RelayKey): Promise<boolean> {
    return this.#alone(async () => {
      const newest = await this.relayKey();
      if (newest === undefined || key.notBefore > newest.notBefore) {
        const fields = { notBefore: key.notBefore, notAfter: key.notAfter };
        await this.#write("relay", { fields, parts: { public: key.publicKey } });
      }
      return newest === undefined || key.notBefore >= newest.notBefore;
    });
  }

  // Public data that can be fetched again: dense parts, a copy of the table, the catalogue.

  async copy(name: string): Promise<StoredRecord | undefined> {
    return this.#readCopy(name);
  }

  async keepCopy(name: string, fields: Fields, body: Bytes): Promise<void> {
    await this.#write(name, { fields, parts: { body } });
  }

  // The owner's rights.

  forget(receipts: boolean): Promise<void> {
    return this.#alone(async () => {
      this.forgotten++;
      for (const name of [...PRIVATE_NAMES, ...(receipts ? REPORT_NAMES : [])]) await this.storage.remove(name);
      this.#ratings = new Map();
    });
  }

  /** Return everything that this home stores about its owner, as plain data. */
  async export(): Promise<Record<string, unknown>> {
    const { fields } = (await this.#read("identity"))!;
    const [own, session] = [await this.private(), await this.session()];
    return {
      format: 1,
      task: fields["task"],
      servers: fields["servers"],
      ratings: [...(await this.ratings())].map(([item, rating]) => ({ item, rating })),
      private: own ? { steps: own.steps, values: [...own.values], first: [...own.first], second: [...own.second] } : null,
      session: session === undefined || session.stage === "intent" ? null : { stage: session.stage, round: session.ticket.round },
      receipts: await this.receipts(),
      detections: await this.detections(),
    };
  }

  async #enterRound(number: number): Promise<void> {
    const newest = await this.newestRound();
    if (newest === undefined || number > newest) await this.#keepNewest(number);
  }

  async #keepNewest(newest: number): Promise<void> {
    await this.#write("rounds", { fields: { newest, place: await this.storage.place(false) }, parts: {} });
  }

  async #keepReceipts(receipts: Receipt[]): Promise<void> {
    await this.#write("receipts", { fields: { receipts }, parts: {} });
  }

  async #read(name: string): Promise<StoredRecord | undefined> {
    const data = await this.storage.read(name);
    return data && decodeRecord(this.cipher.decode(name, data));
  }

  /** Return a record that can be fetched again; a corrupted one counts as missing. */
  async #readCopy(name: string): Promise<StoredRecord | undefined> {
    try {
      return await this.#read(name);
    } catch (error) {
      if (error instanceof DamagedError) return undefined;
      throw error;
    }
  }

  async #write(name: string, record: StoredRecord): Promise<void> {
    await this.storage.write(name, this.cipher.encode(name, encodeRecord(record)));
  }

  /** One change at a time: an app may log during a round. */
  #alone<Result>(change: () => Promise<Result>): Promise<Result> {
    const result = this.#last.then(change);
    this.#last = result.catch(() => undefined);
    return result;
  }

  #checkRemembers(forgotten: number): void {
    if (forgotten !== this.forgotten) throw new ForgottenError("the private part was erased during the round");
  }
}

/** Return the digest that identifies a stored byte string. */
export function digestOf(data: Bytes): string {
  return hex(sha256(data));
}

function checkItem(item: number): number {
  if (!Number.isInteger(item) || item < 0 || item >= LARGEST_ITEM) {
    throw new RatingError("an item is a whole number from 0 up: its row in the catalogue");
  }
  return item;
}

function checkRating(rating: number): number {
  if (typeof rating !== "number" || !(Math.abs(rating) <= LARGEST_RATING)) {
    throw new RatingError("a rating is a finite number in the range of float32");
  }
  return rating;
}
