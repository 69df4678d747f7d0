// The computation of a device for one round at the size of MovieLens-1M: placement, keys and correction words.
// Processor time: the figures do not depend on what else runs. The first is of a fresh process (nothing compiled yet), 
// the second the median once the code is warm.

import { encodeCanonical } from "../src/core/canonical.js";
import { secureBytes } from "../src/core/random.js";
import { DeviceSession } from "../src/core/session.js";
import { RoundSpec, TaskSpec, encodeRound } from "../src/core/spec.js";
import { hex } from "../src/core/bytes.js";

const ITEMS = 3883;
const RATED = 165; // a typical person's
const CAPACITY = 300;
const ROUNDS = 30;

const fields = {
  bias_decay: "0", bias_rate: "0.05", bins: 82, bound: 2 ** 20, capacity: CAPACITY, catalogue: "", centre: "0", cohort: 1000,
  dense_rate: "0.001", dense_size: 0, fraction_bits: 16, guard: "8", highest: "", initial_scale: "0.05", items: ITEMS,
  join_seconds: 60, loss: "squared", lowest: "", min_cohort: 2, name: "ML1M", norm_bound: 0, optimiser: "adam", privacy: {},
  protocol: "secemb/2", identity0: "", predecessor: "", relay_key: "", ring_bits: 32, rounds: 100, row_decay: "0", row_rate: "0.02", row_width: 65,
  schedule: "cosine", seed: 0, spread: "1", tables: 4, upload_seconds: 600,
};

function measure(task: TaskSpec, number: number): number {
  const round = RoundSpec.decode(
    encodeRound({ kind: "train", model_digest: "0".repeat(64), model_version: number, round: number, task: hex(task.id) }),
    task,
  );
  const items = Int32Array.from({ length: RATED }, (_, at) => (at * 23) % ITEMS);
  const updates = new Float64Array(RATED * task.width).fill(0.01);
  const start = process.cpuUsage();
  const session = new DeviceSession(round, items, secureBytes);
  session.write(items, updates, new Float64Array(0));
  const { user, system } = process.cpuUsage(start);
  return (user + system) / 1000;
}

function report(name: string, task: TaskSpec): void {
  const times = Array.from({ length: ROUNDS }, (_, number) => measure(task, number));
  const warm = times.slice(ROUNDS / 2).sort((left, right) => left - right);
  console.log(`${name.padEnd(34)} first ${times[0]!.toFixed(1).padStart(6)} ms   warm ${warm[warm.length >> 1]!.toFixed(1).padStart(6)} ms`);
}

console.log(`ML1M: ${ITEMS} items, ${RATED} rated, 328 slots, rows of 65; Node ${process.versions.node}`);
report("placement, keys, correction words", TaskSpec.decode(encodeCanonical(fields)));
report("the same, with a norm proof", TaskSpec.decode(encodeCanonical({ ...fields, norm_bound: 2 ** 20 })));
