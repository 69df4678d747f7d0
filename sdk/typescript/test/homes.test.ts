// The storage of homes: files, async storage, and the stored form of every record. IndexedDB is tested in a browser.

import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { existsSync, mkdtempSync, readFileSync, readdirSync, statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { once } from "node:events";
import { test } from "node:test";
import { Worker } from "node:worker_threads";

import { AsyncStorage, DamagedError, Device, HomeInUseError, HomeKeyError, PinError, type Storage } from "../src/index.js";
import { FileStorage } from "../src/node.js";
import { decodeBase64, encodeBase64 } from "../src/core/base64.js";
import { jsonObject } from "../src/exchange.js";
import { secureBytes } from "../src/core/random.js";
import { MemoryStorage } from "./faults.js";

const KEY = new Uint8Array(32).fill(1);
const opening = { servers: ["https://server0.example", "https://server1.example"] as [string, string], task: "ab".repeat(32) };

class Map2 extends Map<string, string> {
  async getItem(key: string): Promise<string | null> {
    return this.get(key) ?? null;
  }
  async setItem(key: string, value: string): Promise<void> {
    this.set(key, value);
  }
  async removeItem(key: string): Promise<void> {
    this.delete(key);
  }
}

const folder = (): string => mkdtempSync(join(tmpdir(), "secemb-"));

const PLACES: [string, () => () => Storage][] = [
  ["files", () => {
    const path = folder();
    return () => new FileStorage(path);
  }],
  ["async storage", () => {
    const store = new Map2();
    return () => new AsyncStorage(store, "films");
  }],
];

for (const [name, make] of PLACES) {
  test(`${name}: what was logged is there after a restart, and one device at a time has it`, async () => {
    const place = make();
    const device = await Device.open({ ...opening, home: place(), key: KEY });
    await device.logMany([[3, 4.5], [8, 1]]);
    await device.log({ item: 3, rating: 2 });
    await assert.rejects(() => Device.open({ ...opening, home: place(), key: KEY }), HomeInUseError);
    await device.unlog(8);
    await device.close();
    const again = await Device.open({ ...opening, home: place(), key: KEY });
    assert.deepEqual([...(await again.ratings())], [[3, 2]]);
    await again.close();
    await assert.rejects(() => again.ratings());
  });

  test(`${name}: a home opens with its key, task and servers, and with no others`, async () => {
    const place = make();
    await (await Device.open({ ...opening, home: place(), key: KEY })).close();
    await assert.rejects(() => Device.open({ ...opening, home: place(), key: new Uint8Array(32) }), HomeKeyError);
    await assert.rejects(() => Device.open({ ...opening, home: place() }), HomeKeyError);
    await assert.rejects(() => Device.open({ ...opening, home: place(), key: KEY, task: "cd".repeat(32) }), PinError);
    const servers: [string, string] = ["https://server0.example", "https://other.example"];
    await assert.rejects(() => Device.open({ ...opening, home: place(), key: KEY, servers }), PinError);
    await (await Device.open({ ...opening, home: place(), key: KEY })).close();
  });
}

test("a place keeps what was written last, byte for byte, and forgets what is removed", async () => {
  for (const [, make] of PLACES) {
    const place = make()();
    await place.open();
    const data = secureBytes(1000);
    await place.write("one", secureBytes(3));
    await place.write("one", data);
    assert.deepEqual([...(await place.read("one"))!], [...data]);
    await place.remove("one");
    await place.remove("one");
    assert.equal(await place.read("one"), undefined);
    await place.close();
  }
});

test("with a key no rating is on the disk, and only the owner can read the files", async () => {
  const path = folder();
  const device = await Device.open({ ...opening, home: new FileStorage(path), key: KEY });
  await device.log({ item: 1234567, rating: 4.25 });
  await device.close();
  for (const name of readdirSync(path)) {
    assert.equal(statSync(join(path, name)).mode & 0o077, 0, name);
    assert.ok(!readFileSync(join(path, name), "latin1").includes("1234567"), name);
  }
});

test("a file that was changed, or put in the place of another, is noticed", async () => {
  const path = folder();
  const device = await Device.open({ ...opening, home: new FileStorage(path), key: KEY });
  await device.log({ item: 1, rating: 1 });
  await device.close();
  const file = join(path, "ratings");
  const whole = readFileSync(file);
  for (const bytes of [Buffer.concat([whole.subarray(0, -1), Buffer.of(whole.at(-1)! ^ 1)]), readFileSync(join(path, "rounds")), Buffer.alloc(0)]) {
    writeFileSync(file, bytes);
    const again = await Device.open({ ...opening, home: new FileStorage(path), key: KEY });
    await assert.rejects(() => again.ratings(), DamagedError);
    await again.close();
  }
});

test("the lock of a process that was killed does not keep a home closed, and that of one that runs does", async () => {
  const path = folder();
  const program = `import { FileStorage } from ${JSON.stringify(new URL("../src/node.js", import.meta.url).href)};
    await new FileStorage(${JSON.stringify(path)}).open(); process.kill(process.pid, "SIGKILL");`;
  spawnSync(process.execPath, ["--input-type=module", "-e", program]);
  assert.ok(existsSync(join(path, "lock")));
  const home = new FileStorage(path);
  await home.open();
  await home.close();
  writeFileSync(join(path, "lock"), `${process.ppid} 0`);
  await assert.rejects(() => new FileStorage(path).open(), HomeInUseError);
  writeFileSync(join(path, "lock"), `${process.pid} 0`); // of an earlier process with this number
  await home.open();
  await home.close();
});

test("another thread of the same process cannot open a home that is open", async () => {
  const home = new FileStorage(folder());
  await home.open();
  const program = `import { FileStorage } from ${JSON.stringify(new URL("../src/node.js", import.meta.url).href)};
    import { parentPort } from "node:worker_threads";
    parentPort.postMessage(await new FileStorage(${JSON.stringify(home.folder)}).open().then(() => "opened", (error) => error.name));`;
  const worker = new Worker(new URL(`data:text/javascript,${encodeURIComponent(program)}`));
  const [said] = await once(worker, "message");
  assert.equal(said, "HomeInUseError");
  await home.close();
});

test("a copied directory is another place, and a renewed one too", async () => {
  const home = new FileStorage(folder());
  await home.open();
  const first = await home.place(false);
  assert.equal(await home.place(false), first);
  assert.notEqual(await home.place(true), first);
  await home.close();
});

test("an answer in which a name occurs twice is no answer", () => {
  const read = (text: string) => jsonObject(new TextEncoder().encode(text));
  assert.deepEqual(read('{"a": {"b": ["c\\":", {"d" : 1}]}, "e": "\\"f\\": 2"}'), { a: { b: ['c":', { d: 1 }] }, e: '"f": 2' });
  for (const text of ['{"a": 1, "a": 1}', '{"a": {"b": 1, "b": 2}}', '{"a": 1, "\\u0061": 1}', "[1]", "1", "", "{"]) assert.deepEqual(read(text), {});
});

test("base64 is that of others, in both alphabets", () => {
  for (let length = 0; length < 70; length++) {
    const data = secureBytes(length);
    assert.equal(encodeBase64(data), Buffer.from(data).toString("base64"));
    assert.deepEqual([...decodeBase64(Buffer.from(data).toString("base64url"))], [...data]);
  }
});

test("addresses, tokens and ratings that cannot be right are refused with what to do", async () => {
  const home = new MemoryStorage();
  const wrong = [
    { servers: ["http://server0.example", "https://server1.example"] as [string, string] },
    { servers: ["https://server0.example", "https://server0.example/"] as [string, string] },
    { token: "one\ntwo" }, { task: "short" }, { holdOut: 1 }, { policy: { paceSeconds: 200 } }, { key: new Uint8Array(16) },
  ];
  for (const changes of wrong) await assert.rejects(() => Device.open({ ...opening, home, ...changes }), /./);
  const device = await Device.open({ ...opening, home });
  for (const [item, rating] of [[-1, 1], [1.5, 1], [1, NaN], [1, Infinity]] as const) {
    await assert.rejects(() => device.log({ item, rating }), { name: "RatingError" });
  }
  assert.equal((await device.ratings()).size, 0);
});
