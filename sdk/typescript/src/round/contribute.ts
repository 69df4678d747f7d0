// One round on a device: join, send keys, read rows, train, send the update.

import { ascii, same, sha256, type Bytes } from "../core/bytes.js";
import { seededBytes } from "../core/random.js";
import { DeviceSession, SESSION_SEED_BYTES } from "../core/session.js";
import { RoundSpec, type TaskSpec } from "../core/spec.js";
import type { Context } from "../context.js";
import {
  ConflictError, DamagedError, EndedError, EnrolmentError, ExchangeError, ForgottenError, GoneError, PinError, RefusedError,
  RoundFullError, UnavailableError,
} from "../errors.js";
import { Exchange } from "../exchange.js";
import { makeReceipt, noTraffic, type Receipt, type Traffic } from "../home/receipts.js";
import type { Keyed, Ticket, Written } from "../home/records.js";
import { readDense } from "./dense.js";
import { DirectRoute } from "./direct.js";
import { askHowRoundsEnded, checkPrivacy, findTask, leaveOut } from "./join.js";
import { RelayedRoute } from "./relayed.js";
import type { Joined, Route } from "./route.js";
import { select } from "./selection.js";
import { keptPrivate, makeUpload } from "./upload.js";

/** How a call of `contribute()` ended. `settled`: earlier rounds whose outcome became known in this call. */
export type Outcome = (
  | { readonly kind: "contributed"; readonly receipt: Receipt; readonly trouble: string | undefined } // an upload of zeros has one
  | { readonly kind: "not-now"; readonly seconds: number; readonly reason: string } // call again; a session continues
  | { readonly kind: "dropped"; readonly seconds: number; readonly reason: string } // the next call begins a new session
  | { readonly kind: "ended"; readonly reason: string } // there is no reason to call again
) & { readonly settled: readonly Receipt[] };

type Ending = { [Kind in Outcome["kind"]]: Omit<Extract<Outcome, { kind: Kind }>, "settled"> }[Outcome["kind"]];

const UNTIL_NEXT = 5; // seconds to wait if no server gave a time

/** Take part in one round; return its outcome, and the outcomes of earlier rounds. */
export async function contribute(context: Context): Promise<Outcome> {
  const exchange = new Exchange(context, context.policy.bytes);
  const outcome = await endingOf(context, exchange);
  return { ...outcome, settled: await exchange.settle() } as Outcome;
}

async function endingOf(context: Context, exchange: Exchange): Promise<Ending> {
  try {
    return await exchange.noting(async () => {
      const task = await findTask(exchange);
      context.checkBytes(task);
      await keptPrivate(context, context.modelFor(task)); // raises unless the model fits both
      return new Participation(exchange, task).run();
    });
  } catch (error) {
    if (error instanceof ForgottenError) return { kind: "dropped", reason: error.message, seconds: UNTIL_NEXT };
    if (error instanceof EndedError) {
      await askHowRoundsEnded(exchange); // the refusal does not include it
      return { kind: "ended", reason: error.message };
    }
    if (error instanceof ExchangeError) return { kind: "not-now", seconds: error.seconds || UNTIL_NEXT, reason: error.message };
    throw error;
  }
}

/** A device in one round, possibly continued after an interruption. */
class Participation {
  readonly #context: Context;
  readonly #forgotten: number;
  readonly #routes: Readonly<Record<Route["transport"], Route>>;
  #stage: Keyed | Written | undefined; // as it is stored

  constructor(
    readonly exchange: Exchange,
    readonly task: TaskSpec,
  ) {
    this.#context = exchange.context;
    this.#forgotten = exchange.context.vault.forgotten;
    this.#routes = { direct: new DirectRoute(exchange, task), relayed: new RelayedRoute(exchange, task) };
  }

  /** Continue the session in the home; if there is none, or its round has ended, start one. */
  async run(): Promise<Ending> {
    const { vault } = this.#context;
    const stage = await vault.session().catch(async (error: unknown) => {
      if (!(error instanceof DamagedError)) throw error;
      await vault.dropSession();
      return "corrupted" as const;
    });
    if (stage === "corrupted") return { kind: "dropped", reason: "the session in the home is corrupted", seconds: UNTIL_NEXT };
    const elsewhere = await vault.sessionIsElsewhere();
    if (stage !== undefined && stage.stage !== "intent") {
      try {
        return await this.#guarded(() => this.#resume(stage, elsewhere), true);
      } catch (error) {
        if (!(error instanceof GoneError)) throw error;
        this.exchange.traffic = noTraffic();
      }
    }
    const seed = stage?.stage === "intent" && !elsewhere ? stage.seed : await this.#drawSeed();
    return this.#guarded(() => this.#begin(seed), false);
  }

