// The page of `secemb dev --web`: an app with a device. Everything except `enrol` and `watch` is the same in any app.

import { Device, IndexedDbStorage } from "@secemb/device";

const SHOWN = 8; // films at a time
const SAVED = "secemb-dev-device"; // the backend's reply to this browser
const BEGINNING = 24; // bytes of a message's body that are shown
const ENVELOPE = 24; // bytes that identify the round and session of a message
const BOX = 128; // final bytes that are for server 1 only
const NAMES = { 1: "keys", 3: "update", 4: "sums", 5: "keys, and a box for server 1", 7: "update, and a box for server 1" };

const at = (id) => document.getElementById(id);

function add(parent, tag, ...content) {
  const made = document.createElement(tag);
  made.append(...content);
  parent.append(made);
  return made;
}

function complain(error) {
  at("problem").hidden = false;
  at("problem").textContent = String(error?.message ?? error);
}

/** Ask this page's own backend to enrol the device; an app asks its backend after a login. */
async function enrol() {
  const saved = localStorage.getItem(SAVED);
  if (saved !== null) return JSON.parse(saved);
  const answer = await fetch("/enrol", { method: "POST" });
  if (!answer.ok) throw new Error("the backend of this page does not answer; is `secemb dev --web` still running?");
  const found = await answer.json();
  localStorage.setItem(SAVED, JSON.stringify(found));
  return found;
}

function showBytes(server, words, data) {
  const bytes = [...data.subarray(0, BEGINNING)].map((byte) => byte.toString(16).padStart(2, "0"));
  add(add(at(`sent${server}`), "li", `${words} `), "code", `${bytes.join("")}…`);
}

/** Return a fetch that displays on the page the data sent to each server. */
function watch(servers) {
  return (address, init) => {
    const server = servers.findIndex((one) => address.startsWith(one));
    if (init.body?.length > ENVELOPE && init.body[7] in NAMES) {
      const kind = NAMES[init.body[7]];
      showBytes(server, `${kind}: ${init.body.length.toLocaleString("en")} bytes`, init.body.subarray(ENVELOPE));
      if (kind.includes("box")) showBytes(1, "through server 0, a box that only server 1 can open", init.body.subarray(-BOX));
      add(at("steps"), "li", `${kind} to server ${server}`);
    }
    return fetch(address, init);
  };
}

let device;
let catalogue;
let ratings;

function showFilms() {
  const rows = new Set(ratings.keys());
  at("films").replaceChildren();
  while (rows.size < Math.min(catalogue.ids.length, ratings.size + SHOWN)) rows.add(Math.floor(Math.random() * catalogue.ids.length));
  for (const row of rows) {
    const line = add(at("films"), "li", catalogue.titleOf(row) ?? `Film ${catalogue.idOf(row)}`);
    const stars = add(line, "span");
    stars.className = "stars";
    for (let rating = 1; rating <= 5; rating++) {
      const star = add(stars, "button", "★");
      star.type = "button";
      star.ariaLabel = `${rating} of 5`;
      star.ariaPressed = String(rating <= (ratings.get(row) ?? 0));
      star.onclick = () => rate(row, rating, stars);
    }
  }
}

async function rate(item, rating, stars) {
  await device.log({ item, rating });
  ratings = await device.ratings();
  [...stars.children].forEach((star, index) => (star.ariaPressed = String(index < rating)));
  showReadiness();
}

function showReadiness() {
  at("contribute").disabled = at("recommend").disabled = ratings.size === 0;
  at("state").textContent = ratings.size === 0 ? "Rate a film first." : `${ratings.size} rated. Nothing has left this browser yet.`;
}

async function contribute() {
  at("contribute").disabled = true;
  at("steps").replaceChildren();
  at("sent0").replaceChildren();
  at("sent1").replaceChildren();
  for (;;) {
    at("state").textContent = "Taking part…";
    const outcome = await device.contribute();
    if (outcome.kind === "contributed" || outcome.kind === "ended") {
      at("state").textContent = outcome.kind === "ended" ? outcome.reason : `Both servers hold their half of round ${outcome.receipt.round}.`;
      break;
    }
    at("state").textContent = `${outcome.reason}; trying again`;
    await new Promise((resolve) => setTimeout(resolve, Math.min(1000 * outcome.seconds, 3000)));
  }
  at("contribute").disabled = false;
  await showReceipts();
  await showSeen();
}

async function recommend() {
  const best = await device.recommend(10);
  at("best").replaceChildren();
  for (const one of best) add(at("best"), "li", `${one.title ?? one.item} (${one.score.toFixed(1)})`);
}

async function showReceipts() {
  at("receipts").replaceChildren();
  for (const one of (await device.receipts()).reverse()) {
    const fate = one.published === null ? "not known yet" : one.published ? `published as version ${one.version ?? "-"}` : `aborted (${one.reason})`;
    const bytes = one.sent.map((count) => count.toLocaleString("en")).join(" and ");
    add(at("receipts"), "li", `Round ${one.round} (${one.kind}): ${bytes} bytes to servers 0 and 1, ${one.slots} keys as for every device; ${fate}`);
  }
}

async function showSeen() {
  const answer = await fetch("/seen");
  if (!answer.ok) return;
  at("seen").replaceChildren();
  for (const { server, rounds } of await answer.json()) {
    for (const one of rounds) {
      const row = add(at("seen"), "tr");
      for (const value of [server, one.number, one.kind, one.state, one.keys, one.updates, one.counted ?? "-"]) add(row, "td", String(value));
    }
  }
}

async function forget() {
  await device.forget({ receipts: true });
  ratings = await device.ratings();
  for (const id of ["best", "steps", "sent0", "sent1"]) at(id).replaceChildren();
  at("exported").hidden = true;
  showFilms();
  showReadiness();
  await showReceipts();
}

async function showExport() {
  at("exported").textContent = JSON.stringify(await device.export(), null, 1);
  at("exported").hidden = false;
}

async function start() {
  const { servers, task, token } = await enrol();
  const home = new IndexedDbStorage(`secemb-dev-${task}`);
  device = await Device.open({ home, servers, task, token, fetch: watch(servers) });
  catalogue = await device.catalogue();
  ratings = await device.ratings();
  showFilms();
  showReadiness();
  await showReceipts();
  await showSeen();
}

const guarded = (action) => () => action().catch(complain);
at("more").onclick = guarded(async () => showFilms());
at("contribute").onclick = guarded(contribute);
at("recommend").onclick = guarded(recommend);
at("forget").onclick = guarded(forget);
at("export").onclick = guarded(showExport);
start().catch((error) => {
  // This is a different pair than the browser remembers: the files of the last one were removed when it stopped.
  if (["EnrolmentError", "PinError"].includes(error?.name)) localStorage.removeItem(SAVED);
  complain(error);
});
