// The device API for apps.
//
//     const device = await Device.open({ home: new IndexedDbStorage("films"), servers: [url0, url1], task, token });
//     await device.log({ item: 318, rating: 5 });
//     const outcome = await device.contribute();
//     const best = await device.recommend(10);
//     await device.close();

import { isHex, type Bytes } from "./core/bytes.js";
import { secureBytes, type RandomBytes } from "./core/random.js";
import { Context, DEFAULT_POLICY, checkPolicy, type Policy } from "./context.js";
import { AddressError, EnrolmentError, HomeError, PinError, PolicyError } from "./errors.js";
import type { Detection } from "./home/detections.js";
import { RecordCipher } from "./home/encryption.js";
import type { Receipt, Transport } from "./home/receipts.js";
import type { Storage } from "./home/storage.js";
import { Vault } from "./home/vault.js";
import type { Model } from "./models/model.js";
import type { Catalogue } from "./recommend/catalogue.js";
import { catalogueOf, rank, recommend, type RankOptions, type Recommendation } from "./recommend/rank.js";
import type { TableFormat } from "./recommend/table.js";
import { contribute, type Outcome } from "./round/contribute.js";
import { checkAddress, sender, type Fetch } from "./transport.js";

export interface Opening {
  readonly home: Storage; // used only by this device and task
  readonly servers: readonly [string, string]; // addresses of server 0 and server 1
  readonly task: string; // the task's id: 64 hexadecimal digits
  readonly token?: string; // from the operator of server 0, through the app's backend; none if enrolment is open
  readonly model?: Model; // none: matrix factorisation with the task's width
  readonly key?: Bytes; // 32 random bytes; if given, the home is encrypted
  readonly policy?: Partial<Policy>;
  readonly rate?: number; // learning rate of the private part; none: the task's rate for rows
  readonly holdOut?: number; // the fraction of ratings reserved for evaluation and never trained on
  readonly transport?: Transport; // none: relayed if the task allows it
  readonly fetch?: Fetch;
  readonly clock?: () => number; // seconds, for waiting and deadlines
  readonly wallClock?: () => number; // seconds since 1970
  readonly sleep?: (seconds: number) => Promise<void>;
  readonly randomBytes?: RandomBytes;
}

export class Device {
  readonly #context: Context;
  #closed = false;
  #contributing: Promise<unknown> = Promise.resolve();
  #advising: Promise<unknown> = Promise.resolve();

  private constructor(context: Context) {
    this.#context = context;
  }

  /** Open the home and return the device; only one device can have a home open. */
  static async open(opening: Opening): Promise<Device> {
    const servers = opening.servers.map(checkAddress) as [string, string];
    if (servers.length !== 2 || servers[0] === servers[1]) {
      throw new AddressError("a device talks to two servers, of two operators: give the addresses of server 0 and of server 1");
    }
    if (!isHex(opening.task, 32)) throw new PinError("a task's id is 64 lower-case hexadecimal digits; `secemb task show` prints it");
    if (opening.token !== undefined && !/^[\x20-\x7e]+$/.test(opening.token)) {
      throw new EnrolmentError("a token is one line of printable ASCII; copy it again from the operator's message");
    }
    const holdOut = opening.holdOut ?? 0.1;
    if (!(holdOut >= 0 && holdOut < 1)) throw new PolicyError("holdOut must be at least 0 and below 1");
    const policy = checkPolicy({ ...DEFAULT_POLICY, ...opening.policy });
    const cipher = new RecordCipher(opening.key);
    const vault = new Vault(opening.home, cipher);
    const randomBytes = opening.randomBytes ?? secureBytes;
    await opening.home.open();
    try {
      await vault.bind(opening.task, servers, randomBytes);
    } catch (error) {
      await opening.home.close();
      throw error;
    }
    const context = new Context({
      vault,
      send: sender(servers, opening.fetch ?? ((address, init) => globalThis.fetch(address, init))),
      taskId: opening.task,
      token: opening.token,
      policy,
      model: opening.model,
      rate: opening.rate,
      holdOut,
      transport: opening.transport,
      clock: opening.clock ?? (() => performance.now() / 1000),
      wallClock: opening.wallClock ?? (() => Date.now() / 1000),
      sleep: opening.sleep ?? ((seconds) => new Promise((resolve) => void setTimeout(resolve, 1000 * seconds))),
      randomBytes,
    });
    return new Device(context);
  }

  /** Store the owner's rating of an item; durable once this resolves. The last rating of an item counts. */
  async log({ item, rating }: { item: number; rating: number }): Promise<void> {
    await this.logMany([[item, rating]]);
  }

  /** Store several ratings in one write. In a task without ratings, every chosen item has the rating 1. */
  async logMany(ratings: Iterable<readonly [number, number]>): Promise<void> {
    await this.#vault().log(ratings);
  }

  /** Remove the rating of an item, if there is one. */
  async unlog(item: number): Promise<void> {
    await this.#vault().unlog(item);
  }

  /** Return the last rating of each item. */
  async ratings(): Promise<ReadonlyMap<number, number>> {
    return new Map(await this.#vault().ratings());
  }

  /** Take part in one round, or continue one that was interrupted; return how it ended. */
  async contribute(): Promise<Outcome> {
    this.#vault();
    return (this.#contributing = after(this.#contributing, () => contribute(this.#context))) as Promise<Outcome>;
  }

  /** Return the k items that the owner may like best, from a copy of the table. */
  async recommend(k = 10, options: RankOptions & { table?: TableFormat } = {}): Promise<Recommendation[]> {
    return this.#advise(() => recommend(this.#context, k, options));
  }

  /** Return candidates with their scores, best first; neither server learns which they are. */
  async rank(candidates: Iterable<number>, options: RankOptions = {}): Promise<Recommendation[]> {
    return this.#advise(() => rank(this.#context, candidates, options));
  }

  /** Return the ids and titles of the task's items; they are fetched once. */
  async catalogue(): Promise<Catalogue> {
    return this.#advise(() => catalogueOf(this.#context));
  }

  /** Return what was sent in each round, oldest first. */
  async receipts(): Promise<Receipt[]> {
    return this.#vault().receipts();
  }

  /** Return the protocol violations by servers that this device has detected, by kind. */
  async detections(): Promise<Detection[]> {
    return this.#vault().detections();
  }

  /** Erase ratings, private part and session; with `receipts`, also receipts and detections. */
  async forget({ receipts = false }: { receipts?: boolean } = {}): Promise<void> {
    await this.#vault().forget(receipts);
  }

  /** Return everything that this device knows about its owner, in a form that `JSON.stringify` accepts. */
  async export(): Promise<Record<string, unknown>> {
    return this.#vault().export();
  }

  /** Release the home after any call in progress has ended. */
  async close(): Promise<void> {
    if (this.#closed) return;
    this.#closed = true;
    await Promise.allSettled([this.#contributing, this.#advising]);
    await this.#context.vault.storage.close();
  }

  #advise<Result>(action: () => Promise<Result>): Promise<Result> {
    this.#vault();
    return (this.#advising = after(this.#advising, action)) as Promise<Result>;
  }

  #vault(): Vault {
    if (this.#closed) throw new HomeError("this device is closed; open it again");
    return this.#context.vault;
  }
}

function after<Result>(last: Promise<unknown>, action: () => Promise<Result>): Promise<Result> {
  return last.then(action, action);
}
