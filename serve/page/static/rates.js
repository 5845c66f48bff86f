// The tiles: rates, latencies and counts of the last minute.

import { duration, Histogram, percent, rate, say, Sparkline, whole } from "/page/charts.js";

export class Rates {
  #decode = new Sparkline("decode", "tokens/s");
  #prefill = new Sparkline("prefill", "tokens/s");
  #ttft = new Histogram("ttft", "mean", { 0.01: "10 ms", 0.1: "0.1 s", 1: "1 s", 10: "10 s" });
  #itl = new Histogram("itl", "mean", { 0.05: "50 ms", 0.2: "0.2 s", 1: "1 s", 10: "10 s" });
  #hits = new Sparkline("hits", "of prompts");
  #requests = new Sparkline("requests", "running", 2);

  update(snapshot, history) {
    showRate(this.#decode, history, "generation_tokens");
    showRate(this.#prefill, history, "prefill_tokens");
    showLatency(this.#ttft, history.histogram("time_to_first_token"));
    showLatency(this.#itl, history.histogram("inter_token_latency"));
    this.#showHits(snapshot, history);
    say(this.#requests.value, whole(snapshot.running));
    say(this.#requests.note, `${whole(snapshot.waiting)} waiting`);
    this.#requests.update([history.gauge((one) => one.running), history.gauge((one) => one.waiting)]);
    this.#requests.describe(`${snapshot.running} running, ${snapshot.waiting} waiting`);
  }

  #showHits(snapshot, history) {
    const asked = history.growth("prefix_queries");
    const share = asked ? percent(history.growth("prefix_hits") / asked) : "–";
    say(this.#hits.value, share);
    say(this.#hits.note, `since the start ${percent(hitsUntil(snapshot))}`);
    this.#hits.update([history.gauge(hitsUntil)], 1);
    this.#hits.describe(`Prompt tokens found in the cache: ${asked ? share : "none were asked for"}`);
  }
}

const hitsUntil = (one) => (one.prefix_queries ? one.prefix_hits / one.prefix_queries : 0);

function showRate(tile, history, counter) {
  const points = history.rates(counter);
  const now = rate(points.at(-1)?.[1] ?? 0);
  const mean = rate(history.seconds ? history.growth(counter) / history.seconds : 0);
  say(tile.value, now);
  say(tile.note, `mean ${mean}`);
  tile.update([points]);
  tile.describe(`Tokens a second: ${now} now, ${mean} on average over the last minute`);
}

function showLatency(tile, histogram) {
  const told = histogram.number ? `half ${within(histogram.median)}, 99% ${within(histogram.p99)}` : "none measured";
  say(tile.value, histogram.number ? duration(histogram.mean) : "–");
  say(tile.note, told);
  tile.update(histogram);
  tile.describe(`Histogram of ${whole(histogram.number)} in the last minute: ${told}`);
}

const within = (bound) => (bound === Infinity ? "off the scale" : `≤ ${duration(bound).replace(".0", "")}`);
