// The dense part of a version: read from server 0, confirmed by server 1, kept in the home.

import { hex, same, sha256, wordsOf, type Bytes } from "../core/bytes.js";
import type { TaskSpec } from "../core/spec.js";
import { GoneError, RefusedError } from "../errors.js";
import type { Exchange } from "../exchange.js";
import type { Request } from "../transport.js";

const SHORT_ANSWER = 1 << 16; // bytes of an answer that is not a dense part
const SECONDS = 300;

/** Tells whether server 1 publishes the same dense part. */
export type Confirm = (body: Bytes) => Promise<boolean>;

/** Return the dense part of a version, or undefined if it is gone or the servers publish different ones. */
export async function readDense(exchange: Exchange, task: TaskSpec, version: number, confirm: Confirm, name = "dense"): Promise<Float32Array | undefined> {
  if (task.denseSize === 0) return new Float32Array(0);
  const { vault } = exchange.context;
  const kept = await vault.copy(name);
  let body = kept?.fields["version"] === version ? kept?.parts["body"] : undefined;
  if (body === undefined) {
    try {
      body = (await exchange.ask(askDense(task, version, 0))).body;
    } catch (error) {
      if (error instanceof GoneError || error instanceof RefusedError) return undefined;
      throw error;
    }
    if (!(await confirm(body)) || body.length !== 4 * task.denseSize) {
      await exchange.context.note("dense");
      return undefined;
    }
    await vault.keepCopy(name, { version }, body);
  }
  return new Float32Array(wordsOf(body).buffer);
}

/** Ask server 1 whether it publishes this dense part. */
export function askServer1(exchange: Exchange, task: TaskSpec, version: number): Confirm {
  return async (body) => {
    const answer = await exchange.ask(askDense(task, version, 1, `"${hex(sha256(body))}"`));
    return answer.status === 304 || same(answer.body, body);
  };
}

function askDense(task: TaskSpec, version: number, server: 0 | 1, tag?: string): Request {
  return {
    server,
    method: "GET",
    path: `/v1/tasks/${hex(task.id)}/dense/${version}`,
    headers: tag === undefined ? {} : { "if-none-match": tag },
    most: Math.max(4 * task.denseSize, SHORT_ANSWER),
    seconds: SECONDS,
  };
}
