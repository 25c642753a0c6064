// Cards of a model: relevance, calibration, drift, learning curve, growth and maps. An empty card says what to do.
import { bars, chart, element, short, widthOf } from "./charts.js";
import { map } from "./maps.js";
import { moveTo } from "./what_if.js";
import { duration, note, percent } from "./words.js";

const $ = (id) => document.getElementById(id);
const MOST_BARS = 12;
const TWO_MAPS = 840, PADDING = 40, WIDEST_MAP = 560; // pixels: of the page, for maps side by side; around a map; of a map
const NO_ARRIVALS = "Begins with the first rows that come after the fit: `bcmdist ingest MODEL SOURCE`, or rows sent to this service.";

function put(id, ...what) {
  $(id).replaceChildren(...what);
  $(id).closest(".card").classList.toggle("empty", what.every((one) => one.tagName === "P"));
}

export function show(model) {
  $("figures").hidden = false;
  rows(model.history ?? []);
  curve(model.curve ?? []);
  drift(model);
  calibration(model.calibration ?? {});
  relevance(model.relevance);
  maps(model.view);
}

const SPANS = [[172800, "days"], [7200, "hours"], [0, "minutes"]], SECONDS = { days: 86400, hours: 3600, minutes: 60 };

function rows(history) {
  const found = history.filter((one) => one.date && one.rows !== null);
  if (!found.length) return put("rows", note("A mixture absorbs no rows; choose one of its members to see theirs."));
  const last = found.at(-1), seconds = found.map((one) => (Date.parse(one.date) - Date.parse(found[0].date)) / 1000);
  const newest = `the newest commit is of ${new Date(last.date).toLocaleString()}`;
  if (found.length === 1) return put("rows", note(`${short(last.rows)} rows in one commit; ${newest}.`));
  const unit = SPANS.find(([least]) => Math.max(0, seconds.at(-1)) >= least)[1], x = seconds.map((one) => one / SECONDS[unit]), y = found.map((one) => one.rows);
  const description = `${short(last.rows)} rows absorbed; ${found.length} commits are kept, from the last ${duration(seconds.at(-1))}`;
  put("rows", chart([{ kind: "line", x, y }, { kind: "marks", x, y }], { across: `${unit} since the first commit kept`, up: "rows", description, width: widthOf("rows") }), note(`${description}; ${newest}.`));
}

function curve(points) {
  if (!points.length) return put("curve", note(NO_ARRIVALS));
  const x = points.map((one) => one.rows), y = points.map((one) => one.log_score), last = points.at(-1);
  const description = `New rows, before they were absorbed: log score ${short(last.log_score)} nats a row after ${short(last.rows)} rows, ${short(y[0])} at first`;
  put("curve", chart([{ kind: "line", x, y }, { kind: "marks", x, y }], { across: "rows absorbed", up: "nats a row, higher is better", description, width: widthOf("curve") }), note(`${description}.`));
}

function drift({ drift: found, curve: points }) {
  if (!found) return put("drift", note(NO_ARRIVALS));
  const name = points.some((one) => "accuracy" in one) ? "accuracy" : "coverage95";
  const x = points.map((one) => one.rows), y = points.map((one) => one[name]);
  const up = name === "accuracy" ? "share of rows right" : "share within 95 % intervals";
  const parts = [{ kind: "line", x, y }, { kind: "marks", x, y }];
  if (name === "coverage95") parts.unshift({ kind: "aim", x: [x[0], x.at(-1) + (x.length === 1)], y: [0.95, 0.95] });
  put("drift", chart(parts, { across: "rows absorbed", up, description: `Drift: ${found.verdict}`, width: widthOf("drift") }), note(`New rows are ${found.verdict}.`, found.worse ? "alarm" : ""));
}

function calibration({ left_out: left, arrivals }) {
  const shown = [];
  if (left) {
    const { levels, shares, errors } = left, at = levels.indexOf(0.95);
    const band = { kind: "band", x: levels, low: levels.map((v, k) => v - 2 * errors[k]), high: levels.map((v, k) => Math.min(1, v + 2 * errors[k])) };
    const description = `95 % intervals held ${percent(shares[at])} of ${short(left.rows)} rows left out of training`;
    const aim = { kind: "aim", x: [0, 1], y: [0, 1] };
    shown.push(chart([band, aim, { kind: "line", x: levels, y: shares }, { kind: "marks", x: levels, y: shares }], { across: "level of the interval", up: "share of rows in it", description, xlimits: [0, 1], ylimits: [0, 1.02], width: widthOf("calibration") }), note(`${description}.`));
  }
  if (arrivals) {
    const what = "accuracy" in arrivals ? `${percent(arrivals.accuracy)} were classified right` : `95 % intervals held ${percent(arrivals.coverage95)}`;
    shown.push(note(`Of ${short(arrivals.rows)} new rows, ${what} before they were absorbed.`));
  }
  put("calibration", ...(shown.length ? shown : [note("Was not measured when this model was fitted. To measure it on a test set: `bcmdist score MODEL DATA`.")]));
}

function relevance(found) {
  if (!found) return put("relevance", note("This kernel has no lengthscales to compare; fit with `--kernel se` or `matern32`."));
  const shown = found.parts.flatMap(({ part, share, lengthscale }) => {
    const order = share.map((_, k) => k).sort((a, b) => share[b] - share[a]).slice(0, MOST_BARS);
    const description = `${part}: ${order.slice(0, 3).map((k) => `${found.columns[k]} ${short(lengthscale[k])}`).join(", ")}`;
    const title = found.parts.length > 1 ? [note(part)] : [];
    return [...title, bars(order.map((k) => found.columns[k]), order.map((k) => share[k]), { labels: order.map((k) => short(lengthscale[k])), description, width: widthOf("relevance") })];
  });
  put("relevance", ...shown, note("Lengthscales, in the units of the inputs. The longer the bar, the sooner predictions change along that input."));
}

// Over two coordinates: the prediction and its uncertainty, or the probability of each class.
function maps(found) {
  const shown = found && !found.message && found.columns.length === 2;
  $("maps").hidden = !shown;
  if (!shown) return;
  const { columns, axes, others } = found;
  const classes = found.probability?.map((values, k) => [`Probability of class ${k}`, values]) ?? [];
  const named = classes.length === 2 ? classes.slice(1) : classes;
  const all = named.length ? named : [["Prediction", found.observation_mean], ["Uncertainty: standard deviation", found.sd, true]];
  const across = $("maps").clientWidth, width = Math.min((across > TWO_MAPS && all.length > 1 ? across / 2 : across) - PADDING, WIDEST_MAP);
  const card = ([name, values, uncertain]) => element("figure", { class: "card" }, element("figcaption", {}, name, ...(others ? [element("span", { class: "quiet" }, ` (other columns: typical values)`)] : [])), map(axes, values, { width, columns, description: `${name} over ${columns.join(" and ")}`, uncertain, pick: (place) => moveTo(columns, place) }));
  $("maps").replaceChildren(...all.filter(([, values]) => values).map(card));
}
