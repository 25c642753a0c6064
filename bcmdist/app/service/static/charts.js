// Charts as SVG, without a library; each has a text description.
const WIDTH = 340, LEAST = 240, HEIGHT = 190, LEFT = 48, RIGHT = 10, TOP = 8, BOTTOM = 34;

export function element(name, attributes = {}, ...children) {
  const svg = name.startsWith("svg:");
  const made = svg ? document.createElementNS("http://www.w3.org/2000/svg", name.slice(4)) : document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

// The width of an element in pixels, so that the text of a chart in it has its own size.
export const widthOf = (id) => Math.max(LEAST, document.getElementById(id).clientWidth || WIDTH);

export const short = (value) => {
  const number = Number(value), size = Math.abs(number);
  if (value === null || !Number.isFinite(number)) return "not known";
  if (Number.isInteger(number) && size < 1e12) return number.toLocaleString("en");
  if (size >= 1e12 || size < 1e-3) return number.toExponential(1);
  return number.toLocaleString("en", size >= 1000 ? { maximumFractionDigits: 0 } : { maximumSignificantDigits: 3 });
};

const compact = new Intl.NumberFormat("en", { notation: "compact", maximumSignificantDigits: 4 });
const label = (tick) => (Math.abs(tick) >= 1e5 ? compact.format(tick) : short(tick));

// A round number of about this size: 1, 2 or 5 times a power of ten.
export function rounded(size) {
  const power = 10 ** Math.floor(Math.log10(size));
  return [1, 2, 5, 10].map((k) => k * power).find((one) => one >= size * (1 - 1e-9));
}

// About four round numbers within limits, for axis ticks.
function ticks(low, high) {
  const step = rounded((high - low) / 4), found = [];
  for (let k = Math.ceil(low / step - 1e-9); k * step <= high + 1e-9 * step; k++) found.push(Number((k * step).toPrecision(12)));
  return found;
}

// About three dates within limits in days since 1970, for axis ticks; times where the limits are within some days.
const MINUTES = [1, 5, 15, 30, 60, 180, 360, 720].map((minutes) => minutes / 1440);
function dates(low, high) {
  const about = (high - low) / 3, step = MINUTES.find((one) => one >= about) ?? Math.ceil(rounded(about)), found = [];
  for (let k = Math.ceil(low / step - 1e-9); k * step <= high + 1e-9; k++) found.push(k * step);
  const text = (day) => new Date(1000 * Math.round(86400 * day)).toISOString();
  return found.map((day) => [day, step < 1 ? text(day).slice(5, 16).replace("T", " ") : text(day).slice(0, 10)]);
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
   parts: {kind: "line" | "marks" | "aim" | "dot", x, y, series}, {kind: "band" | "bar", x, low, high} or {kind: "at", x}
   description: text description of the chart; bare: without numbers at the vertical axis; dates: x is days since 1970 */
export function chart(parts, { across, up, description, xlimits, ylimits, bare, dates: ofDates, width = WIDTH, height = HEIGHT }) {
  const xs = parts.flatMap((part) => part.x), ys = parts.flatMap((part) => part.y ?? [...(part.low ?? []), ...(part.high ?? [])]);
  const [x0, x1] = limits(xs, xlimits), [y0, y1] = limits(ys, ylimits);
  const right = width - RIGHT, bottom = height - BOTTOM;
  const px = (v) => LEFT + ((right - LEFT) * (v - x0)) / (x1 - x0), py = (v) => bottom - ((bottom - TOP) * (v - y0)) / (y1 - y0);
  const drawn = [];
  for (const tick of ticks(y0, y1)) {
    drawn.push(element("svg:line", { class: "axis", x1: LEFT, x2: right, y1: py(tick), y2: py(tick) }));
    if (!bare) drawn.push(element("svg:text", { class: "end", x: LEFT - 5, y: py(tick) + 4 }, label(tick)));
  }
  const places = ofDates ? dates(x0, x1) : ticks(x0, x1).map((tick) => [tick, label(tick)]);
  for (const [tick, text] of places) drawn.push(element("svg:text", { class: "middle", x: px(tick), y: bottom + 15 }, text));
  drawn.push(element("svg:text", { class: "end name", x: right, y: height - 4 }, across));
  drawn.push(element("svg:text", { class: "name", x: 2, y: height - 4 }, `↑ ${up}`));
  for (const part of parts) drawn.push(...shapes(part, px, py, [TOP, bottom]));
  return element("svg:svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": description }, ...drawn);
}

function shapes(part, px, py, [top, bottom]) {
  const x = part.x.map(px), series = part.series ? ` series${part.series}` : "";
  if (part.kind === "marks" || part.kind === "dot") {
    const r = part.kind === "dot" ? 4.5 : 2.5;
    return x.map((at, k) => element("svg:circle", { class: part.kind + series, cx: at, cy: py(part.y[k]), r }));
  }
  if (part.kind === "at") return x.map((at) => element("svg:line", { class: "at", x1: at, x2: at, y1: top, y2: bottom }));
  if (part.kind === "bar") return x.map((at, k) => element("svg:line", { class: "bar", x1: at, x2: at, y1: py(part.low[k]), y2: py(part.high[k]) }));
  if (part.kind === "band") {
    const edge = [...points(x, part.high.map(py)), ...points(x, part.low.map(py)).reverse()];
    return [element("svg:path", { class: "band", d: `M${edge.join("L")}Z` })];
  }
  return [element("svg:path", { class: part.kind + series, d: `M${points(x, part.y.map(py)).join("L")}` })];
}

/* Horizontal bars with names; values are between 0 and 1. */
export function bars(names, values, { labels, description, width = WIDTH }) {
  const high = 20 * names.length + 4, start = Math.min(150, 0.38 * width), room = width - start - 70, most = Math.floor(start / 6.5);
  const drawn = names.flatMap((name, k) => [
    element("svg:text", { class: "end", x: start - 6, y: 20 * k + 15 }, element("svg:title", {}, name), name.length > most ? `${name.slice(0, most - 1)}…` : name),
    element("svg:rect", { class: "marks", x: start, y: 20 * k + 5, height: 12, rx: 2, width: Math.max(1, room * values[k]) }),
    element("svg:text", { x: start + 6 + room * values[k], y: 20 * k + 15 }, labels[k]),
  ]);
  return element("svg:svg", { viewBox: `0 0 ${width} ${high}`, role: "img", "aria-label": description }, ...drawn);
}
