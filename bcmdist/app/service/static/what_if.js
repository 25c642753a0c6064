// What-if: the prediction at the row of the form, and along one of its columns, drawn again as the form changes.
// One request at a time: while one is being answered, only the newest state of the form waits.
import { bars, chart, element, short, widthOf } from "./charts.js";
import { bodyOf, fieldsOf, invalid, numberOf, showForm, textOf } from "./form.js";
import { ask } from "./token.js";
import { note } from "./words.js";

const $ = (id) => document.getElementById(id);
const POINTS = 50, MOST_CLASSES = 6;
const LEVELS = [0.005, 0.01, ...Array.from({ length: 32 }, (_, k) => Number((0.03 * (k + 1)).toFixed(2))), 0.99, 0.995];
let model = null, fields = [], along = null, asking = false, waiting = false;

// Shows the form of a model at its start; asks for both.
export async function start(name) {
  model = null;
  for (const id of ["answer", "band", "density", "inputs", "started", "advice"]) $(id).replaceChildren();
  const answer = await ask(`/models/${name}?start=true`);
  if (name !== $("model").value) return;
  const found = await answer.json();
  if (name !== $("model").value) return;
  if (!answer.ok) return $("answer").replaceChildren(note(found.message, "alarm"));
  model = found;
  const from = model.start.last ? "the last row absorbed" : "a typical row, since the rows absorbed cannot be read here";
  $("started").replaceChildren(`Starts at ${from}. Move a slider: the curve shows the prediction along it.`);
  fields = showForm(fieldsOf(model), model.start.row, changed);
  follow(mostRelevant());
  showAdvice(model.advice ?? "");
  await draw();
}

// Sets two numbers of the form, given by the names of their columns, as from a click on a map.
export function moveTo(columns, place) {
  const found = columns.map((name) => fields.find((field) => field.name === name && field.slider));
  if (!found.every(Boolean)) return; // the form is not there yet
  found.forEach(({ entry, slider, period }, k) => {
    const value = period ? place[k] - period * Math.floor(place[k] / period + 0.5) : place[k];
    entry.value = slider.value = Number(value.toPrecision(6));
  });
  draw();
}

function showAdvice(advice) {
  const sentences = advice.split(". ").filter(Boolean).map((text) => element("li", {}, `${text.replace(/\.$/, "")}.`));
  $("advice").replaceChildren(...sentences);
  $("advice").closest("figure").hidden = !sentences.length;
}

// The number along which predictions change most, in units of its spread.
function mostRelevant() {
  const moving = fields.filter((field) => field.slider && field.low < field.high);
  const { columns = [], parts = [] } = model.relevance ?? {}, share = parts[0]?.share ?? [];
  const shareOf = ({ name }) => share[columns.indexOf(name)] ?? 0;
  return moving.sort((a, b) => shareOf(b) - shareOf(a))[0] ?? null;
}

function follow(field) {
  along = field;
  for (const one of fields) one.entry.closest(".field").classList.toggle("along", one === field);
}

function changed(field) {
  if (field.slider) follow(field);
  draw();
}

// Draws the newest state of the form; a state that changed meanwhile is drawn next, those between are left out.
export async function draw() {
  waiting = true;
  if (asking) return;
  asking = true;
  try {
    while (waiting && model) {
      waiting = false;
      await drawCurve();
      if (!waiting && model && !model.categorical) await drawDensity();
    }
  } finally {
    asking = false;
  }
}

async function predict(body) {
  const of = model.model;
  const answer = await ask(`/models/${of}/predict`, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) });
  const found = await answer.json();
  if (model?.model !== of) return null;
  if (answer.ok) return found.predictions;
  for (const id of ["band", "density"]) $(id).replaceChildren();
  $("answer").replaceChildren(note(found.message, "alarm"));
  return null;
}

// The places along the column, and last the row as it is.
function grid() {
  const { min, max } = along.slider, [low, high] = [Number(min), Number(max)];
  return Array.from({ length: POINTS }, (_, k) => low + ((high - low) * k) / (POINTS - 1));
}

async function drawCurve() {
  const odd = invalid(fields);
  if (odd) return $("answer").replaceChildren(note(`${odd.name}: ${odd.entry.validationMessage}`, "alarm"));
  const field = along, x = field ? grid() : [];
  const now = field ? numberOf(field) : null;
  const found = await predict(bodyOf(fields, Boolean(model.fields), field, [...x, null]));
  if (!found) return;
  const shown = found.probability ? classesAlong(found, x, now, field) : bandAlong(found, x, now, field);
  $("answer").replaceChildren(...shown.answer);
  $("band").replaceChildren(...(field ? [shown.chart] : []));
  $("values").hidden = !field;
  $("values").querySelector("table").replaceChildren(...(field ? table(shown.table) : []));
}

