// The context of a device's steps: its home, policy, clocks, source of random bytes, and transport.

import { decimal } from "./core/canonical.js";
import { sizesOf } from "./core/messages.js";
import type { RandomBytes } from "./core/random.js";
import type { TaskSpec } from "./core/spec.js";
import { MisfitError, PolicyError } from "./errors.js";
import type { Misconduct } from "./home/detections.js";
import { dateOf, type Transport } from "./home/receipts.js";
import type { Vault } from "./home/vault.js";
import { MatrixFactorisation } from "./models/factorisation.js";
import type { Model } from "./models/model.js";
import { holdOut, type IsHeldOut } from "./round/selection.js";
import type { Send } from "./transport.js";

const KEYS_PACE = 0.1; // that the pace can add
const OVERHEAD = 8192; // bytes in addition to the messages: the task, the round, the ticket, receipts

/** The limits that an app sets. Nothing is sent while `allowed` returns false. */
export interface Policy {
  readonly allowed: () => boolean; // unmetered network? on power? Called before every request
  readonly seconds: number; // the longest that one call of `contribute()` takes; the next call continues
  readonly bytes: number | undefined; // bodies in both directions; a round that needs more is not started
  // Between the answers to the keys and the update, unless training takes longer: otherwise this time would tell how
  // many items a device has.
  readonly paceSeconds: number;
}

export const DEFAULT_POLICY: Policy = { allowed: () => true, seconds: 120, bytes: undefined, paceSeconds: 3 };

export function checkPolicy(policy: Policy): Policy {
  if (!(policy.seconds > 0 && policy.seconds < Infinity)) throw new PolicyError("seconds must be a positive number");
  if (!(policy.paceSeconds >= 0 && policy.paceSeconds < policy.seconds)) {
    throw new PolicyError("paceSeconds must be at least 0 and below seconds, or no round could end");
  }
  return policy;
}

export class Context {
  constructor(
    readonly parts: {
      readonly vault: Vault;
      readonly send: Send;
      readonly taskId: string;
      readonly token: string | undefined;
      readonly policy: Policy;
      readonly model: Model | undefined; // undefined: matrix factorisation with the task's width
      readonly rate: number | undefined; // learning rate of the private part; undefined: the task's rate for rows
      readonly holdOut: number; // the fraction of ratings reserved for evaluation
      readonly transport: Transport | undefined; // undefined: relayed if the task allows it
      readonly clock: () => number; // seconds, for all waiting and deadlines
      readonly wallClock: () => number; // seconds since 1970: dates receipts, and tells whether a relay key is valid
      readonly sleep: (seconds: number) => Promise<void>;
      readonly randomBytes: RandomBytes;
    },
  ) {}

  get vault(): Vault {
    return this.parts.vault;
  }
  get policy(): Policy {
    return this.parts.policy;
  }
  get taskId(): string {
    return this.parts.taskId;
  }
  get randomBytes(): RandomBytes {
    return this.parts.randomBytes;
  }

  clock(): number {
    return this.parts.clock();
  }

  today(): string {
    return dateOf(this.parts.wallClock());
  }

  /** Return the model, or raise unless it fits the task. */
  modelFor(task: TaskSpec): Model {
    if (task.loss === "next") throw new MisfitError("this task learns from events in time order, which this SDK does not have; use the Python SDK");
    if (task.loss !== "squared" && task.privacy?.unit === "record") {
      throw new MisfitError("this task clips each rating separately, which needs ratings; its loss ranks items");
    }
    const model = this.parts.model ?? new MatrixFactorisation(task.width - 1, task.loss);
    if (model.rowWidth !== task.width || model.denseSize !== task.denseSize) {
      throw new MisfitError(
        `the task has ${task.width} numbers in a row and ${task.denseSize} in the dense part, the model ` +
          `${model.rowWidth} and ${model.denseSize}; open the device with the task's model`,
      );
    }
    return model;
  }

  /** Return the transport for this task's messages. */
  transportFor(task: TaskSpec): Transport {
    if (this.parts.transport === "relayed" && !task.relays) {
      throw new PolicyError("this task is not relayed; open the device without transport, or with 'direct'");
    }
    return task.relays && this.parts.transport !== "direct" ? "relayed" : "direct";
  }

  /** Raise if a training round without retries would exceed the budget. */
  checkBytes(task: TaskSpec): void {
    const sizes = sizesOf(task);
    const relayed = this.transportFor(task) === "relayed";
    const messages = relayed ? sizes.relayedUpload + sizes.relayedDownload : sizes.upload + sizes.download;
    const needed = messages + 4 * task.denseSize + OVERHEAD;
    if (this.policy.bytes !== undefined && needed > this.policy.bytes) {
      throw new PolicyError(`a round of this task moves ${needed} bytes; allow that many in the policy`);
    }
  }

  rateFor(task: TaskSpec): number {
    return this.parts.rate ?? decimal(task.fields.row_rate);
  }

  /** Return how long after the ticket keys are sent, regardless of how many items are placed. */
  get keysSeconds(): number {
    return KEYS_PACE * this.policy.paceSeconds;
  }

  isHeldOut(): IsHeldOut {
    return holdOut(this.vault.holdOutKey, this.parts.holdOut);
  }

  /** Record a server's misconduct. What is sent must not depend on whether the home can store it. */
  async note(misconduct: Misconduct): Promise<void> {
    await this.vault.note(misconduct, this.today()).catch(() => undefined);
  }
}
