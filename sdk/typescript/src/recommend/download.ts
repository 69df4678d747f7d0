// Downloads of public files in pieces: an interruption costs one piece, not the whole file.

import type { Bytes } from "../core/bytes.js";
import { concat } from "../core/bytes.js";
import { CopyError } from "../errors.js";
import type { Exchange } from "../exchange.js";
import type { Answer } from "../transport.js";

const PIECE = 2 ** 20;
const SECONDS = 300; // slow networks must be able to finish a piece
const RANGE = /^bytes (\d{1,15})-(\d{1,15})\/(\d{1,15})$/;

export interface Downloaded {
  readonly body: Bytes;
  readonly etag: string;
  readonly copy: string; // the digest of the full copy that a delta leads to
}

/** Return a file of server 0 of at most this many bytes. */
export async function download(exchange: Exchange, path: string, most: number): Promise<Downloaded> {
  const parts: Bytes[] = [];
  let [have, size, etag, copy] = [0, -1, "", ""];
  while (size < 0 || have < size) {
    const headers = { range: `bytes=${have}-${have + PIECE - 1}` };
    const answer = await exchange.ask({ server: 0, method: "GET", path, headers, most: Math.max(most, PIECE), seconds: SECONDS });
    const whole = sizeOf(answer, have);
    const tag = answer.headers.get("etag") ?? "";
    if (whole > most || have + answer.body.length > whole || (size >= 0 && (whole !== size || tag !== etag))) {
      throw new CopyError("server 0 has replaced the file during the download, or it is too long; try again");
    }
    [size, etag, copy] = [whole, tag, answer.headers.get("secemb-copy-sha256") ?? ""];
    parts.push(answer.body);
    have += answer.body.length;
  }
  return { body: concat(...parts), etag, copy };
}

/** Return the total size of the file that a piece belongs to; raise unless the piece begins at `first`. */
function sizeOf(answer: Answer, first: number): number {
  const count = answer.body.length;
  if (answer.status === 200 && first === 0) return count; // a proxy may ignore ranges
  const found = answer.status === 206 ? RANGE.exec(answer.headers.get("content-range") ?? "") : null;
  if (!count || found === null || Number(found[1]) !== first || Number(found[2]) !== first + count - 1) {
    throw new CopyError("server 0 sent a different piece than this device asked for; try again");
  }
  return Number(found[3]);
}