const named = (field) => field.name + (field.unit ? ` in ${field.unit}` : "");
const placeOf = (field, at) => (field.kind === "date" ? textOf(field, at) : short(at));
const across = (field) => ({ across: named(field), ...(field.kind === "date" ? { dates: true } : {}) });
const target = () => (model.target === "y" ? "prediction" : model.target);
const size = () => ({ width: widthOf("band"), height: 250 });

function bandAlong({ observation_mean: mean, lower95: low, upper95: high }, x, now, field) {
  const k = x.length, text = `${short(mean[k])}, 95 % between ${short(low[k])} and ${short(high[k])}`;
  const answer = [element("span", { class: "quiet" }, target()), element("strong", {}, short(mean[k])), element("span", {}, `95 % between ${short(low[k])} and ${short(high[k])}`)];
  if (!field) return { answer };
  const parts = [{ kind: "band", x, low: low.slice(0, k), high: high.slice(0, k) }, { kind: "line", x, y: mean.slice(0, k) }];
  if (now !== null) parts.push({ kind: "at", x: [now] }, { kind: "bar", x: [now], low: [low[k]], high: [high[k]] }, { kind: "dot", x: [now], y: [mean[k]] });
  const description = `Prediction along ${field.name} with its 95 % band; at the row of the form ${text}`;
  const drawn = chart(parts, { ...across(field), up: `${target()}, with 95 % band`, description, xlimits: [Math.min(x[0], now ?? x[0]), Math.max(x.at(-1), now ?? x[0])], ...size() });
  return { answer, chart: drawn, table: [[named(field), target(), "95 % from", "to"], ...x.map((at, i) => [placeOf(field, at), ...[mean[i], low[i], high[i]].map(short)])] };
}

function classesAlong({ probability }, x, now, field) {
  const k = x.length, names = probability[k].map((_, c) => String(Array.isArray(model.classes) ? model.classes[c] : c));
  const all = names.map((_, c) => c), likeliest = (a, b) => probability[k][b] - probability[k][a];
  const order = all.length > MOST_CLASSES ? all.sort(likeliest).slice(0, MOST_CLASSES) : all;
  const description = order.map((c) => `${names[c]}: ${short(probability[k][c])}`).join(", ");
  const answer = [bars(order.map((c) => names[c]), order.map((c) => probability[k][c]), { labels: order.map((c) => short(probability[k][c])), description: `Probabilities: ${description}`, width: Math.min(widthOf("answer"), 420) })];
  if (!field) return { answer };
  const drawn = names.length === 2 ? [1] : order;
  const parts = drawn.flatMap((c, n) => [
    { kind: "line", series: n + 1, x, y: probability.slice(0, k).map((row) => row[c]) },
    ...(now === null ? [] : [{ kind: "dot", series: n + 1, x: [now], y: [probability[k][c]] }]),
  ]);
  if (now !== null) parts.unshift({ kind: "at", x: [now] });
  const up = drawn.length === 1 ? `probability of ${names[1]}` : "probability";
  const svg = chart(parts, { ...across(field), up, description: `Probabilities along ${field.name}; at the row of the form ${description}`, ylimits: [0, 1], ...size() });
  const legend = element("p", { class: "legend" }, ...drawn.map((c, n) => element("span", { class: `series${n + 1}` }, names[c])));
  return { answer, chart: element("div", {}, svg, ...(drawn.length > 1 ? [legend] : [])), table: [[named(field), ...drawn.map((c) => names[c])], ...x.map((at, i) => [placeOf(field, at), ...drawn.map((c) => short(probability[i][c]))])] };
}

function table([names, ...rows]) {
  const head = element("thead", {}, element("tr", {}, ...names.map((name) => element("th", { scope: "col", class: "number" }, name))));
  const cells = (row) => element("tr", {}, ...row.map((value) => element("td", { class: "number" }, value)));
  return [head, element("tbody", {}, ...rows.map(cells))];
}

async function drawDensity() {
  if (invalid(fields)) return;
  const found = await predict({ ...bodyOf(fields, Boolean(model.fields), null, null), quantiles: LEVELS });
  if (found) $("density").replaceChildren(density(LEVELS.map((level) => found[`quantile${level}`][0]), short(found.observation_mean[0])));
}

// A density from quantiles: probability mass divided by width between adjacent quantiles, at their midpoint.
function density(edges, text) {
  const least = 1e-9 * (edges.at(-1) - edges[0]) || 1e-9;
  const middle = edges.slice(1).map((edge, k) => (edge + edges[k]) / 2);
  const height = middle.map((_, k) => (LEVELS[k + 1] - LEVELS[k]) / Math.max(edges[k + 1] - edges[k], least));
  const zero = height.map(() => 0);
  const parts = [{ kind: "band", x: middle, low: zero, high: height }, { kind: "line", x: middle, y: height }];
  return chart(parts, { across: `a new observation of ${target()}`, up: "density", description: `Distribution: mean ${text}`, ylimits: [0, 1.08 * Math.max(...height)], bare: true, width: widthOf("density"), height: 150 });
}
