// Numbers and times in words, and sentences of cards.
import { element } from "./charts.js";

export const percent = (share) => `${(100 * share).toFixed(1)} %`;

const UNITS = [[86400, "day"], [3600, "hour"], [60, "minute"], [1, "second"]];

export function duration(seconds) {
  const [size, unit] = UNITS.find(([size]) => seconds >= 2 * size) ?? UNITS.at(-1);
  const count = Math.round(seconds / size);
  return `${count} ${unit}${count === 1 ? "" : "s"}`;
}

// A paragraph; text between backquotes is code.
export function note(text, kind = "") {
  const parts = text.split("`").map((part, k) => (k % 2 ? element("code", {}, part) : part));
  return element("p", kind ? { class: kind } : {}, ...parts);
}
