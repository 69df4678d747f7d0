// The relayed transport: server 0 receives everything, and forwards what is encrypted to server 1's relay key.

import { decodeBase64 } from "../core/base64.js";
import { ascii, hex, same, sha256, type Bytes } from "../core/bytes.js";
import { denseMark, receiptOf } from "../core/marks.js";
import { KINDS, sizesOf } from "../core/messages.js";
import { boxContent, decodeRelayedAnswer, encodeRelayed, readRelayKey, stepOf, type RelayKey } from "../core/relay.js";
import { sessionIdOf, type DeviceSession } from "../core/session.js";
import type { RoundSpec, TaskSpec } from "../core/spec.js";
import { EncodingError, MessageError, OutdatedKeyError, PinError, UnavailableError } from "../errors.js";
import { jsonObject, type Accept, type Exchange } from "../exchange.js";
import type { Ticket, Written } from "../home/records.js";
import type { Answer, Request } from "../transport.js";
import { askPermission, decodeRound, findRound } from "./join.js";
import { carry, type Answers, type Joined, type Route } from "./route.js";

const CLOCK_SLACK = 86_400; // tolerated error of a device's clock, in seconds
const MOST_KEYS = 3; // tried for one message: the one in the ticket, and its replacements

/** The relay keys of server 1, as sent by server 0: each must be signed, current, and not older than the last. */
class RelayKeys {
  constructor(
    readonly exchange: Exchange,
    readonly task: TaskSpec,
  ) {}

  /** Raise unless there is a key to encrypt to: a device that joins a round must be able to upload. */
  async expect(): Promise<void> {
    const seen = await this.exchange.context.vault.relayKey();
    if (seen === undefined || !this.isCurrent(seen)) await this.fetchAnnouncement();
  }

  async fetch(): Promise<RelayKey> {
    return this.trust(await this.fetchAnnouncement());
  }

  /** Ask server 0 for the announcement of the key that server 1 uses now, and check it. */
  async fetchAnnouncement(): Promise<Bytes> {
    const answer = await this.exchange.ask({ server: 0, method: "GET", path: `/v1/tasks/${hex(this.task.id)}/relay`, most: 1 << 16 });
    await this.#remember(answer.body);
    return answer.body;
  }

  /** Verify an announcement from a ticket, and return it. */
  async takeAnnouncement(shown: string): Promise<Bytes> {
    let announcement: Bytes = new Uint8Array(0);
    try {
      announcement = decodeBase64(shown);
    } catch (error) {
      if (!(error instanceof EncodingError)) throw error;
    }
    await this.#remember(announcement);
    return announcement;
  }

  trust(announcement: Bytes): RelayKey {
    try {
      return readRelayKey(this.task, announcement);
    } catch (error) {
      if (!(error instanceof MessageError)) throw error;
      throw new PinError("server 0 returned a relay key that the task's server 1 has not signed; nothing was encrypted to it", "relay-key");
    }
  }

  isCurrent(key: RelayKey): boolean {
    const now = this.exchange.context.parts.wallClock();
    return key.notBefore - CLOCK_SLACK <= now && now < key.notAfter + CLOCK_SLACK;
  }

  /** Refuse a key that is not valid now, or is older than the newest known one: it may have been withdrawn. */
  async #remember(announcement: Bytes): Promise<void> {
    const key = this.trust(announcement);
    if (!this.isCurrent(key)) throw new UnavailableError("server 0 returned an expired relay key of server 1; check this device's clock");
    if (!(await this.exchange.context.vault.seeRelayKey(key))) {
      throw new UnavailableError("server 0 returned an older relay key of server 1 than before", undefined, "relay-key");
    }
  }
}

/** Communicates with server 0 only. Its state besides a ticket is the announcement of server 1's relay key. */
export class RelayedRoute implements Route {
  readonly transport = "relayed";
  readonly #keys: RelayKeys;
  #fetched: RelayKey | undefined; // replaces the one from the ticket

