// One cache group as a map: a cell a block, in the order of their ids. Only cells that changed are drawn.

import { colourOf, markOf } from "/page/colours.js";

const FREE = 0, CACHED = 1, SHARED = 2, FIRST_HOLDER = 3; // as serve/page/snapshot.py has them
const LARGEST = 18, SMALLEST = 4; // a cell with its gap, in CSS pixels
const FADED = 0x10000; // of a look: the block is none of the selected sequence's

export class BlockMap {
  #canvas = document.createElement("canvas");
  #context = this.#canvas.getContext("2d");
  #cells = new Uint16Array(0);
  #drawn = new Int32Array(0);
  #holders = new Map(); // block -> places, of shared ones
  #slots = [];
  #palette;
  #selected = null;
  #pitch = LARGEST;
  #columns = 1;
  #cursor = -1;

  /** `onPoint(block or null)`: the block under the pointer or the cursor. `onChoose(block)`: clicked, or Enter. */
  constructor(palette, onPoint, onChoose) {
    this.#palette = palette;
    this.element = this.#canvas;
    this.#canvas.tabIndex = 0;
    this.#canvas.setAttribute("role", "img");
    this.#canvas.addEventListener("pointermove", (event) => onPoint(this.#at(event)));
    this.#canvas.addEventListener("pointerleave", () => onPoint(null));
    this.#canvas.addEventListener("click", (event) => onChoose(this.#at(event)));
    this.#canvas.addEventListener("keydown", (event) => this.#onKey(event, onPoint, onChoose));
    this.#canvas.addEventListener("blur", () => this.#moveCursor(-1));
    new ResizeObserver(() => this.#layOut()).observe(this.#canvas);
  }

  /** Show a group of a snapshot; `slots[place]` is the look of a sequence. */
  update(group, slots) {
    const bytes = Uint8Array.from(atob(group.cells), (character) => character.charCodeAt(0));
    const resized = group.total !== this.#cells.length;
    this.#cells = new Uint16Array(group.total);
    const view = new DataView(bytes.buffer);
    for (let block = 0; block < group.total; block++) this.#cells[block] = view.getUint16(2 * block, true);
    this.#slots = slots;
    this.#holders.clear();
    for (const [blocks, places] of group.shared) for (const block of blocks) this.#holders.set(block, places);
    if (resized) this.#layOut();
    else this.#draw();
  }

  /** What the map says to those who do not see it. */
  describe(text) {
    if (this.#canvas.getAttribute("aria-label") !== text) this.#canvas.setAttribute("aria-label", text);
  }

  /** Fade all blocks but those of the sequence at this place; null: none. `draw` false: by the next update. */
  select(place, draw = true) {
    this.#selected = place;
    if (draw) this.#draw();
  }

  recolour(palette) {
    this.#palette = palette;
    this.#layOut();
  }

  /** What a block is: "free", "cached", or the places of those that hold it. */
  holdersOf(block) {
    const cell = this.#cells[block];
    if (cell === FREE) return "free";
    if (cell === CACHED) return "cached";
    return cell === SHARED ? this.#holders.get(block) : [cell - FIRST_HOLDER];
  }

  #at(event) {
    const column = Math.floor(event.offsetX / this.#pitch);
    const block = Math.floor(event.offsetY / this.#pitch) * this.#columns + column;
    return column < this.#columns && block >= 0 && block < this.#cells.length ? block : null;
  }

  #onKey(event, onPoint, onChoose) {
    const step = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -this.#columns, ArrowDown: this.#columns }[event.key];
    if (step) {
      const to = this.#cursor < 0 ? 0 : Math.min(this.#cells.length - 1, Math.max(0, this.#cursor + step));
      this.#moveCursor(to);
      onPoint(to);
    } else if ((event.key === "Enter" || event.key === " ") && this.#cursor >= 0) {
      onChoose(this.#cursor);
    } else {
      return;
    }
    event.preventDefault();
  }

  #moveCursor(block) {
    const before = this.#cursor;
    this.#cursor = block;
    for (const cell of [before, block]) if (cell >= 0) this.#drawCell(cell, this.#look(cell));
  }

  /** Choose the largest cells with which the map is not higher than a third of a wide screen, or half of a phone's. */
  #layOut() {
    const total = this.#cells.length;
    const width = this.#canvas.clientWidth;
    if (!total || !width) return;
    const highest = Math.max(160, window.innerHeight * (width < 600 ? 0.5 : 0.36));
    let pitch = LARGEST;
    while (pitch > SMALLEST && Math.ceil(total / Math.floor(width / pitch)) * pitch > highest) pitch--;
    this.#pitch = pitch;
    this.#columns = Math.floor(width / pitch);
    const height = Math.ceil(total / this.#columns) * pitch;
    const ratio = window.devicePixelRatio || 1;
    if (this.#canvas.width !== Math.round(width * ratio) || this.#canvas.height !== Math.round(height * ratio)) {
      this.#canvas.width = Math.round(width * ratio);
      this.#canvas.height = Math.round(height * ratio);
      this.#canvas.style.height = `${height}px`;
    }
    this.#context.setTransform(ratio, 0, 0, ratio, 0, 0);
    this.#context.clearRect(0, 0, width, height);
    this.#drawn = new Int32Array(total).fill(-1);
    this.#draw();
  }

  #draw() {
    for (let block = 0; block < this.#drawn.length; block++) {
      const look = this.#look(block);
      if (look !== this.#drawn[block]) this.#drawCell(block, look);
    }
  }

  /** A number that says how a block looks: its state, or FIRST_HOLDER and its holder's slot, and whether it is faded. */
  #look(block) {
    const cell = this.#cells[block];
    const look = cell < FIRST_HOLDER ? cell : FIRST_HOLDER + this.#slots[cell - FIRST_HOLDER];
    if (this.#selected === null) return look;
    const holders = this.holdersOf(block);
    return Array.isArray(holders) && holders.includes(this.#selected) ? look : look | FADED;
  }

  #drawCell(block, look) {
    this.#drawn[block] = look;
    const context = this.#context;
    const gap = this.#pitch > 6 ? 2 : 1;
    const size = this.#pitch - gap;
    const x = (block % this.#columns) * this.#pitch;
    const y = Math.floor(block / this.#columns) * this.#pitch;
    context.clearRect(x, y, this.#pitch, this.#pitch);
    const state = look & ~FADED;
    context.globalAlpha = look & FADED && state >= SHARED ? 0.18 : 1;
    if (state === FREE) {
      context.strokeStyle = this.#palette.free;
      context.lineWidth = 1;
      context.strokeRect(x + 0.5, y + 0.5, size - 1, size - 1);
    } else {
      context.fillStyle =
        state === CACHED ? this.#palette.cached
        : state === SHARED ? this.#palette.shared
        : this.#palette.held[colourOf(state - FIRST_HOLDER)];
      context.fillRect(x, y, size, size);
      if (state >= FIRST_HOLDER) this.#drawMark(markOf(state - FIRST_HOLDER), x, y, size);
    }
    context.globalAlpha = 1;
    if (block === this.#cursor) {
      context.strokeStyle = this.#palette.cursor;
      context.lineWidth = 2;
      context.strokeRect(x + 1, y + 1, size - 2, size - 2);
    }
  }

  #drawMark(mark, x, y, size) {
    const third = Math.max(1, Math.round(size / 3));
    const inset = (size - third) / 2;
    this.#context.fillStyle = this.#palette.surface;
    if (mark === "ring") this.#context.fillRect(x + inset, y + inset, third, third);
    if (mark === "bar") this.#context.fillRect(x, y + inset, size, third);
  }
}