  /** Run steps; drop a session that cannot be finished, and leave others unchanged. */
  async #guarded(steps: () => Promise<Ending>, resumed: boolean): Promise<Ending> {
    try {
      return await steps();
    } catch (error) {
      if (error instanceof UnavailableError || error instanceof PinError || error instanceof EnrolmentError) {
        if (this.#stage !== undefined) await this.#keep({ ...this.#stage, ticket: this.#spent(this.#stage.ticket) });
        throw error;
      }
      const final = error instanceof GoneError || error instanceof ConflictError || error instanceof RefusedError;
      if (!final || this.#stage === undefined) throw error;
      const noticed = error instanceof ConflictError ? "session" : error.noticed;
      if (noticed !== undefined) await this.#context.note(noticed);
      await this.#end(this.#stage, false);
      if (resumed && error instanceof GoneError) throw error;
      if (error instanceof RoundFullError) return { kind: "not-now", seconds: error.seconds || UNTIL_NEXT, reason: error.message };
      return { kind: "dropped", reason: error.message, seconds: UNTIL_NEXT };
    }
  }

  async #begin(first: Bytes): Promise<Ending> {
    const route = this.#routes[this.#context.transportFor(this.task)];
    let seed = first;
    let joined: Joined;
    try {
      joined = await route.join(seed);
    } catch (error) {
      if (!(error instanceof ConflictError)) throw error; // this session has a place in an earlier round
      await leaveOut(this.exchange); // of this round, if participation is random
      seed = await this.#drawSeed();
      joined = await route.join(seed);
    }
    await checkPrivacy(this.exchange, joined.round, seed); // server 0 may have opened the next one by now
    const joinedAt = this.#context.clock();
    const { keyed, session } = await this.#open(route, joined, seed);
    await this.#keep(keyed);
    await this.exchange.waitUntil(joinedAt + this.#context.keysSeconds);
    return this.#sendKeys(route, keyed, session);
  }

  async #resume(stage: Keyed | Written, elsewhere: boolean): Promise<Ending> {
    this.#stage = stage;
    this.exchange.traffic = copyOf(stage.ticket.traffic);
    if (elsewhere) throw new RefusedError("the home was copied or restored during a session");
    const left = (await this.#context.vault.receipts())[stage.ticket.receipts];
    if (left !== undefined) {
      // Killed while ending the session; the rest needs no server.
      await this.#finish(stage, left);
      if (left.complete && stage.stage === "written") return { kind: "contributed", receipt: left, trouble: stage.trouble };
      throw new GoneError("the session was given up earlier");
    }
    const route = this.#routes[stage.ticket.transport];
    if (stage.stage === "written") return this.#sendUpdate(route, stage);
    const session = new DeviceSession(this.#round(stage.ticket), stage.selection.items, seededBytes(stage.seed));
    if (!same(digestOf(session), stage.keysDigest)) throw new RefusedError("the app was updated during a session");
    return this.#sendKeys(route, stage, session);
  }

  /** Draw the seed of a new session, and store it before sending anything to a server. */
  async #drawSeed(): Promise<Bytes> {
    const seed = this.#context.randomBytes(SESSION_SEED_BYTES);
    await this.#context.vault.keepSession({ stage: "intent", seed }, this.#forgotten);
    return seed;
  }

  /** Choose the items, place them and make the keys. */
  async #open(route: Route, joined: Joined, seed: Bytes): Promise<{ keyed: Keyed; session: DeviceSession }> {
    const { vault } = this.#context;
    const selection = select(joined.round, await vault.ratings(), this.#context.isHeldOut(), this.#context.randomBytes);
    const session = new DeviceSession(joined.round, selection.items, seededBytes(seed));
    const ticket: Ticket = {
      round: joined.round.text,
      ticket: joined.ticket,
      truncated: session.truncated + selection.leftOut,
      traffic: copyOf(this.exchange.traffic),
      receipts: (await vault.receipts()).length,
      transport: route.transport,
      routeState: joined.routeState,
    };
    return { keyed: { stage: "keyed", ticket, seed, selection, keysDigest: digestOf(session) }, session };
  }

  async #sendKeys(route: Route, keyed: Keyed, session: DeviceSession): Promise<Ending> {
    const answers = await route.sendKeys(session, keyed.ticket);
    let dense: Float32Array | undefined;
    if (session.round.kind !== "survey") {
      dense = await readDense(this.exchange, this.task, session.round.modelVersion, answers.confirmDense);
    }
    const readAt = this.#context.clock(); // from here, so that a slow server cannot consume the pace
    const upload = await makeUpload(this.#context, session, keyed.selection, answers.readRows, dense);
    const written: Written = {
      stage: "written",
      ticket: this.#spent(keyed.ticket),
      sessionId: session.id,
      update: upload.messages,
      marks: session.marks,
      private: upload.private,
      trouble: upload.trouble,
    };
    await this.#keep(written);
    await this.exchange.waitUntil(readAt + this.#context.policy.paceSeconds);
    return this.#sendUpdate(route, written);
  }

  async #sendUpdate(route: Route, written: Written): Promise<Ending> {
    await route.sendUpdate(this.#round(written.ticket), written);
    const receipt = await this.#end(written, true);
    return { kind: "contributed", receipt, trouble: written.trouble };
  }

  /** Store a stage before sending any of its messages. */
  async #keep(stage: Keyed | Written): Promise<void> {
    await this.#context.vault.keepSession(stage, this.#forgotten, this.#round(stage.ticket).number);
    this.#stage = stage;
  }

  /** End the session and store its receipt; only a complete one changes the private part. */
  async #end(stage: Keyed | Written, complete: boolean): Promise<Receipt> {
    const { truncated, transport } = stage.ticket;
    const made = { truncated, complete, date: this.#context.today(), transport };
    const receipt = makeReceipt(this.#round(stage.ticket), this.exchange.traffic, made);
    await this.#finish(stage, receipt);
    return receipt;
  }

  async #finish(stage: Keyed | Written, receipt: Receipt): Promise<void> {
    const state = receipt.complete && stage.stage === "written" ? stage.private : undefined;
    await this.#context.vault.endSession(receipt, stage.ticket.receipts, state, this.#forgotten);
    this.#stage = undefined;
  }

  #round(ticket: Ticket): RoundSpec {
    return RoundSpec.decode(ascii(ticket.round), this.task);
  }

  #spent(ticket: Ticket): Ticket {
    return { ...ticket, traffic: copyOf(this.exchange.traffic) };
  }
}

function copyOf({ sent, received }: Traffic): Traffic {
  return { sent: [...sent], received: [...received] };
}

function digestOf(session: DeviceSession): Bytes {
  return sha256(session.keys[0], session.keys[1]);
}
