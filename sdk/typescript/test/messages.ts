// Messages of whole sessions for a test in another language: it prints the messages that devices of this package send.
//
//     node messages.js < {"task": …, "round": …, "sessions": [{"items": […], "updates": […], "dense": […]}, …]}

import { readFileSync } from "node:fs";

import { ascii, hex } from "../src/core/bytes.js";
import { secureBytes } from "../src/core/random.js";
import { DeviceSession } from "../src/core/session.js";
import { RoundSpec, TaskSpec } from "../src/core/spec.js";

interface Session {
  readonly items: number[];
  readonly updates: number[];
  readonly dense: number[];
}

const asked = JSON.parse(readFileSync(0, "utf8")) as { task: string; round: string; sessions: Session[] };
const round = RoundSpec.decode(ascii(asked.round), TaskSpec.decode(ascii(asked.task)));
const made = asked.sessions.map(({ items, updates, dense }) => {
  const session = new DeviceSession(round, items, secureBytes);
  const update = session.write(items, updates, dense);
  return { id: hex(session.id), keys: session.keys.map(hex), update: update.map(hex), truncated: session.truncated };
});
console.log(JSON.stringify(made));
