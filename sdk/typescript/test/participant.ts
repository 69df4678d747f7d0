// A device for tests of the servers: it takes part in some rounds and prints a line of JSON for each action.
//
//     node participant.js '{"home": …, "servers": […], "task": …, "ratings": [[item, rating], …], "rounds": 2}'

import { Device } from "../src/index.js";
import type { TableFormat } from "../src/recommend/table.js";
import { FileStorage } from "../src/node.js";

interface Config {
  readonly home: string;
  readonly servers: [string, string];
  readonly task: string;
  readonly token?: string;
  readonly transport?: "direct" | "relayed";
  readonly ratings: [number, number][];
  readonly rounds: number;
  readonly exact: TableFormat;
}

const config = JSON.parse(process.argv[2]!) as Config;
const { home, rounds, ratings, exact, ...opening } = config;
const say = (what: string, found: unknown) => console.log(JSON.stringify({ [what]: found }));

const copies: string[] = []; // of the table, that it asks server 0 for
const device = await Device.open({
  ...opening,
  home: new FileStorage(home),
  key: new Uint8Array(32).fill(7),
  policy: { paceSeconds: 0.2 },
  fetch: (address, init) => {
    if (address.startsWith(config.servers[0]) && address.includes("/table/")) copies.push(new URL(address).search);
    return fetch(address, init);
  },
});
await device.logMany(ratings);
const pause = () => new Promise((resolve) => setTimeout(resolve, 300));

/** Wait until a round has ended: without a privacy guarantee a device may take another place in the same one. */
async function ended(round: number): Promise<void> {
  const view = () => fetch(`${config.servers[0]}/v1/tasks/${config.task}`).then((answer) => answer.json());
  while (((await view()) as { rounds: { until: number } }).rounds.until < round) await pause();
}

for (let done = 0; done < rounds; ) {
  const outcome = await device.contribute();
  if (outcome.kind === "ended") break;
  if (outcome.kind === "contributed") {
    say("contributed", outcome);
    await ended(outcome.receipt.round);
    say("recommended", await device.recommend(5));
    done++;
  } else await pause();
}
while ((await device.contribute()).kind !== "ended") await pause(); // the end of the task tells how its rounds ended
say("recommended", await device.recommend(5));
say("copies", copies);
say("exactly", await device.recommend(5, { table: exact }));
say("ranked", await device.rank([1, 2, 3, 4, 5, 6, 7, 8], { includeRated: true }));
say("receipts", await device.receipts());
say("detections", await device.detections());
await device.close();