  constructor(
    readonly exchange: Exchange,
    readonly task: TaskSpec,
  ) {
    this.#keys = new RelayKeys(exchange, task);
  }

  /** Take a place in the round that server 0 announces; server 1 refuses boxes encrypted for another round. */
  async join(seed: Bytes): Promise<Joined> {
    if (this.task.privacy !== undefined) await findRound(this.exchange, this.task, seed, 0);
    await this.#keys.expect();
    const place = await askPermission(this.exchange, sessionIdOf(seed), "join");
    const round = decodeRound(place.round, this.task);
    const routeState = place.relay === undefined ? await this.#keys.fetchAnnouncement() : await this.#keys.takeAnnouncement(place.relay);
    return { round, ticket: place.ticket, routeState };
  }

  async sendKeys(session: DeviceSession, ticket: Ticket): Promise<Answers> {
    const { round, id: sessionId, label } = session;
    const content = boxContent(round, KINDS.KEYS, session.keys[1]);
    const hold = session.holds[1];
    const expected = receiptOf(label, hold, hold);
    const most = sizesOf(this.task).relayedDownload;
    const make = (key: RelayKey): Request => {
      const body = encodeRelayed(round, sessionId, KINDS.RELAYED_KEYS, session.keys[0], content, key);
      return carry({ round, sessionId, ticket: ticket.ticket }, { server: 0, what: "relayed-keys", body, most });
    };
    const answer = await this.#send(ticket, make, (_request, shown) => {
      try {
        const found = decodeRelayedAnswer(round, sessionId, shown.body);
        return same(found.receipt, expected) ? undefined : "server 0 did not return server 1's receipt for the keys";
      } catch (error) {
        if (!(error instanceof MessageError)) throw error;
        return "server 0's answer to the keys cannot be read";
      }
    });
    const { confirmed } = decodeRelayedAnswer(round, sessionId, answer.body);
    return {
      readRows: () => session.readRelayed(answer.body),
      confirmDense: async (body) => same(denseMark(label, hold, sha256(body)), confirmed),
    };
  }

  async sendUpdate(round: RoundSpec, written: Written): Promise<void> {
    const { sessionId, ticket, marks, update } = written;
    const content = boxContent(round, stepOf(round, KINDS.RELAYED_UPLOAD), update[1], marks.macs[1]);
    const make = (key: RelayKey): Request => {
      const body = encodeRelayed(round, sessionId, KINDS.RELAYED_UPLOAD, update[0], content, key);
      return carry({ round, sessionId, ticket: ticket.ticket }, { server: 0, what: "relayed-update", body, mac: marks.macs[0] });
    };
    await this.#send(ticket, make, (_request, answer) => {
      const found = jsonObject(answer.body);
      if (found["sha256"] !== hex(sha256(update[0]))) return "server 0 did not confirm that it has the update";
      const shown = ascii(String(found["receipt"] ?? ""));
      return same(shown, ascii(hex(marks.receipt))) ? undefined : "server 0 did not return server 1's receipt for the update";
    });
  }

  /** Send a message; if server 1 no longer uses the key, encrypt the same message to the current one. */
  async #send(ticket: Ticket, make: (key: RelayKey) => Request, accept: Accept): Promise<Answer> {
    let key = this.#fetched ?? this.#keys.trust(ticket.routeState);
    if (!this.#keys.isCurrent(key)) key = this.#fetched = await this.#keys.fetch();
    for (let attempt = 0; attempt < MOST_KEYS; attempt++) {
      try {
        return await this.exchange.ask(make(key), accept);
      } catch (error) {
        if (!(error instanceof OutdatedKeyError)) throw error;
        key = this.#fetched = await this.#keys.fetch();
      }
    }
    throw new UnavailableError("server 1 does not accept the relay key that server 0 returned for it", undefined, "relay-key");
  }
}
