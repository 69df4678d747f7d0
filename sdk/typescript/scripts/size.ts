// The size of the whole package in an app for browsers, bundled and compressed. `npm run size` bundles first.

import { readFileSync } from "node:fs";
import { gzipSync } from "node:zlib";

const LIMIT = 60_000; // bytes, compressed

const bundle = readFileSync(new URL("../bundle.js", import.meta.url));
const size = gzipSync(bundle, { level: 9 }).length;
console.log(`${bundle.length.toLocaleString("en")} bytes minified, ${size.toLocaleString("en")} gzipped`);
if (size > LIMIT) {
  console.error(`more than ${LIMIT.toLocaleString("en")} bytes: look at what was added, or at what a dependency has grown by`);
  process.exitCode = 1;
}
