// The vectors in Node. tests/e2e/test_typescript.py runs the same checks in a browser.

import assert from "node:assert/strict";
import { readFileSync, readdirSync } from "node:fs";
import { test } from "node:test";

import { checkVectors } from "./vectors.js";

const FOLDER = new URL("../../../../tests/vectors/", import.meta.url);

// eslint-disable-next-line @typescript-eslint/no-explicit-any
type File = any;

function readFiles(): Record<string, File> {
  const names = readdirSync(FOLDER).filter((name) => name.endsWith(".json"));
  return Object.fromEntries(names.map((name) => [name.slice(0, -5), JSON.parse(readFileSync(new URL(name, FOLDER), "utf8"))]));
}

test("every vector holds, and what is wrong is refused with the named error", () => {
  const files = readFiles();
  const checked = checkVectors(files);
  const parts = Object.entries(files).flatMap(([name, file]) =>
    Object.keys(file).filter((part) => Array.isArray(file[part])).map((part) => `${name}.${part}`),
  );
  const inputs = ["negative.holds", "negative.slot_items", "negative.slot_leaves"];
  assert.deepEqual(new Set(Object.keys(checked)), new Set(parts.filter((part) => !inputs.includes(part))));
});

test("a value that is changed in a vector is noticed", () => {
  const places: [string, string, string][] = [
    ["labels", "cases", "derived"], ["prg", "hide", "share"], ["paths", "cases", "leaf_key"], ["convert", "cases", "word"],
    ["tags", "cases", "tag"], ["relay", "keys", "key_id"], ["specs", "tasks", "task_id"], ["negative", "refused", "error"],
  ];
  for (const [name, part, member] of places) {
    const files = readFiles();
    const one = files[name][part][0];
    one[member] = one[member].startsWith("1") ? `2${one[member].slice(1)}` : `1${one[member].slice(1)}`;
    assert.throws(() => checkVectors(files), new RegExp(`${name}.json, ${part}`));
  }
});
