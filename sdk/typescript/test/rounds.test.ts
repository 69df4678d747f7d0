// Rounds of devices against servers in memory, with every kind of fault.

import assert from "node:assert/strict";
import { test } from "node:test";

import { Device, type Model, type Opening, type Outcome } from "../src/index.js";
import { hex } from "../src/core/bytes.js";
import type { Group } from "../src/core/canonical.js";
import type { Fetch } from "../src/transport.js";
import { Life, MemoryStorage, chances, unreliable } from "./faults.js";
import { NOW, Pair, SERVERS, makeTask } from "./pair.js";

const RATED: [number, number][] = [[1, 5], [4, 1], [9, 3]];

/** Adds 1.5 to every element of every row that it has read, so that a sum shows exactly who added what. */
class Constant implements Model {
  readonly rowWidth = 3;
  readonly denseSize = 0;
  readonly privateSize = 2;
  constructor(readonly step: () => number = () => 1.5) {}
  firstPrivate(): Float32Array {
    return new Float32Array(2);
  }
  gradients(rows: Float32Array) {
    return { loss: 1, rows: rows.map(() => this.step()), dense: new Float32Array(0), private: Float32Array.of(1, 1) };
  }
  scores(_rows: Float32Array, _dense: Float32Array, _own: Float32Array, items: Int32Array): Float32Array {
    return Float32Array.from(items);
  }
}

/** Open a device with its own clock, which only waiting advances. */
async function openDevice(pair: Pair, home: MemoryStorage, changes: Partial<Opening> = {}): Promise<Device> {
  let time = 0;
  const { life } = home;
  const fetch = changes.fetch ?? pair.fetch;
  return Device.open({
    home,
    servers: SERVERS,
    task: hex(pair.task.id),
    model: new Constant(),
    holdOut: 0,
    clock: () => time,
    wallClock: () => NOW + time,
    sleep: async (seconds) => void (time += seconds),
    ...changes,
    fetch: (address, init) => life.act(() => fetch(address, init)),
  });
}

async function rated(pair: Pair, home: MemoryStorage, changes: Partial<Opening> = {}): Promise<Device> {
  const device = await openDevice(pair, home, changes);
  await device.logMany(RATED);
  return device;
}

/** Call until the device has taken part, as an app does. */
async function takePart(device: Device, calls = 40): Promise<Outcome> {
  for (let call = 0; call < calls; call++) {
    const outcome = await device.contribute();
    if (outcome.kind === "contributed" || outcome.kind === "ended") return outcome;
  }
  throw new Error("the device has not taken part");
}

/** Check that this many sessions have each added 1.5 to the rows of their rated items, and nothing else. */
function checkTotal(pair: Pair, sessions: number): void {
  assert.deepEqual(pair.violations, []);
  const total = pair.total();
  assert.equal(total.sessions, sessions);
  const items = new Set(RATED.map(([item]) => item));
  total.rows.forEach((value, at) => assert.equal(value, items.has(Math.floor(at / 3)) ? 1.5 * sessions : 0));
}

const TRANSPORTS = ["direct", "relayed"] as const;

for (const transport of TRANSPORTS) {
  test(`a device takes part once, and its update is what the model said (${transport})`, async () => {
    const pair = new Pair(makeTask());
    const device = await rated(pair, new MemoryStorage(), { transport });
    const outcome = await device.contribute();
    assert.equal(outcome.kind, "contributed");
    checkTotal(pair, 1);
    const [receipt] = await device.receipts();
    assert.deepEqual([receipt!.round, receipt!.complete, receipt!.transport, receipt!.published], [0, true, transport, null]);
    assert.equal(receipt!.sent[1] === 0, transport === "relayed");
    pair.open("train");
    const next = await takePart(device);
    assert.deepEqual(next.settled.map((one) => [one.published, one.version]), [[true, 1]]);
    assert.deepEqual(await device.detections(), []);
  });

  test(`whatever the network does, a session arrives whole and once (${transport})`, async () => {
    for (let seed = 0; seed < 25; seed++) {
      const pair = new Pair(makeTask());
      const chance = chances(seed);
      for (let number = 0; number < 2; number++) {
        await takePart(await rated(pair, new MemoryStorage(), { transport, fetch: unreliable(pair.fetch, chance) }));
      }
      checkTotal(pair, 2);
    }
  });

  test(`a device that is killed at any moment sends nothing twice and nothing else (${transport})`, async () => {
    const whole = new MemoryStorage();
    const start = await rated(new Pair(makeTask()), whole, { transport });
    const before = whole.life.acts;
    await takePart(start);
    const acts = whole.life.acts - before;
    assert.ok(acts > 8);
    for (let last = 1; last <= acts; last++) {
      for (const after of [false, true]) {
        const pair = new Pair(makeTask());
        const home = new MemoryStorage();
        await (await rated(pair, home, { transport })).close();
        home.life = new Life(last, after);
        // To the device, a fetch that dies is a lost request, but the next action ends it.
        await assert.rejects(async () => takePart(await openDevice(pair, home, { transport })), `${last} of ${acts} ${after}`);
        home.life = new Life();
        const device = await openDevice(pair, home, { transport });
        const complete = async () => (await device.receipts()).filter((one) => one.complete).length;
        if ((await complete()) === 0) assert.equal((await takePart(device)).kind, "contributed");
        else await device.contribute();
        const count = await complete();
        checkTotal(pair, count);
        assert.ok(count >= 1 && count <= 2);
        assert.equal((await device.export())["session"], null);
      }
    }
  });
}

