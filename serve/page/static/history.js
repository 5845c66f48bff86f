// What the page remembers of the snapshots: the totals of the last minute, and what follows from their differences.

export const WINDOW = 60; // seconds
const SMOOTHING = 1; // seconds over which a rate is taken


export class History {
  #samples = [];

  /** Take a snapshot; one of an engine that was started anew begins anew. */
  add(snapshot) {
    const last = this.#samples.at(-1);
    if (last && (snapshot.time < last.time || snapshot.steps < last.steps)) this.#samples = [];
    this.#samples.push(snapshot);
    while (this.#samples.length > 2 && this.#samples[1].time < snapshot.time - WINDOW) this.#samples.shift();
  }

  get seconds() {
    return this.#samples.at(-1).time - this.#samples[0].time;
  }

  /** [age in seconds, value] of a gauge. */
  gauge(value) {
    const now = this.#samples.at(-1).time;
    return this.#samples.map((sample) => [now - sample.time, value(sample)]);
  }

  /** [age in seconds, growth per second] of a counter. */
  rates(counter) {
    const now = this.#samples.at(-1).time;
    const points = [];
    let from = 0;
    for (let at = 1; at < this.#samples.length; at++) {
      const sample = this.#samples[at];
      while (from + 1 < at && this.#samples[from + 1].time <= sample.time - SMOOTHING) from++;
      const before = this.#samples[from];
      points.push([now - sample.time, (sample[counter] - before[counter]) / (sample.time - before.time)]);
    }
    return points;
  }

  /** How much a counter has grown. */
  growth(counter) {
    return this.#samples.at(-1)[counter] - this.#samples[0][counter];
  }

  /** A histogram's growth: bounds and counts of its buckets, their number, mean, and the bounds of two quantiles. */
  histogram(name) {
    const last = this.#samples.at(-1)[name];
    const first = this.#samples[0][name];
    const counts = last.counts.map((count, bucket) => count - first.counts[bucket]);
    const number = counts.reduce((sum, count) => sum + count, 0);
    return {
      bounds: last.bounds,
      counts,
      number,
      mean: number ? (last.sum - first.sum) / number : null,
      median: quantile(last.bounds, counts, number, 0.5),
      p99: quantile(last.bounds, counts, number, 0.99),
    };
  }
}

/** The bound of the bucket that holds a quantile; Infinity for the last, null where nothing was observed. */
function quantile(bounds, counts, number, share) {
  if (!number) return null;
  let seen = 0;
  for (let bucket = 0; bucket < bounds.length; bucket++) {
    seen += counts[bucket];
    if (seen >= share * number) return bounds[bucket];
  }
  return Infinity;
}

