// The direct transport: each server receives its own messages.

import { hex, sha256, type Bytes } from "../core/bytes.js";
import { sizesOf } from "../core/messages.js";
import { sessionIdOf, type DeviceSession } from "../core/session.js";
import type { RoundSpec, TaskSpec } from "../core/spec.js";
import { UnavailableError } from "../errors.js";
import { jsonObject, type Exchange } from "../exchange.js";
import type { Ticket, Written } from "../home/records.js";
import type { Answer, Request } from "../transport.js";
import { askServer1 } from "./dense.js";
import { BETWEEN_ROUNDS, announcedRound, askPermission, decodeRound, findRound } from "./join.js";
import { carry, type Answers, type Joined, type Route } from "./route.js";

export class DirectRoute implements Route {
  readonly transport = "direct";

  constructor(
    readonly exchange: Exchange,
    readonly task: TaskSpec,
  ) {}

  async join(seed: Bytes): Promise<Joined> {
    let announced: string | undefined = await findRound(this.exchange, this.task, seed, 1);
    const place = await askPermission(this.exchange, sessionIdOf(seed), "join");
    // Server 0 may have opened the next round between the two requests; server 1 knows it by now.
    if (announced !== place.round) announced = await announcedRound(this.exchange, 1);
    if (announced !== place.round) {
      throw new UnavailableError("the two servers announce different rounds", BETWEEN_ROUNDS, "round");
    }
    return { round: decodeRound(place.round, this.task), ticket: place.ticket, routeState: new Uint8Array(0) };
  }

  async sendKeys(session: DeviceSession, { ticket }: Ticket): Promise<Answers> {
    const { round, id: sessionId } = session;
    const most = sizesOf(this.task).answer;
    const requests = session.keys.map((body, server) => carry({ round, sessionId, ticket }, { server: server as 0 | 1, what: "keys", body, most }));
    const [first, second] = await this.exchange.askAll(requests);
    return {
      readRows: () => session.read([first!.body, second!.body]),
      confirmDense: askServer1(this.exchange, this.task, round.modelVersion),
    };
  }

  /** Send to server 1 first, because server 0 ends the round based on what it holds. */
  async sendUpdate(round: RoundSpec, written: Written): Promise<void> {
    const { sessionId, ticket } = written;
    for (const server of [1, 0] as const) {
      const message = { server, what: "update", body: written.update[server], mac: written.marks.macs[server] };
      await this.exchange.ask(carry({ round, sessionId, ticket: ticket.ticket }, message), acknowledges);
    }
  }
}

function acknowledges(request: Request, answer: Answer): string | undefined {
  if (jsonObject(answer.body)["sha256"] === hex(sha256(request.body!))) return undefined;
  return `server ${request.server} did not confirm that it has the update`;
}
