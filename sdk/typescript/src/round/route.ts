// The interface of transports for a session's messages: each is one `Route`.
//
//     join      → a place in a round that both servers run
//     keys      → the rows of the session's items, and a way to let server 1 confirm the dense part
//     update    → both servers prove that they hold it

import { hex, type Bytes } from "../core/bytes.js";
import type { ReadRows } from "../core/rows.js";
import type { DeviceSession } from "../core/session.js";
import type { RoundSpec } from "../core/spec.js";
import type { Ticket, Written } from "../home/records.js";
import type { Transport } from "../home/receipts.js";
import type { Request } from "../transport.js";
import type { Confirm } from "./dense.js";

const SHORT_ANSWER = 1 << 16; // maximum bytes of an answer that is not a protocol message

export interface Joined {
  readonly round: RoundSpec;
  readonly ticket: string;
  readonly routeState: Bytes; // data that the route needs; stored with the ticket
}

export interface Answers {
  readonly readRows: () => ReadRows; // raises if a tag is wrong
  readonly confirmDense: Confirm;
}

export interface Route {
  readonly transport: Transport;
  /** Take a place in a round for the session of this seed. */
  join(seed: Bytes): Promise<Joined>;
  /** Send the session's keys until both servers have answered. */
  sendKeys(session: DeviceSession, ticket: Ticket): Promise<Answers>;
  /** Send the update until both servers have proved that they hold it. */
  sendUpdate(round: RoundSpec, written: Written): Promise<void>;
}

/** Return the request for one message, with the MAC of an upload. */
export function carry(
  place: { round: RoundSpec; sessionId: Bytes; ticket: string },
  message: { server: 0 | 1; what: string; body: Bytes; method?: "PUT" | "POST"; most?: number; mac?: Bytes },
): Request {
  const headers: Record<string, string> = { "content-type": "application/octet-stream", "secemb-ticket": place.ticket };
  if (message.mac !== undefined) headers["secemb-proof"] = hex(message.mac);
  return {
    server: message.server,
    method: message.method ?? "PUT",
    path: `/v1/rounds/${hex(place.round.digest)}/sessions/${hex(place.sessionId)}/${message.what}`,
    headers,
    body: message.body,
    most: Math.max(message.most ?? 0, SHORT_ANSWER),
  };
}
