// Charts of a model: relevance, calibration, drift, history and predictions.
import { bars, chart, element, map, short } from "./charts.js";

const $ = (id) => document.getElementById(id);
const note = (text, kind = "") => element("p", kind ? { class: kind } : {}, text);
const percent = (share) => `${(100 * share).toFixed(1)} %`;
const MOST_BARS = 30;

function put(id, ...what) {
  $(id).replaceChildren(...what);
}

export function show(model) {
  rows(model.history ?? []);
  curve(model.curve ?? []);
  drift(model);
  calibration(model.calibration ?? {});
  relevance(model.relevance);
  view(model.view);
}

function rows(history) {
  const found = history.filter((one) => one.date && one.rows !== null);
  if (!found.length) return put("rows", note("A mixture absorbs no rows."));
  const last = found.at(-1), begun = Date.parse(found[0].date);
  const minutes = found.map((one) => (Date.parse(one.date) - begun) / 60000);
  const said = `${short(last.rows)} rows absorbed in ${found.length} commits that are kept`;
  const parts = [{ kind: "line", x: minutes, y: found.map((one) => one.rows) }, { kind: "marks", x: minutes, y: found.map((one) => one.rows) }];
  put("rows", chart(parts, { across: "minutes since the first of them", up: "rows", said }), note(`${said}; the newest at ${new Date(last.date).toLocaleTimeString()}.`));
}

const NONE = "Nothing was predicted before it was absorbed so far: this begins with the first rows that are ingested.";

function curve(points) {
  if (!points.length) return put("curve", note(NONE));
  const x = points.map((one) => one.rows), y = points.map((one) => one.log_score), last = points.at(-1);
  const said = `Log score of rows before they were absorbed: ${short(last.log_score)} nats a row after ${short(last.rows)} rows, ${short(y[0])} at first`;
  put("curve", chart([{ kind: "line", x, y }, { kind: "marks", x, y }], { across: "rows absorbed", up: "nats a row, higher is better", said }), note(`${said}.`));
}

function drift({ drift: found, curve: points }) {
  if (!found) return put("drift", note(NONE));
  const name = points.some((one) => "accuracy" in one) ? "accuracy" : "coverage95";
  const x = points.map((one) => one.rows), y = points.map((one) => one[name]);
  const up = name === "accuracy" ? "share of rows right" : "share within 95 % intervals";
  const parts = [{ kind: "line", x, y }, { kind: "marks", x, y }];
  if (name === "coverage95") parts.push({ kind: "aim", x: [x[0], x.at(-1) + (x.length === 1)], y: [0.95, 0.95] });
  put("drift", chart(parts, { across: "rows absorbed", up, said: `Drift: ${found.verdict}` }), note(`Arrivals are ${found.verdict}.`, found.worse ? "alarm" : ""));
}

function calibration({ left_out: left, arrivals }) {
  const shown = [];
  if (left) {
    const { levels, shares, errors } = left, at = levels.indexOf(0.95);
    const band = { kind: "band", x: levels, low: levels.map((v, k) => v - 2 * errors[k]), high: levels.map((v, k) => Math.min(1, v + 2 * errors[k])) };
    const said = `95 % intervals held ${percent(shares[at])} of ${short(left.rows)} rows left out`;
    const aim = { kind: "aim", x: [0, 1], y: [0, 1] };
    shown.push(chart([band, aim, { kind: "line", x: levels, y: shares }, { kind: "marks", x: levels, y: shares }], { across: "mass of interval", up: "share of rows in it", said, xlimits: [0, 1], ylimits: [0, 1.02] }), note(`${said}.`));
  }
  if (arrivals) {
    const what = "accuracy" in arrivals ? `${percent(arrivals.accuracy)} were right` : `95 % intervals held ${percent(arrivals.coverage95)}`;
    shown.push(note(`Of ${short(arrivals.rows)} rows that arrived, ${what} before they were absorbed.`));
  }
  put("calibration", ...(shown.length ? shown : [note("Not noted for this model.")]));
}

function relevance(found) {
  if (!found) return put("relevance", note("Its kernel has no lengthscales."));
  const shown = found.parts.flatMap(({ part, share, lengthscale }) => {
    const order = share.map((_, k) => k).sort((a, b) => share[b] - share[a]).slice(0, MOST_BARS);
    const said = `${part}: ${order.slice(0, 3).map((k) => `${found.columns[k]} ${short(lengthscale[k])}`).join(", ")}`;
    const title = found.parts.length > 1 ? [note(part)] : [];
    return [...title, bars(order.map((k) => found.columns[k]), order.map((k) => share[k]), { labels: order.map((k) => short(lengthscale[k])), said })];
  });
  put("relevance", ...shown, note("Lengthscales in units of the inputs; the longer the bar, the sooner predictions change along it."));
}

function view(found) {
  $("view-card").hidden = !found;
  if (!found) return;
  if (found.message) return put("view", note(found.message));
  const { columns, axes } = found;
  const classes = found.probability?.map((values, k) => [`probability of class ${k}`, values]) ?? [];
  const named = classes.length === 2 ? classes.slice(1) : classes;
  if (columns.length === 1) return put("view", ...(named.length ? named.map(([name, y]) => slice(name, axes[0], y, columns)) : [band(found)]));
  const maps = named.length ? named : [["mean", found.observation_mean], ["standard deviation", found.sd]];
  put("view", ...maps.flatMap(([name, values]) => [note(`${name}: from ${short(Math.min(...values))} to ${short(Math.max(...values))}, the stronger the colour`), map(axes, values, { columns, said: `Map of ${name} over ${columns.join(" and ")}` })]));
}

const slice = (name, x, y, columns) => chart([{ kind: "line", x, y }], { across: columns[0], up: name, said: `${name} along ${columns[0]}`, ylimits: [0, 1] });

function band({ columns, axes: [x], observation_mean: y, lower95: low, upper95: high }) {
  const said = `Mean and 95 % interval of observations along ${columns[0]}`;
  return chart([{ kind: "band", x, low, high }, { kind: "line", x, y }], { across: columns[0], up: "mean and 95 % band", said });
}
