// What a sequence looks like: one of seven colours that are told apart without full colour vision (Okabe and Ito), and,
// when there are more sequences than colours, a mark. A sequence keeps its look as long as it is there.

export const COLOURS = 7;
export const MARKS = ["solid", "ring", "bar"];

export const nameOf = (sequence) => `${sequence.id} ${sequence.index}`;

export class Looks {
  #slots = new Map();

  /** Give each sequence its slot: the lowest free one to a new sequence. Returns the slots, in order. */
  assign(sequences) {
    const names = sequences.map(nameOf);
    const present = new Set(names);
    for (const name of this.#slots.keys()) if (!present.has(name)) this.#slots.delete(name);
    const taken = new Set(this.#slots.values());
    let lowest = 0;
    return names.map((name) => {
      if (!this.#slots.has(name)) {
        while (taken.has(lowest)) lowest++;
        taken.add(lowest);
        this.#slots.set(name, lowest);
      }
      return this.#slots.get(name);
    });
  }
}

export const colourOf = (slot) => slot % COLOURS;
export const markOf = (slot) => MARKS[Math.floor(slot / COLOURS) % MARKS.length];

/** The page's colours as a canvas takes them; they change with light and dark. */
export function palette() {
  const style = getComputedStyle(document.documentElement);
  const read = (name) => style.getPropertyValue(name).trim();
  return {
    held: Array.from({ length: COLOURS }, (_, index) => read(`--c${index}`)),
    shared: read("--ink"),
    cached: read("--cached"),
    free: read("--line"),
    surface: read("--surface"),
    cursor: read("--focus"),
  };
}