test("the tests notice a device that forgets what it has written and makes another update from the same path", async () => {
  const pair = new Pair(makeTask());
  const home = new MemoryStorage();
  home.forgets.add("session");
  let step = 1;
  const model = new Constant(() => step);
  const device = await rated(pair, home, { model, transport: "direct", fetch: lostAcknowledgement(pair) });
  await device.contribute();
  step = 2;
  await (await openDevice(pair, home, { model, transport: "direct" })).contribute();
  assert.deepEqual(pair.violations, ["other bytes for the update of a session"]);
});

function lostAcknowledgement(pair: Pair): Fetch {
  return async (address, init) => {
    const response = await pair.fetch(address, init);
    if (address.endsWith("/update")) throw new TypeError("lost");
    return response;
  };
}

test("a home that was copied during a session does not go on with it", async () => {
  const pair = new Pair(makeTask());
  const home = new MemoryStorage();
  await (await rated(pair, home, { transport: "direct", fetch: lostAcknowledgement(pair) })).contribute();
  home.where = "elsewhere";
  const device = await openDevice(pair, home, { transport: "direct" });
  const outcome = await device.contribute();
  assert.equal(outcome.kind, "dropped");
  assert.deepEqual(pair.violations, []);
});

test("a round that ends during a session is left, and the next one begun", async () => {
  const pair = new Pair(makeTask());
  const home = new MemoryStorage();
  await (await rated(pair, home, { transport: "direct", fetch: lostAcknowledgement(pair) })).contribute();
  pair.open("train");
  const device = await openDevice(pair, home, { transport: "direct" });
  assert.equal((await takePart(device)).kind, "contributed");
  checkTotal(pair, 1);
  assert.deepEqual((await device.receipts()).map((one) => [one.round, one.complete]), [[0, false], [1, true]]);
});

test("surveys count what a device has, and evaluations what it holds out", async () => {
  const pair = new Pair(makeTask());
  pair.open("survey");
  const device = await rated(pair, new MemoryStorage(), { holdOut: 0.9 });
  await takePart(device);
  assert.deepEqual([...pair.total().sums.slice(0, 5)], [3, 9, 0, 35, 3]);
  pair.open("evaluate");
  await takePart(device);
  const { sums } = pair.total();
  assert.ok(sums[0]! >= 1 && sums[10] === 1 && sums[1]! > 0);
  assert.deepEqual(pair.violations, []);
});

test("a device whose rows are wrong uploads zeros at the usual time, and its owner learns why", async () => {
  const pair = new Pair(makeTask());
  const fetch: Fetch = async (address, init) => {
    const response = await pair.fetch(address, init);
    if (!address.endsWith("/keys")) return response;
    const body = new Uint8Array(await response.arrayBuffer());
    for (let at = 24; at < body.length; at += 4) body[at]! ^= 1;
    return new Response(body, { status: 200 });
  };
  const device = await rated(pair, new MemoryStorage(), {
    transport: "direct",
    fetch: (address, init) => (address.startsWith(SERVERS[0]) ? fetch(address, init) : pair.fetch(address, init)),
  });
  const outcome = await device.contribute();
  assert.ok(outcome.kind === "contributed" && outcome.trouble === "RowTagError");
  const total = pair.total();
  assert.deepEqual([total.sessions, total.rows.some((value) => value !== 0)], [1, false]);
  assert.deepEqual((await device.detections()).map((one) => [one.kind, one.count]), [["rows", 1]]);
});

test("in a task with noise a device is in a round once, and its update is cut", async () => {
  const line = { clip: 65_536, epsilon: "8", multiplier: "1" };
  const privacy: Group = { delta: "0.001", dense_clip: 0, evaluate: {}, sampling_rate: "", survey: {}, train: line, unit: "user" };
  const pair = new Pair(makeTask({ privacy, ring_bits: 64 }));
  const device = await rated(pair, new MemoryStorage());
  assert.equal((await takePart(device)).kind, "contributed");
  const again = await device.contribute();
  assert.ok(again.kind === "not-now" && again.reason.includes("once"));
  const { sessions, rows } = pair.total();
  const length = Math.sqrt(rows.reduce((sum, value) => sum + value * value, 0));
  assert.ok(sessions === 1 && length <= 1 && length > 0.999);
});

test("what the owner erases is gone, and a round that was begun before ends", async () => {
  const pair = new Pair(makeTask());
  const home = new MemoryStorage();
  const device = await rated(pair, home, {
    fetch: async (address, init) => {
      if (address.endsWith("keys")) await device.forget();
      return pair.fetch(address, init);
    },
  });
  assert.equal((await device.contribute()).kind, "dropped");
  assert.deepEqual([(await device.ratings()).size, home.records.has("session"), home.records.has("private")], [0, false, false]);
});

test("an ended task says so, and how its rounds ended", async () => {
  const pair = new Pair(makeTask());
  const device = await rated(pair, new MemoryStorage());
  await takePart(device);
  pair.ended = true;
  const outcome = await device.contribute();
  assert.deepEqual([outcome.kind, outcome.settled.length], ["ended", 1]);
});
