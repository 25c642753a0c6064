// Receives events and updates the page. 
import { element, short } from "./charts.js";
import { ask, onToken } from "./token.js";
import { show } from "./figures.js";
import { showJobs } from "./jobs.js";
import { askFor, predict } from "./one_row.js";

const $ = (id) => document.getElementById(id);
const AGAIN = 1000; // ms until the next attempt if the service does not respond
let listening = null;

const HANDLERS = { models: showModels, model: showModel, jobs: showJobs, problem: (problem) => say(problem.message) };

const say = (text) => ($("said").textContent = text);

function link(live, text) {
  $("link").textContent = text;
  $("link").classList.toggle("live", live);
}

function showModels(models) {
  say(models.length ? "" : "No models yet.");
  const behind = ({ lag, dead_ingesters }) =>
    dead_ingesters ? ["unknown", "ingester dead"] : lag.rows === null ? ["unknown", ""] : [`${short(lag.rows)} rows`, `${short(lag.seconds)} s`];
  const cells = (one) =>
    one.error ? [one.name, one.error, "", "", "", "", ""] : [one.name, short(one.rows), one.commit, ...behind(one), one.inputs, one.likelihood];
  $("models").replaceChildren(...models.map((one) => element("tr", {}, ...cells(one).map((text) => element("td", {}, String(text))))));
  const names = models.filter((model) => !model.error).map((model) => model.name);
  const known = [...$("model").options].map((option) => option.value), chosen = $("model").value;
  $("chosen").hidden = !names.length;
  if (names.join("\n") === known.join("\n")) return;
  $("model").replaceChildren(...names.map((name) => element("option", { value: name }, name)));
  if (names.includes(chosen)) $("model").value = chosen;
  else if (names.length) choose();
}

function showModel(model) {
  if (model.model !== $("model").value) return;
  const rows = model.history?.length ? `, ${short(model.history.at(-1).rows)} rows absorbed` : "";
  const points = model.capacity ? `, ${model.capacity.points} query points${model.capacity.most ? ` of at most ${model.capacity.most}` : ""}` : "";
  $("counted").textContent = `Commit ${model.commit}${rows}${points}.`;
  show(model);
}

function choose() {
  askFor($("model").value);
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
$("asking").addEventListener("submit", predict);
onToken(live);
live();
