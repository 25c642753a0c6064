// Receives events and updates the page.
import { alarmsOfModel, alarmsOfModels } from "./alarms.js";
import { element, short } from "./charts.js";
import { ask, onToken } from "./token.js";
import { show } from "./figures.js";
import { showJobs } from "./jobs.js";
import { draw, start } from "./what_if.js";
import { duration, note } from "./words.js";

const $ = (id) => document.getElementById(id);
const AGAIN = 1000; // ms until the next attempt if the service does not respond
let listening = null;

const HANDLERS = { models: showModels, model: showModel, jobs: showJobs, problem: (problem) => say(problem.message) };

const say = (text) => ($("message").textContent = text);

function link(live, text) {
  $("link").textContent = text;
  $("link").classList.toggle("live", live);
}

function showModels(models) {
  say("");
  alarmsOfModels(models);
  $("models").replaceChildren(...models.map(line), ...(models.length ? [] : [element("tr", {}, element("td", { colspan: 7 }, note("No models yet. Fit one into the folder that is served: `bcmdist fit DATA --model MODELS_DIR/NAME`.")))]));
  const names = models.filter((model) => !model.error).map((model) => model.name);
  const listed = [...$("model").options].map((option) => option.value), chosen = $("model").value;
  $("chosen").hidden = !names.length;
  if (names.join("\n") === listed.join("\n")) return;
  $("model").replaceChildren(...names.map((name) => element("option", { value: name }, name)));
  if (names.includes(chosen)) $("model").value = chosen;
  else if (names.length) choose();
}

function line(model) {
  const { name, error, rows, commit, lag, dead_ingesters: dead, inputs, likelihood } = model;
  if (error) return element("tr", {}, element("td", {}, name), element("td", { class: "alarm", colspan: 6 }, `cannot be read: ${error}`));
  const waits = dead || lag.rows === null ? ["not known", dead ? "ingester ended" : "not known"] : [short(lag.rows), lag.rows ? duration(lag.seconds) : "none"];
  const cell = (text, number) => element("td", number ? { class: "number" } : {}, String(text));
  const numbers = [short(rows), commit, ...waits, inputs].map((text) => cell(text, true));
  return element("tr", {}, cell(name), ...numbers, cell(likelihood));
}

function showModel(model) {
  if (model.model !== $("model").value) return;
  const rows = model.history?.length ? `, ${short(model.history.at(-1).rows)} rows absorbed` : "";
  const points = model.capacity ? `, ${model.capacity.points} query points${model.capacity.most ? ` of at most ${model.capacity.most}` : ""}` : "";
  $("counted").textContent = `Commit ${model.commit}${rows}${points}.`;
  alarmsOfModel(model);
  show(model);
}

function choose() {
  for (const id of ["figures", "maps"]) $(id).hidden = true; // until those of this model come
  start($("model").value);
  listening?.abort(); // then a stream for this model is opened
}

// Reads one stream of events until it ends. EventSource cannot send a token.
async function listen() {
  listening = new AbortController();
  const name = $("model").value;
  const answer = await ask(`/events${name ? `?model=${name}` : ""}`, { signal: listening.signal });
  const asks = answer.status === 401 || answer.status === 403;
  $("login").hidden = !asks;
  $("shown").hidden = !answer.ok;
  if (asks) {
    say("A token is needed.");
    link(false, "not let in");
    return false;
  }
  if (!answer.ok) throw new Error((await answer.json()).message);
  link(true, "live");
  let text = "";
  for await (const piece of pieces(answer.body.pipeThrough(new TextDecoderStream()).getReader())) {
    text += piece;
    const events = text.split("\n\n");
    text = events.pop();
    events.forEach(handle);
  }
  return true;
}

async function* pieces(reader) {
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    yield value;
  }
}

function handle(text) {
  const [, name, data] = text.match(/^event: (\w+)\ndata: (.*)$/s) ?? [];
  if (name) HANDLERS[name]?.(JSON.parse(data));
}

async function live() {
  for (;;) {
    try {
      if (!(await listen())) return;
    } catch (error) {
      if (error.name === "AbortError") continue;
      link(false, "no answer");
      await new Promise((done) => setTimeout(done, AGAIN));
    }
  }
}

$("model").addEventListener("change", choose);
$("again").addEventListener("click", () => start($("model").value));
$("asking").addEventListener("submit", (event) => {
  event.preventDefault();
  draw();
});
onToken(live);
live();
