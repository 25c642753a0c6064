"use strict";
// Lists models and jobs, again every second, and draws what is predicted of one row. A token stays in this tab only.
const $ = (selector) => document.querySelector(selector);
const EVERY = 1000;
const LEVELS = [0.01, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99];

function ask(url, options = {}) {
  const token = sessionStorage.getItem("token");
  const headers = { ...options.headers, ...(token ? { Authorization: `Bearer ${token}` } : {}) };
  return fetch(url, { ...options, headers });
}

function element(name, attributes = {}, ...children) {
  const made = document.createElementNS(name.startsWith("svg:") ? "http://www.w3.org/2000/svg" : "http://www.w3.org/1999/xhtml", name.replace("svg:", ""));
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

function rows(body, found, names) {
  const cells = (one) => names.map((name) => element("td", {}, String(one[name] ?? one.error ?? "")));
  $(body).replaceChildren(...found.map((one) => element("tr", {}, ...cells(one))));
}

async function show() {
  const answer = await ask("/models");
  const asks = answer.status === 401 || answer.status === 403;
  $("#login").hidden = !asks;
  $("#shown").hidden = !answer.ok;
  if (!answer.ok) {
    $("#said").textContent = asks ? "A token is needed." : (await answer.json()).message;
    return !asks;
  }
  const { models } = await answer.json();
  $("#said").textContent = models.length ? "" : "No models yet.";
  rows("#models", models, ["name", "commit", "rows", "inputs", "likelihood"]);
  await choices(models.filter((model) => !model.error).map((model) => model.name));
  const jobs = await ask("/jobs");
  if (jobs.ok) rows("#jobs", (await jobs.json()).jobs, ["id", "command", "state", "stage", "model"]);
  return true;
}

// --- One row ---

async function choices(names) {
  const known = [...$("#model").options].map((option) => option.value);
  if (names.join("\n") === known.join("\n")) return;
  const chosen = $("#model").value;
  $("#model").replaceChildren(...names.map((name) => element("option", { value: name }, name)));
  if (names.includes(chosen)) $("#model").value = chosen;
  else await inputs();
}

async function inputs() {
  $("#answer").replaceChildren();
  const answer = await ask(`/models/${$("#model").value}`);
  if (!answer.ok) return;
  const model = await answer.json();
  const names = model.columns?.length ? model.columns : Array.from({ length: model.inputs }, (_, k) => `input ${k + 1}`);
  const field = (name) => element("label", {}, `${name} `, element("input", { type: "number", step: "any", value: "0", required: "" }));
  $("#inputs").replaceChildren(...names.map(field));
  $("#asking").dataset.classes = JSON.stringify(model.classes ?? null);
}

async function predict(event) {
  event.preventDefault();
  const X = [[...document.querySelectorAll("#inputs input")].map((input) => Number(input.value))];
  const classes = JSON.parse($("#asking").dataset.classes ?? "null");
  const body = classes ? { X } : { X, quantiles: LEVELS };
  const url = `/models/${$("#model").value}/predict`;
  const answer = await ask(url, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) });
  const found = await answer.json();
  $("#answer").replaceChildren(...(answer.ok ? said(found.predictions, classes) : [found.message]));
}

const short = (value) => Number(value).toPrecision(4);

function said(found, classes) {
  if (found.probability) {
    const names = Array.isArray(classes) ? classes : found.probability[0].map((_, k) => k);
    return [found.probability[0].map((p, k) => `${names[k]}: ${short(p)}`).join(", ")];
  }
  const text = `${short(found.observation_mean[0])}, 95 % between ${short(found.lower95[0])} and ${short(found.upper95[0])}`;
  return [text, drawn(LEVELS.map((level) => found[`quantile${level}`][0]), text)];
}

// A density from quantiles: mass over width of each piece, as steps.
function drawn(edges, text) {
  const [low, high] = [edges[0], edges[edges.length - 1]];
  const heights = edges.slice(1).map((edge, k) => (LEVELS[k + 1] - LEVELS[k]) / Math.max(edge - edges[k], 1e-12 * (high - low || 1)));
  const x = (value) => 30 + (240 * (value - low)) / (high - low || 1);
  const y = (height) => 80 - (70 * height) / Math.max(...heights);
  const steps = heights.map((height, k) => `L${x(edges[k])} ${y(height)}L${x(edges[k + 1])} ${y(height)}`);
  const mark = (value) => element("svg:text", { x: x(value), y: 95 }, short(value));
  return element("svg:svg", { viewBox: "0 0 300 100", role: "img", "aria-label": `Distribution: ${text}` },
    element("svg:path", { d: `M${x(low)} 80${steps.join("")}L${x(high)} 80Z` }), mark(low), mark(edges[6]), mark(high));
}

async function live() {
  let more = true;
  try {
    more = await show();
  } catch {
    $("#said").textContent = "The service does not answer.";
  }
  if (more) setTimeout(live, EVERY);
}

$("#model").addEventListener("change", inputs);
$("#asking").addEventListener("submit", predict);
$("#login").addEventListener("submit", (event) => {
  event.preventDefault();
  sessionStorage.setItem("token", $("#token").value);
  $("#token").value = "";
  live();
});
live();
