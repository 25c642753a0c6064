// Maps of a prediction over two coordinates, with a scale of colours.
import { element, short } from "./charts.js";

const LEFT = 48, RIGHT = 64, TOP = 8, BOTTOM = 34;
// Colours of increasing lightness, red, green and blue between 0 and 255: of values, and of their uncertainty.
const VALUES = [[46, 24, 92], [64, 70, 140], [42, 120, 142], [46, 168, 128], [140, 208, 80], [252, 230, 60]];
const UNCERTAINTY = [[40, 44, 52], [92, 62, 92], [158, 70, 92], [216, 100, 78], [244, 160, 96], [252, 226, 180]];
const STEPS = 24; // of the scale

function colour(share, stops) {
  const at = Math.min(Math.max(share, 0), 1) * (stops.length - 1), k = Math.min(Math.floor(at), stops.length - 2);
  return `rgb(${stops[k].map((value, c) => Math.round(value + (at - k) * (stops[k + 1][c] - value))).join(" ")})`;
}

// Height in the proportion of the coordinates, where their ranges have about the same size.
function heightOf(across, up, width) {
  const ratio = (up.at(-1) - up[0]) / (across.at(-1) - across[0]), wide = width - LEFT - RIGHT;
  return TOP + BOTTOM + wide * (ratio > 0.2 && ratio < 5 ? Math.min(Math.max(ratio, 0.5), 1) : 0.75);
}

/* A map of values over two axes; the first varies fastest.
   pick: function of the coordinates of a cell that was clicked */
export function map([across, up], values, { columns, description, uncertain, pick, width }) {
  const [low, high] = [Math.min(...values), Math.max(...values)], stops = uncertain ? UNCERTAINTY : VALUES;
  const height = heightOf(across, up, width), right = width - RIGHT, bottom = height - BOTTOM;
  const [wide, tall] = [(right - LEFT) / across.length, (bottom - TOP) / up.length];
  const drawn = values.map((value, k) => {
    const [i, j] = [k % across.length, Math.floor(k / across.length)];
    const fill = colour((value - low) / (high - low || 1), stops);
    const cell = element("svg:rect", { fill, "shape-rendering": "crispEdges", width: wide + 0.3, height: tall + 0.3, x: LEFT + wide * i, y: bottom - tall * (1 + j) });
    cell.append(element("svg:title", {}, `${short(value)} at ${short(across[i])}, ${short(up[j])}`));
    cell.addEventListener("click", () => pick([across[i], up[j]]));
    return cell;
  });
  const text = (x, y, kind, value) => drawn.push(element("svg:text", { x, y, class: kind }, value));
  text(LEFT, bottom + 15, "", short(across[0]));
  text(right, bottom + 15, "end", short(across.at(-1)));
  text(LEFT - 5, bottom, "end", short(up[0]));
  text(LEFT - 5, TOP + 9, "end", short(up.at(-1)));
  text(right, height - 4, "end name", columns[0]);
  text(2, height - 4, "name", `↑ ${columns[1]}`);
  for (let k = 0; k < STEPS; k++) {
    const step = (bottom - TOP) / STEPS;
    drawn.push(element("svg:rect", { fill: colour((k + 0.5) / STEPS, stops), x: right + 10, y: bottom - step * (k + 1), width: 10, height: step + 0.3 }));
  }
  text(right + 24, bottom, "", short(low));
  text(right + 24, TOP + 9, "", short(high));
  return element("svg:svg", { viewBox: `0 0 ${width} ${height.toFixed(0)}`, role: "img", "aria-label": `${description}, from ${short(low)} to ${short(high)}` }, ...drawn);
}
