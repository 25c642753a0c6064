// A form to predict at one row, and a chart of the predictive distribution.
import { ask } from "./page.js";
import { bars, chart, element, short } from "./charts.js";

const $ = (id) => document.getElementById(id);
const LEVELS = [0.005, 0.01, ...Array.from({ length: 32 }, (_, k) => Number((0.03 * (k + 1)).toFixed(2))), 0.99, 0.995];
let classes = null, categorical = false;

export async function askFor(name) {
  $("answer").replaceChildren();
  $("inputs").replaceChildren();
  const answer = await ask(`/models/${name}`);
  if (!answer.ok || name !== $("model").value) return;
  const model = await answer.json();
  const names = model.columns?.length ? model.columns : Array.from({ length: model.inputs }, (_, k) => `X[${k}]`);
  const field = (label) => element("label", {}, label, element("input", { type: "number", step: "any", value: "0", required: "" }));
  $("inputs").replaceChildren(...names.map(field));
  ({ classes, categorical } = model);
}

export async function predict(event) {
  event.preventDefault();
  const X = [[...document.querySelectorAll("#inputs input")].map((input) => Number(input.value))];
  if (!X[0].length) return; // the inputs of the model are still loading
  const body = JSON.stringify(categorical ? { X } : { X, quantiles: LEVELS });
  const answer = await ask(`/models/${$("model").value}/predict`, { method: "POST", headers: { "Content-Type": "application/json" }, body });
  const found = await answer.json();
  $("answer").replaceChildren(...(answer.ok ? drawn(found.predictions) : [element("p", { class: "alarm" }, found.message)]));
}

function drawn(found) {
  if (found.probability) {
    const [shares] = found.probability, names = shares.map((_, k) => String(Array.isArray(classes) ? classes[k] : k));
    const said = shares.map((p, k) => `${names[k]}: ${short(p)}`).join(", ");
    return [element("p", {}, said), bars(names, shares, { labels: shares.map(short), said: `Probabilities: ${said}` })];
  }
  const text = `${short(found.observation_mean[0])}, 95 % between ${short(found.lower95[0])} and ${short(found.upper95[0])}`;
  return [element("p", {}, text), density(LEVELS.map((level) => found[`quantile${level}`][0]), text)];
}

// A density from quantiles: probability mass divided by width between adjacent quantiles, at their midpoint.
function density(edges, text) {
  const least = 1e-9 * (edges.at(-1) - edges[0]) || 1e-9;
  const middle = edges.slice(1).map((edge, k) => (edge + edges[k]) / 2);
  const height = middle.map((_, k) => (LEVELS[k + 1] - LEVELS[k]) / Math.max(edges[k + 1] - edges[k], least));
  const zero = height.map(() => 0);
  const parts = [{ kind: "band", x: middle, low: zero, high: height }, { kind: "line", x: middle, y: height }];
  return chart(parts, { across: "a new observation", up: "density", said: `Distribution: ${text}`, ylimits: [0, 1.08 * Math.max(...height)] });
}
