// The KV cache: a map for each group, what it holds in words, and the block that is pointed at.

import { nameOf, palette } from "/page/colours.js";
import { element, percent, say, whole } from "/page/charts.js";
import { BlockMap } from "/page/map.js";
import { shortened } from "/page/sequences.js";

export class Cache {
  #maps = [];
  #sequences = [];
  #pointed = null; // [group, block]
  #onChoose;

  /** `onChoose(name)`: a sequence was chosen by a block of its own. */
  constructor(onChoose) {
    this.#onChoose = onChoose;
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
      for (const { map } of this.#maps) map.recolour(palette());
    });
  }

  update(snapshot, slots, selected) {
    this.#sequences = snapshot.sequences;
    if (this.#maps.length !== snapshot.groups.length) this.#make(snapshot.groups);
    this.select(selected, false);
    snapshot.groups.forEach((group, index) => {
      const { map, caption } = this.#maps[index];
      map.update(group, slots);
      const shared = group.shared.reduce((sum, [blocks]) => sum + blocks.length, 0);
      const told =
        `${whole(group.used)} of ${whole(group.total)} blocks in use (${percent(group.used / group.total)}), ` +
        `${whole(shared)} shared, ${whole(group.cached)} kept for reuse`;
      say(caption, told);
      map.describe(`Map of blocks: ${told}. Arrow keys move through it.`);
    });
    say(document.getElementById("cache-summary"), `blocks of ${snapshot.block_size} tokens`);
    if (this.#pointed) this.#tell();
  }

  /** Show whose the blocks of a sequence are; null: of all alike. */
  select(name, draw = true) {
    const place = name === null ? -1 : this.#sequences.findIndex((one) => nameOf(one) === name);
    for (const { map } of this.#maps) map.select(place < 0 ? null : place, draw);
  }

  #make(groups) {
    this.#maps = groups.map((group, index) => {
      const map = new BlockMap(palette(), (block) => this.#point(index, block), (block) => this.#choose(index, block));
      const kind = group.window ? `Sliding window of ${whole(group.window)} tokens` : "Full attention";
      const caption = element("span");
      const heading = element("p", { class: "group" }, groups.length > 1 ? element("b", {}, kind) : "", caption);
      return { map, caption, figure: element("div", {}, heading, map.element) };
    });
    document.getElementById("groups").replaceChildren(...this.#maps.map((one) => one.figure));
  }

  #point(index, block) {
    this.#pointed = block === null ? null : [index, block];
    if (this.#pointed) this.#tell();
  }

  #tell() {
    const [index, block] = this.#pointed;
    const holders = this.#maps[index].map.holdersOf(block);
    const names = Array.isArray(holders) ? holders.map((place) => shortened(this.#sequences[place])) : [];
    const told =
      holders === "free" ? "free, empty"
      : holders === "cached" ? "free, its content kept for reuse"
      : names.length > 1 ? `shared by ${names.length}: ${names.join(", ")}`
      : `held by ${names[0]}`;
    say(document.getElementById("readout"), `Block ${block}: ${told}`);
  }

  #choose(index, block) {
    const holders = block === null ? null : this.#maps[index].map.holdersOf(block);
    if (Array.isArray(holders) && holders.length === 1) this.#onChoose(nameOf(this.#sequences[holders[0]]));
  }
}
