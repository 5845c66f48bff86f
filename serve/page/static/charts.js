// The tiles: a number, what it means, and a small chart of the last minute.

import { WINDOW } from "/page/history.js";

const SVG = "http://www.w3.org/2000/svg";
const WIDTH = 200, HEIGHT = 44; // of a chart's view box; it is stretched

export function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

export function svg(name, attributes = {}, ...children) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

/** Set a text where it is another one: what does not change is not touched. */
export function say(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

export const whole = (number) => Math.round(number).toLocaleString("en");
export const percent = (share) => `${(100 * share).toFixed(share > 0 && share < 0.1 ? 1 : 0)}%`;

/** A rate with three digits at least where it has them. */
export const rate = (value) => (value < 99.95 ? value.toFixed(1) : whole(value));

/** A time in seconds as people read it. */
export function duration(seconds) {
  if (seconds < 0.01) return `${(1000 * seconds).toFixed(1)} ms`;
  if (seconds < 1) return `${Math.round(1000 * seconds)} ms`;
  return `${seconds < 10 ? seconds.toFixed(1) : Math.round(seconds)} s`;
}

/** A tile: its value, unit and note, and the chart below them. */
class Tile {
  constructor(id, unit) {
    this.value = element("strong");
    this.note = element("p", { class: "note" });
    this.top = element("span", { class: "top", "aria-hidden": "true" });
    this.chart = svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img" });
    const line = element("p", { class: "value" }, this.value, " ", element("span", {}, unit));
    const figure = element("div", { class: "chart" }, this.chart, this.top);
    document.getElementById(id).append(line, figure, this.note);
  }

  describe(text) {
    if (this.chart.getAttribute("aria-label") !== text) this.chart.setAttribute("aria-label", text);
  }
}

/** Lines over time; several are stacked. */
export class Sparkline extends Tile {
  #areas;
  #ceiling = 0;

  constructor(id, unit, lines = 1) {
    super(id, unit);
    this.#areas = Array.from({ length: lines }, (_, index) => [
      svg("path", { class: `area area-${index}` }),
      svg("path", { class: `line line-${index}`, "vector-effect": "non-scaling-stroke" }),
    ]);
    this.chart.append(...this.#areas.flat().reverse());
  }

  /** `series`: lists of [age, value], stacked in this order. `top`: what the scale ends at; default: a round number. */
  update(series, top = null) {
    const sums = series[0].map(() => 0);
    const stacked = series.map((points) => points.map(([age, value], index) => [age, (sums[index] += value)]));
    const ceiling = top ?? roundUp(Math.max(1, ...sums));
    stacked.forEach((points, index) => {
      const steps = points.map(([age, value]) => {
        const x = WIDTH * (1 - age / WINDOW);
        return `${x.toFixed(1)},${(HEIGHT - 1 - (HEIGHT - 2) * (value / ceiling)).toFixed(1)}`;
      });
      const [area, line] = this.#areas[index];
      if (!steps.length) return;
      const left = (WIDTH * (1 - points[0][0] / WINDOW)).toFixed(1);
      line.setAttribute("d", `M${steps.join("L")}`);
      area.setAttribute("d", `M${left},${HEIGHT}L${steps.join("L")}L${WIDTH},${HEIGHT}Z`);
    });
    if (ceiling !== this.#ceiling) say(this.top, top === null ? whole(ceiling) : percent(top));
    this.#ceiling = ceiling;
  }
}

/** Bars for a histogram's buckets, on an axis that stays. */
export class Histogram extends Tile {
  #bars = [];

  /** `marks`: {bound: label} along the axis. */
  constructor(id, unit, marks) {
    super(id, unit);
    this.marks = marks;
  }

  update(histogram) {
    if (!this.#bars.length) this.#build(histogram.bounds);
    const most = Math.max(1, ...histogram.counts);
    histogram.counts.forEach((count, bucket) => {
      const height = count ? Math.max(1.5, (HEIGHT - 2) * (count / most)) : 0;
      this.#bars[bucket].setAttribute("y", HEIGHT - height);
      this.#bars[bucket].setAttribute("height", height);
    });
  }

  #build(bounds) {
    const width = WIDTH / (bounds.length + 1);
    this.#bars = [...bounds, null].map((_, index) =>
      svg("rect", { class: "bar", x: index * width + 0.8, width: width - 1.6, y: HEIGHT, height: 0 }),
    );
    this.chart.append(...this.#bars);
    const axis = svg("svg", { class: "axis", "aria-hidden": "true" });
    for (const [bound, text] of Object.entries(this.marks)) {
      const x = `${(100 * (bounds.indexOf(Number(bound)) + 1)) / (bounds.length + 1)}%`;
      axis.append(svg("line", { x1: x, x2: x, y1: 0, y2: 3 }));
      const label = svg("text", { x, y: 12, "text-anchor": "middle" });
      label.textContent = text;
      axis.append(label);
    }
    this.chart.parentNode.after(axis);
  }
}

/** The next of 1, 2, 5, 10, 20 ... */
function roundUp(value) {
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 5, 10].find((factor) => factor * power >= value) * power;
}
