// Charts as SVG, without a library; each has a text description.
const WIDTH = 340, HEIGHT = 190, LEFT = 46, RIGHT = 10, TOP = 8, BOTTOM = 34;

export function element(name, attributes = {}, ...children) {
  const svg = name.startsWith("svg:");
  const made = svg ? document.createElementNS("http://www.w3.org/2000/svg", name.slice(4)) : document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

export const short = (value) => {
  const number = Number(value), size = Math.abs(number);
  if (!Number.isFinite(number)) return "not known";
  if (Number.isInteger(number) && size < 1e9) return number.toLocaleString("en");
  return size >= 1e5 || (size > 0 && size < 1e-3) ? number.toExponential(1) : String(Number(number.toPrecision(3)));
};

// About four round numbers within limits, for axis ticks.
function ticks(low, high) {
  const raw = (high - low) / 4, power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((k) => k * power).find((one) => one >= raw);
  const found = [];
  for (let k = Math.ceil(low / step - 1e-9); k * step <= high + 1e-9 * step; k++) found.push(Number((k * step).toPrecision(12)));
  return found;
}

// Axis limits with a margin; also for a single value.
function limits(values, given) {
  if (given) return given;
  const [low, high] = [Math.min(...values), Math.max(...values)];
  const room = high > low ? 0.06 * (high - low) : 0.1 * Math.abs(high) || 1;
  return [low - room, high + room];
}

const points = (x, y) => x.map((value, k) => `${value.toFixed(1)} ${y[k].toFixed(1)}`);

/* A chart of series against x.
   parts: {kind: "line" | "marks" | "aim", x, y} or {kind: "band", x, low, high}
   said: text description of the chart */
export function chart(parts, { across, up, said, xlimits, ylimits }) {
  const xs = parts.flatMap((part) => part.x), ys = parts.flatMap((part) => part.y ?? [...part.low, ...part.high]);
  const [x0, x1] = limits(xs, xlimits), [y0, y1] = limits(ys, ylimits);
  const right = WIDTH - RIGHT, bottom = HEIGHT - BOTTOM;
  const px = (v) => LEFT + ((right - LEFT) * (v - x0)) / (x1 - x0), py = (v) => bottom - ((bottom - TOP) * (v - y0)) / (y1 - y0);
  const drawn = [];
  for (const tick of ticks(y0, y1)) {
    drawn.push(element("svg:line", { class: "axis", x1: LEFT, x2: right, y1: py(tick), y2: py(tick) }));
    drawn.push(element("svg:text", { class: "end", x: LEFT - 5, y: py(tick) + 4 }, short(tick)));
  }
  for (const tick of ticks(x0, x1)) drawn.push(element("svg:text", { class: "middle", x: px(tick), y: bottom + 15 }, short(tick)));
  drawn.push(element("svg:text", { class: "end", x: right, y: HEIGHT - 4 }, across));
  drawn.push(element("svg:text", { x: 2, y: HEIGHT - 4 }, `↑ ${up}`));
  for (const part of parts) drawn.push(...shapes(part, px, py));
  return element("svg:svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": said }, ...drawn);
}

function shapes(part, px, py) {
  const x = part.x.map(px);
  if (part.kind === "marks") return x.map((at, k) => element("svg:circle", { class: "mark", cx: at, cy: py(part.y[k]), r: 2.5 }));
  if (part.kind === "band") {
    const edge = [...points(x, part.high.map(py)), ...points(x, part.low.map(py)).reverse()];
    return [element("svg:path", { class: "band", d: `M${edge.join("L")}Z` })];
  }
  return [element("svg:path", { class: part.kind, d: `M${points(x, part.y.map(py)).join("L")}` })];
}

/* Horizontal bars with names; values are between 0 and 1. */
export function bars(names, values, { labels, said }) {
  const high = 20 * names.length + 4;
  const drawn = names.flatMap((name, k) => [
    element("svg:text", { class: "end", x: 104, y: 20 * k + 15 }, element("svg:title", {}, name), name.length > 15 ? `${name.slice(0, 14)}…` : name),
    element("svg:rect", { class: "mark", x: 110, y: 20 * k + 4, height: 14, width: Math.max(1, 160 * values[k]) }),
    element("svg:text", { x: 116 + 160 * values[k], y: 20 * k + 15 }, labels[k]),
  ]);
  return element("svg:svg", { viewBox: `0 0 ${WIDTH} ${high}`, role: "img", "aria-label": said }, ...drawn);
}

/* A heat map of values over two axes, one row per value of the second axis; a stronger colour is a larger value. */
export function map([across, up], values, { columns, said }) {
  const [low, high] = [Math.min(...values), Math.max(...values)];
  const right = WIDTH - RIGHT, bottom = HEIGHT - BOTTOM;
  const [wide, tall] = [(right - LEFT) / across.length, (bottom - TOP) / up.length];
  const drawn = values.map((value, k) => element("svg:rect", {
    class: "mark", "shape-rendering": "crispEdges", "fill-opacity": (0.06 + (0.94 * (value - low)) / (high - low || 1)).toFixed(3), width: wide + 0.3, height: tall + 0.3,
    x: LEFT + wide * (k % across.length), y: bottom - tall * (1 + Math.floor(k / across.length)),
  }));
  const text = (x, y, kind, value) => drawn.push(element("svg:text", { x, y, class: kind }, value));
  text(LEFT, bottom + 15, "", short(across[0]));
  text(right, bottom + 15, "end", short(across.at(-1)));
  text(LEFT - 5, bottom, "end", short(up[0]));
  text(LEFT - 5, TOP + 9, "end", short(up.at(-1)));
  text(right, HEIGHT - 4, "end", columns[0]);
  text(2, HEIGHT - 4, "", `↑ ${columns[1]}`);
  return element("svg:svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": `${said}, from ${short(low)} to ${short(high)}` }, ...drawn);
}
