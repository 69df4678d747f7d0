// Requests over fetch: one at a time to each server, with a deadline and a limit on the answer's size.

import type { Bytes } from "./core/bytes.js";
import { AddressError } from "./errors.js";

export interface Request {
  readonly server: 0 | 1;
  readonly method: "GET" | "POST" | "PUT";
  readonly path: string;
  readonly headers?: Readonly<Record<string, string>>; // names in lower case
  readonly body?: Bytes;
  readonly most?: number; // bytes; a longer answer is not read
  readonly seconds?: number; // for the whole request and its answer
}

export interface Answer {
  readonly status: number;
  readonly headers: { get(name: string): string | null };
  readonly body: Bytes;
}

/** There was no complete answer; whether the request arrived is unknown. */
export class Lost {
  constructor(
    readonly reason: string,
    readonly received = 0,
  ) {}
}

export type Fetch = (address: string, init: RequestInit) => Promise<Response>;
export type Send = (request: Request) => Promise<Answer | Lost>;

const MOST = 1 << 20;
const SECONDS = 60;

/** Return a transport to these servers. It sends nothing that could link sessions: no cookies, no referrer. */
export function sender(servers: readonly [string, string], fetch: Fetch): Send {
  return async (request) => {
    const stop = new AbortController();
    const timer = setTimeout(() => stop.abort(), 1000 * (request.seconds ?? SECONDS));
    let received = 0;
    try {
      const response = await fetch(servers[request.server] + request.path, {
        method: request.method,
        headers: request.headers ?? {},
        body: (request.body as BodyInit | undefined) ?? null,
        signal: stop.signal,
        credentials: "omit",
        cache: "no-store",
        redirect: "manual",
        referrerPolicy: "no-referrer",
      });
      const parts: Bytes[] = [];
      for await (const part of bodyOf(response)) {
        received += part.length;
        if (received > (request.most ?? MOST)) return new Lost("the answer is too long", received);
        parts.push(part);
      }
      const body = new Uint8Array(received);
      let at = 0;
      for (const part of parts) {
        body.set(part, at);
        at += part.length;
      }
      return { status: response.status, headers: response.headers, body };
    } catch (error) {
      return new Lost(stop.signal.aborted ? "the answer took too long" : describe(error), received);
    } finally {
      clearTimeout(timer);
      stop.abort(); // the rest of an answer is not read
    }
  };
}

/** Return an address in normalised form, or raise unless it can be used safely. */
export function checkAddress(address: string): string {
  let url: URL;
  try {
    url = new URL(address);
  } catch {
    throw new AddressError("a server's address looks like https://secemb.example");
  }
  const local = ["localhost", "127.0.0.1", "[::1]"].includes(url.hostname);
  if (url.protocol !== "https:" && !(url.protocol === "http:" && local)) {
    throw new AddressError("a server's address begins with https://; only this machine may be called without TLS");
  }
  if (url.search || url.hash || url.username || url.password) throw new AddressError("a server's address has no user, query or fragment");
  return url.href.replace(/\/+$/, "");
}

async function* bodyOf(response: Response): AsyncGenerator<Bytes> {
  if (response.body === null || response.body === undefined) {
    const whole = new Uint8Array(await response.arrayBuffer()); // React Native has no streams
    if (whole.length) yield whole;
    return;
  }
  const reader = response.body.getReader();
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    yield value;
  }
}

/** A browser does not tell a page why a request failed, so that pages cannot explore a network. */
function describe(error: unknown): string {
  const cause = (error as { cause?: { code?: string; message?: string } }).cause;
  return cause?.code ?? cause?.message ?? "no connection, or the server does not allow this page: see devices.allowed_origins";
}
