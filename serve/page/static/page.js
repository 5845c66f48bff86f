// The page: follows the feed, hands each snapshot to its parts, and asks for the key.

import { Cache } from "/page/cache.js";
import { say, whole } from "/page/charts.js";
import { Looks, nameOf } from "/page/colours.js";
import { follow, KeyNeeded } from "/page/feed.js";
import { History } from "/page/history.js";
import { Rates } from "/page/rates.js";
import { Batch, showQueue } from "/page/sequences.js";

const KEY = "enginesmith-key"; // in sessionStorage: of this tab, until it is closed
const LONGEST_PAUSE = 10; // seconds between two attempts to connect

const $ = (id) => document.getElementById(id);
const looks = new Looks();
const history = new History();
const rates = new Rates();
const cache = new Cache(pin);
const batch = new Batch(point, pin);
let pinned = null, pointed = null; // names of sequences

function show(snapshot) {
  const holding = snapshot.sequences.filter((one) => one.blocks.some((count) => count));
  const slots = looks.assign(holding);
  if (!holding.some((one) => nameOf(one) === pinned)) pinned = null;
  history.add(snapshot);
  rates.update(snapshot, history);
  cache.update(snapshot, slots, pointed ?? pinned);
  batch.update(holding, slots);
  batch.mark(pinned);
  const prefilling = holding.filter((one) => one.phase === "prefill").length;
  const decoding = holding.filter((one) => one.phase === "decode").length;
  say($("batch-summary"), holding.length ? `${prefilling} in prefill, ${decoding} in decode` : "");
  showQueue(snapshot.sequences.slice(holding.length), snapshot.waiting);
  showTotals(snapshot);
}

function point(name) {
  pointed = name;
  cache.select(pointed ?? pinned);
}

function pin(name) {
  pinned = name === pinned ? null : name;
  pointed = null;
  cache.select(pinned);
  batch.mark(pinned);
}

function showTotals(snapshot) {
  const finished = Object.entries(snapshot.finished).map(([reason, count]) => `${reason} ${whole(count)}`);
  const parts = [
    `${whole(snapshot.steps)} steps`,
    `${whole(snapshot.generation_tokens)} tokens generated`,
    `finished: ${finished.join(", ") || "none"}`,
    `${whole(snapshot.preemptions)} preemptions`,
  ];
  say($("totals"), `Since the engine was opened: ${parts.join(" · ")}`);
}

// The connection

let connection = null; // the AbortController of the one that is open
let held = false;
let pause = 1;

function tell(state, text) {
  $("status").dataset.state = state;
  say($("status"), text);
}

function connect() {
  disconnect();
  const mine = (connection = new AbortController());
  follow(sessionStorage.getItem(KEY), mine.signal, onEvent).then(
    () => retry(mine, "the server has ended"),
    (error) => (error instanceof KeyNeeded ? askForKey(mine) : retry(mine, "no connection")),
  );
}

function disconnect() {
  connection?.abort();
  connection = null;
}

function onEvent(name, data) {
  if (name === "model") {
    say($("model"), data.model);
    document.title = `${data.model} · enginesmith`;
    $("key-form").hidden = true;
    $("main").hidden = false;
  } else if (name === "snapshot") {
    pause = 1;
    tell("live", "live");
    show(data);
  }
}

function retry(mine, why) {
  if (connection !== mine) return; // it was ended here
  tell("off", `${why}, trying again`);
  setTimeout(() => connection === mine && connect(), 1000 * pause);
  pause = Math.min(LONGEST_PAUSE, 2 * pause);
}

function askForKey(mine) {
  if (connection !== mine) return;
  if (sessionStorage.getItem(KEY)) say($("key-reason"), "The server does not know that key. Try another one.");
  sessionStorage.removeItem(KEY);
  tell("off", "needs a key");
  $("main").hidden = true;
  $("key-form").hidden = false;
  $("key").focus();
}

function follows() {
  if (held || document.hidden) {
    disconnect();
    tell("held", held ? "held" : "paused");
  } else {
    tell("connecting", "connecting");
    connect();
  }
}

$("key-form").addEventListener("submit", (event) => {
  event.preventDefault();
  sessionStorage.setItem(KEY, $("key").value.trim());
  $("key").value = "";
  connect();
});
$("hold").addEventListener("click", () => {
  held = !held;
  $("hold").setAttribute("aria-pressed", held);
  follows();
});
document.addEventListener("visibilitychange", follows);
follows();
