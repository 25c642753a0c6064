// The advice about a model, a form to predict at one row, and a chart of the predictive distribution.
import { bars, chart, element, short } from "./charts.js";
import { ask } from "./token.js";

const $ = (id) => document.getElementById(id);
const LEVELS = [0.005, 0.01, ...Array.from({ length: 32 }, (_, k) => Number((0.03 * (k + 1)).toFixed(2))), 0.99, 0.995];
let classes = null, categorical = false, fields = null;

export async function askFor(name) {
  $("answer").replaceChildren();
  $("inputs").replaceChildren();
  $("advice").replaceChildren();
  const answer = await ask(`/models/${name}`);
  if (!answer.ok || name !== $("model").value) return;
  const model = await answer.json();
  ({ classes, categorical, fields } = model);
  const advice = (model.advice ?? "").split(". ").filter(Boolean);
  $("advice").replaceChildren(...advice.map((sentence) => element("li", {}, `${sentence}.`)));
  const shown = fields ?? Array.from({ length: model.inputs }, (_, k) => ({ name: `X[${k}]`, kind: "number" }));
  $("inputs").replaceChildren(...shown.map((one) => element("label", {}, one.name, entry(one))));
}

// A list of levels, a date picker, or a number; empty where the value may be unknown.
function entry({ kind, levels, gaps, zoned, form }) {
  const needed = gaps ? {} : { required: "" };
  if (kind === "category") {
    const options = levels.map((level) => element("option", { value: level }, level));
    return element("select", needed, ...(gaps ? [element("option", { value: "" }, "unknown")] : []), ...options);
  }
  if (kind === "date") {
    if (form) return element("input", { type: "text", placeholder: form, ...needed });
    return element("input", { type: zoned ? "datetime-local" : "date", ...needed });
  }
  return element("input", { type: "number", step: "any", value: gaps ? "" : "0", ...needed });
}

function value({ kind, zoned, form }, text) {
  if (text === "") return null;
  if (kind === "number") return Number(text);
  return kind === "date" && zoned && !form ? `${text}Z` : text;
}

export async function predict(event) {
  event.preventDefault();
  const given = [...document.querySelectorAll("#inputs input, #inputs select")].map((input) => input.value);
  if (!given.length) return; // the inputs of the model are still loading
  const row = () => Object.fromEntries(fields.map((field, k) => [field.name, value(field, given[k])]));
  const asked = fields ? { rows: [row()] } : { X: [given.map(Number)] };
  const body = JSON.stringify(categorical ? asked : { ...asked, quantiles: LEVELS });
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
