// A device that a test of the servers starts: it takes part in some rounds and prints a line of JSON for each thing it does.
//
//     node participant.js '{"home": …, "servers": […], "task": …, "ratings": [[item, rating], …], "rounds": 2}'

import { Device } from "../src/index.js";
import { FileStorage } from "../src/node.js";

interface Config {
  readonly home: string;
  readonly servers: [string, string];
  readonly task: string;
  readonly token?: string;
  readonly transport?: "direct" | "relayed";
  readonly ratings: [number, number][];
  readonly rounds: number;
}

const config = JSON.parse(process.argv[2]!) as Config;
const { home, rounds, ratings, ...opening } = config;
const say = (what: string, found: unknown) => console.log(JSON.stringify({ [what]: found }));

const device = await Device.open({ ...opening, home: new FileStorage(home), key: new Uint8Array(32).fill(7), policy: { paceSeconds: 0.2 } });
await device.logMany(ratings);
const pause = () => new Promise((resolve) => setTimeout(resolve, 300));
for (let done = 0; done < rounds; ) {
  const outcome = await device.contribute();
  if (outcome.kind === "ended") break;
  if (outcome.kind === "contributed") say("contributed", outcome), done++;
  else await pause();
}
say("recommended", await device.recommend(5));
say("exactly", await device.recommend(5, { table: "float32" }));
say("ranked", await device.rank([1, 2, 3, 4, 5, 6, 7, 8], { includeRated: true }));
while ((await device.contribute()).kind !== "ended") await pause(); // the end of the task tells how its rounds ended
say("receipts", await device.receipts());
say("detections", await device.detections());
await device.close();
