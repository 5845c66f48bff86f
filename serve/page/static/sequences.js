// The running batch as a table, a row a sequence that stays the same row, and the queue.

import { colourOf, markOf, nameOf } from "/page/colours.js";
import { element, say, svg, whole } from "/page/charts.js";

const MOST_ROWS = 256;
const PHASES = { prefill: "prefill", decode: "decode", waiting: "waits" };

/** An id as far as it tells one from another; the whole of it is in the title. */
export const shortened = (sequence) => {
  const id = sequence.id.length > 14 ? `…${sequence.id.slice(-10)}` : sequence.id;
  return sequence.index ? `${id} ·${sequence.index}` : id;
};

export class Batch {
  #body = document.getElementById("batch");
  #rows = new Map();
  #onPoint;
  #onChoose;

  /** `onPoint(name or null)`: the sequence under the pointer or the focus. `onChoose(name)`: it was pressed. */
  constructor(onPoint, onChoose) {
    this.#onPoint = onPoint;
    this.#onChoose = onChoose;
  }

  update(sequences, slots) {
    const longest = Math.max(1, ...sequences.map((one) => one.prompt + one.output));
    const scale = 2 ** Math.ceil(Math.log2(longest));
    const shown = sequences.slice(0, MOST_ROWS);
    const present = new Set(shown.map(nameOf));
    for (const [name, row] of this.#rows) {
      if (present.has(name)) continue;
      row.element.remove();
      this.#rows.delete(name);
    }
    shown.forEach((sequence, place) => {
      const name = nameOf(sequence);
      if (!this.#rows.has(name)) this.#rows.set(name, this.#row(name, sequence, slots[place]));
      const row = this.#rows.get(name);
      if (this.#body.children[place] !== row.element) this.#body.insertBefore(row.element, this.#body.children[place]);
      row.update(sequence, scale);
    });
    say(document.getElementById("scale"), sequences.length ? `of ${whole(scale)}` : "");
    document.getElementById("batch-empty").hidden = sequences.length > 0;
  }

  /** Mark the row of the chosen sequence. */
  mark(chosen) {
    for (const [name, row] of this.#rows) {
      row.element.classList.toggle("pinned", name === chosen);
      row.button.setAttribute("aria-pressed", name === chosen);
    }
  }

  #row(name, sequence, slot) {
    const row = new Row(sequence, slot);
    row.button.addEventListener("click", () => this.#onChoose(name));
    row.element.addEventListener("pointerenter", (event) => event.pointerType === "mouse" && this.#onPoint(name));
    row.element.addEventListener("pointerleave", () => this.#onPoint(null));
    row.button.addEventListener("focus", () => row.button.matches(":focus-visible") && this.#onPoint(name));
    row.button.addEventListener("blur", () => this.#onPoint(null));
    return row;
  }
}

class Row {
  constructor(sequence, slot) {
    this.button = element("button", { type: "button", title: `${sequence.id}: show its blocks` });
    this.button.append(swatch(slot), element("span", {}, shortened(sequence)));
    this.phase = element("span", { class: "phase" });
    this.percent = element("span", { class: "percent" });
    this.parts = ["pending", "prompt", "reused", "output"].map((part) => svg("rect", { class: part, height: "100%" }));
    this.strip = svg("svg", { class: `strip colour-${colourOf(slot)}`, role: "img" }, ...this.parts);
    this.numbers = ["prompt", "cached", "output", "blocks"].map((name) =>
      element("td", { class: "number", "data-label": name }),
    );
    this.element = element(
      "tr",
      {},
      element("th", { scope: "row" }, this.button),
      element("td", { class: "phases" }, this.phase, this.percent),
      element("td", { class: "strip" }, this.strip),
      ...this.numbers,
    );
  }

  update(sequence, scale) {
    say(this.phase, PHASES[sequence.phase] ?? sequence.phase);
    this.phase.dataset.phase = sequence.phase;
    const done = Math.min(sequence.computed, sequence.prompt);
    say(this.percent, sequence.phase === "prefill" ? ` ${Math.floor((100 * done) / sequence.prompt)}%` : "");
    const cached = Math.min(sequence.cached, done);
    const spans = [[0, sequence.prompt], [0, done], [0, cached], [sequence.prompt, sequence.prompt + sequence.output]];
    spans.forEach(([from, to], part) => {
      this.parts[part].setAttribute("x", `${(100 * from) / scale}%`);
      this.parts[part].setAttribute("width", `${(100 * (to - from)) / scale}%`);
    });
    const blocks = sequence.blocks.reduce((sum, count) => sum + count, 0);
    [sequence.prompt, sequence.cached, sequence.output, blocks].forEach((number, column) =>
      say(this.numbers[column], whole(number)),
    );
    this.strip.setAttribute(
      "aria-label",
      `${done} of ${sequence.prompt} prompt tokens, ${cached} of them cached, ${sequence.output} output tokens`,
    );
  }
}

function swatch(slot) {
  const mark = svg("svg", { class: `swatch colour-${colourOf(slot)}`, viewBox: "0 0 12 12", "aria-hidden": "true" });
  mark.append(svg("rect", { class: "output", width: 12, height: 12, rx: 2 }));
  if (markOf(slot) === "ring") mark.append(svg("rect", { class: "hole", x: 4, y: 4, width: 4, height: 4 }));
  if (markOf(slot) === "bar") mark.append(svg("rect", { class: "hole", x: 0, y: 4, width: 12, height: 4 }));
  return mark;
}

/** Show who waits, the next one first; `total` may be more than are told one by one. */
export function showQueue(sequences, total) {
  const list = document.getElementById("queue");
  while (list.children.length > sequences.length) list.lastChild.remove();
  sequences.forEach((sequence, place) => {
    if (!list.children[place]) list.append(element("li"));
    const item = list.children[place];
    say(item, whole(sequence.prompt + sequence.output));
    item.title = `${sequence.id}: ${sequence.prompt} prompt tokens` + (sequence.output ? ", preempted" : "");
  });
  const more = total - sequences.length;
  const told = sequences.length ? `: tokens of each, the next one first${more > 0 ? `, and ${whole(more)} more` : ""}` : "";
  say(document.getElementById("queue-summary"), total ? `${whole(total)} waiting${told}` : "Nobody waits.");
}
