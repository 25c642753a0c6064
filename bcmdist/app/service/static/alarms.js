// What needs somebody now, as sentences that end with what to do; thresholds as in deploy/monitoring/alerts.yml.
import { element, short } from "./charts.js";
import { duration, percent } from "./words.js";

const LONGEST_WAIT = 60; // seconds that rows may wait
const ERRORS = 3, SHARE = 0.02; // standard errors, and share of rows, by which coverage may miss its level
const LEAST_ROWS = 200; // arrivals whose coverage is judged
const found = new Map(); // sentences by where they come from

export function alarmsOfModels(models) {
  put("models", models.flatMap(ofStatus));
}

export function alarmsOfModel({ model, calibration }) {
  put("model", ofCoverage(model, calibration ?? {}));
}

function ofStatus({ name, error, dead_ingesters: dead, lag, drifts }) {
  if (error) return [`${name} cannot be read (${error}); run bcmdist doctor --model on its directory, and restore what that names from a copy.`];
  const sentences = [];
  if (dead) sentences.push(`${name}: ${dead === 1 ? "a source is" : `${dead} sources are`} no longer read, because the ingester ended; start bcmdist ingest --watch again, it goes on after the last commit.`);
  if (lag.seconds > LONGEST_WAIT) sentences.push(`${name}: ${short(lag.rows)} rows wait to be absorbed, the oldest for ${duration(lag.seconds)}; add workers, or a second bcmdist ingest --watch.`);
  if (drifts) sentences.push(`${name}: new rows are predicted worse than expected, see Drift below; let old rows fade (--half-life), add query points (--grow), or learn the model anew with bcmdist refit.`);
  return sentences;
}

function ofCoverage(model, { left_out: left, arrivals }) {
  const at = left ? left.levels.indexOf(0.95) : -1, sentences = [];
  const missed = at < 0 ? 0 : left.shares[at] - 0.95;
  if (Math.abs(missed) > Math.max(SHARE, ERRORS * left?.errors[at])) {
    const [much, remedy] = missed < 0 ? ["only ", "do not rely on their width, and fit with --noise varying or more query points"] : ["", "they are wider than needed, fit with --noise varying"];
    sentences.push(`${model}: 95 % intervals hold ${much}${percent(left.shares[at])} of the rows left out of training; ${remedy}.`);
  }
  const far = arrivals && "coverage95" in arrivals && arrivals.rows >= LEAST_ROWS && arrivals.coverage95 < 0.9;
  if (far) sentences.push(`${model}: 95 % intervals held only ${percent(arrivals.coverage95)} of the new rows before they were absorbed; learn the model anew with bcmdist refit.`);
  return sentences;
}

function put(source, sentences) {
  found.set(source, sentences);
  const all = [...found.values()].flat(), list = document.getElementById("alarms");
  const shown = [...list.children].map((one) => one.textContent);
  if (all.join("\n") === shown.join("\n")) return; // a screen reader reads them when they change
  list.hidden = !all.length;
  list.replaceChildren(...all.map((text) => element("li", {}, text)));
}
