// The device's copy of the item table: downloaded as a full copy or a delta, and compared with server 1's.

import { ascii, bytesOf, concat, hex, sha256, u64, wordsOf, type Bytes } from "../core/bytes.js";
import { HALF, halvesToRows } from "../core/half.js";
import type { TaskSpec } from "../core/spec.js";
import { CopyError, GoneError, RefusedError, UnavailableError } from "../errors.js";
import type { Exchange } from "../exchange.js";
import { askServer1, readDense } from "../round/dense.js";
import { findPublished, type Published } from "../round/join.js";
import { download } from "./download.js";

export type TableFormat = "int8" | "float16" | "float32";

const DENSE = "table-dense";
const MODEL_DOMAIN = ascii("secemb/1 model");
const DIFFERENT = "the two servers publish different tables; use neither, and tell both operators";

/** One version of the table and of the dense part. It is public, and reveals nothing about its owner. */
export interface TableCopy {
  readonly version: number;
  readonly dense: Float32Array;
  /** Return the rows of these items, flat. */
  rows(items: ArrayLike<number>): Float32Array;
}

/** Return the published table; without a network, the local copy. */
export async function newestCopy(exchange: Exchange, task: TaskSpec, format: TableFormat): Promise<TableCopy> {
  const held = await heldCopy(exchange, task, format);
  let published: Published;
  try {
    published = await exchange.noting(() => findPublished(exchange));
  } catch (error) {
    if (held === undefined || !(error instanceof UnavailableError)) throw error;
    return open(task, format, held.version, held.body, await denseOf(exchange, task, held.version));
  }
  const dense = await denseOf(exchange, task, published.version);
  if (held?.version === published.version) return open(task, format, held.version, held.body, dense);
  const body = (held && (await byDelta(exchange, task, format, published.version, held))) ?? (await byFullCopy(exchange, task, format, published.version));
  await compare(exchange, task, format, published.version, body);
  if (isExact(task, format) && hex(modelDigest(task, published.version, asFloat32(task, format, body), dense)) !== published.digest) {
    throw new CopyError("the table and the dense part are not the model that both servers have announced", "table");
  }
  await exchange.context.vault.keepCopy("table", { version: published.version, format, task: hex(task.id) }, body);
  return open(task, format, published.version, body, dense);
}

interface Held {
  readonly version: number;
  readonly body: Bytes;
}

async function heldCopy(exchange: Exchange, task: TaskSpec, format: TableFormat): Promise<Held | undefined> {
  const found = await exchange.context.vault.copy("table");
  const body = found?.parts["body"];
  const fits = found?.fields["format"] === format && found.fields["task"] === hex(task.id) && body?.length === task.items * rowBytes(task, format);
  return fits ? { version: found.fields["version"] as number, body: body! } : undefined;
}

async function denseOf(exchange: Exchange, task: TaskSpec, version: number): Promise<Float32Array> {
  const dense = await readDense(exchange, task, version, askServer1(exchange, task, version), DENSE);
  if (dense === undefined) throw new CopyError("the two servers publish different dense parts; use neither, and tell both operators");
  return dense;
}

async function byFullCopy(exchange: Exchange, task: TaskSpec, format: TableFormat, version: number): Promise<Bytes> {
  const { body, etag } = await download(exchange, pathOf(task, format, version), task.items * rowBytes(task, format));
  if (body.length !== task.items * rowBytes(task, format) || etag !== `"${hex(sha256(body))}"`) {
    throw new CopyError("the copy of the table was corrupted in transit; try again");
  }
  return body;
}

/** Return the new copy by applying a delta, or undefined: the full copy can always be fetched instead. */
async function byDelta(exchange: Exchange, task: TaskSpec, format: TableFormat, version: number, held: Held): Promise<Bytes | undefined> {
  if (held.version > version) return undefined;
  const row = rowBytes(task, format);
  try {
    const found = await download(exchange, `${pathOf(task, format, version)}&since=${held.version}`, 4 + task.items * (4 + row));
    const count = wordsOf(found.body)[0]!;
    if (found.body.length !== 4 + count * (4 + row)) return undefined;
    const body = held.body.slice();
    const numbers = wordsOf(found.body.subarray(4, 4 + 4 * count));
    for (const [at, number] of numbers.entries()) {
      if (number >= task.items) return undefined;
      body.set(found.body.subarray(4 + 4 * count + at * row, 4 + 4 * count + (at + 1) * row), number * row);
    }
    return hex(sha256(body)) === found.copy ? body : undefined;
  } catch (error) {
    if (error instanceof CopyError || error instanceof GoneError || error instanceof RefusedError) return undefined;
    throw error;
  }
}

/** Raise unless server 1 has the same bytes; if it has different ones, it sends only one byte of them. */
async function compare(exchange: Exchange, task: TaskSpec, format: TableFormat, version: number, body: Bytes): Promise<void> {
  const headers = { "if-none-match": `"${hex(sha256(body))}"`, range: "bytes=0-0" };
  const answer = await exchange.ask({ server: 1, method: "GET", path: pathOf(task, format, version), headers });
  if (answer.status !== 304) {
    await exchange.context.note("table");
    throw new CopyError(DIFFERENT);
  }
}

/** Return the digest that both servers announce for a version. */
export function modelDigest(task: TaskSpec, version: number, table: Bytes, dense: Float32Array): Bytes {
  const sizes = [version, task.items, task.width, task.denseSize].map(u64);
  return sha256(concat(MODEL_DOMAIN, task.id, ...sizes), table, bytesOf(dense));
}

function pathOf(task: TaskSpec, format: TableFormat, version: number): string {
  return `/v1/tasks/${hex(task.id)}/table/${version}?format=${format}`;
}

function rowBytes(task: TaskSpec, format: TableFormat): number {
  if (format === "int8") return 4 + task.width;
  return format === "float32" ? 4 * task.width : 2 * task.width;
}

/** Tell whether rows in this format are those of the model. */
function isExact(task: TaskSpec, format: TableFormat): boolean {
  return format === "float32" || (format === "float16" && task.fields.row_bits === HALF);
}

function asFloat32(task: TaskSpec, format: TableFormat, body: Bytes): Bytes {
  return format === "float16" ? bytesOf(halvesToRows(body, task.width, 2 * task.width)) : body;
}

function open(task: TaskSpec, format: TableFormat, version: number, body: Bytes, dense: Float32Array): TableCopy {
  const { width } = task;
  const size = rowBytes(task, format);
  const view = new DataView(body.buffer, body.byteOffset, body.byteLength);
  const rows = (items: ArrayLike<number>): Float32Array => {
    const found = new Float32Array(items.length * width);
    for (let row = 0; row < items.length; row++) {
      const start = items[row]! * size;
      if (format === "float16") {
        found.set(halvesToRows(body.subarray(start, start + size), width, size), row * width);
        continue;
      }
      const scale = format === "int8" ? view.getFloat32(start, true) : 1;
      for (let at = 0; at < width; at++) {
        found[row * width + at] = format === "int8" ? scale * view.getInt8(start + 4 + at) : view.getFloat32(start + 4 * at, true);
      }
    }
    return found;
  };
  return { version, dense, rows };
}
