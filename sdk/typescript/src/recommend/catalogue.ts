// The task's catalogue: ids and titles of the items, fetched as a whole, so that no server learns what is looked up.

import { hex, sha256, text, type Bytes } from "../core/bytes.js";
import type { TaskSpec } from "../core/spec.js";
import { CatalogueError, CopyError } from "../errors.js";
import type { Exchange } from "../exchange.js";
import { download } from "./download.js";

const LARGEST = 2 ** 26;
const FOREIGN = "server 0's catalogue is not the one that the task names; tell its operator, or pass titles: false";

/** Items by row. Without ids, as in synthetic data, a row number is its own id. */
export class Catalogue {
  constructor(
    readonly ids: readonly string[] = [],
    readonly titles: readonly string[] = [],
  ) {}

  idOf(row: number): string {
    return this.ids[row] ?? String(row);
  }

  titleOf(row: number): string | undefined {
    return this.titles[row] || undefined;
  }

  /** Return the rows whose titles contain these words, ignoring case. */
  search(words: string): number[] {
    const wanted = words.toLowerCase();
    return [...this.titles.keys()].filter((row) => this.titles[row]!.toLowerCase().includes(wanted));
  }
}

/** Return the task's catalogue; an empty one, in which rows are ids, if it has none. */
export async function findCatalogue(exchange: Exchange, task: TaskSpec): Promise<Catalogue> {
  const name = task.fields.catalogue;
  if (name === "") return new Catalogue();
  const { vault } = exchange.context;
  const kept = (await vault.copy("catalogue"))?.parts["body"];
  if (kept !== undefined && hex(sha256(kept)) === name) return readCatalogue(kept, task.items);
  const path = `/v1/tasks/${hex(task.id)}/catalogue`;
  const { body } = await download(exchange, path, LARGEST);
  if (hex(sha256(body)) !== name) throw new CopyError(FOREIGN);
  const catalogue = readCatalogue(body, task.items);
  await vault.keepCopy("catalogue", {}, body);
  return catalogue;
}

export function readCatalogue(file: Bytes, items: number): Catalogue {
  const rows = readCsv(text(file));
  const head = rows.shift() ?? [];
  if (head[0] !== "row" || head[1] !== "id" || head[2] !== "title") {
    throw new CatalogueError("the file is not a catalogue: its first line begins with row,id,title");
  }
  rows.forEach((row, number) => {
    if (row[0] !== String(number) || row.length !== head.length || !row[1]) {
      throw new CatalogueError(`the catalogue is corrupted in line ${number + 2}`);
    }
  });
  if (rows.length !== items) throw new CopyError("the task's catalogue is not a list of its items; pass titles: false");
  return new Catalogue(rows.map((row) => row[1]!), rows.map((row) => row[2]!));
}

/** Parse CSV as in RFC 4180: fields with commas, quotes or line feeds are quoted, with inner quotes doubled. */
function readCsv(text: string): string[][] {
  const rows: string[][] = [];
  let row: string[] = [];
  let at = 0;
  while (at < text.length) {
    let field = "";
    if (text[at] === '"') {
      for (at++; at < text.length; at++) {
        if (text[at] === '"' && text[at + 1] !== '"') break;
        if (text[at] === '"') at++;
        field += text[at];
      }
      at++;
    } else {
      const start = at;
      while (at < text.length && text[at] !== "," && text[at] !== "\n") at++;
      field = text.slice(start, at);
    }
    row.push(field);
    if (text[at] !== ",") {
      rows.push(row);
      row = [];
    }
    at++;
  }
  return rows;
}
