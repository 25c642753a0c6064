// The page /docs: every request of /openapi.json, with its parameters, body and an example for the shell.
import { element } from "./charts.js";
import { ask, onToken } from "./token.js";

const $ = (id) => document.getElementById(id);
let schemas = {};

function resolved(schema) {
  return schema?.$ref ? schemas[schema.$ref.split("/").at(-1)] : schema ?? {};
}

// The type of a value in words, such as "list of number, or null".
function type(schema) {
  const found = resolved(schema);
  if (found.enum) return found.enum.map((value) => JSON.stringify(value)).join(" or ");
  if ("const" in found) return JSON.stringify(found.const);
  const choices = found.anyOf ?? found.oneOf;
  if (choices) return choices.map(type).join(", or ");
  if (found.type === "array") return `list of ${found.items ? type(found.items) : "values"}`;
  return found.type ?? "value";
}

function table(title, rows) {
  if (!rows.length) return [];
  const cells = (row) => element("tr", {}, ...row.map((text) => element("td", {}, text)));
  const body = element("tbody", {}, ...rows.map(cells));
  return [element("div", { class: "wide", role: "region", "aria-label": title, tabindex: "0" }, element("table", { class: "fields" }, element("caption", {}, title), body))];
}

function bodies(operation) {
  const whole = resolved(operation.requestBody?.content["application/json"]?.schema);
  const choices = (whole.anyOf ?? whole.oneOf ?? [whole]).map(resolved).filter((one) => one.properties);
  return choices.flatMap((one) => {
    const needed = one.required ?? [];
    const rows = Object.entries(one.properties).map(([name, field]) => [name, type(field), needed.includes(name) ? "required" : ""]);
    return table(choices.length > 1 ? `Body: ${one.title}` : "Body", rows);
  });
}

function example(verb, path, operation) {
  const headers = (operation.parameters ?? []).filter((one) => one.in === "header" && one.required).map((one) => ` -H '${one.name}: ...'`);
  const body = operation.requestBody ? " -H 'Content-Type: application/json' -d '{...}'" : "";
  const token = sessionStorage.getItem("token") ? " -H \"Authorization: Bearer $TOKEN\"" : "";
  return `curl -X ${verb}${token}${headers.join("")}${body} ${location.origin}${path}`;
}

function shown([path, verb, operation]) {
  const title = `${verb.toUpperCase()} ${path}`;
  const parameters = (operation.parameters ?? []).map((one) => [one.name, `${one.in}: ${type(one.schema)}`, one.description ?? (one.required ? "required" : "")]);
  const paragraphs = (operation.description ?? "").split("\n\n").map((text) => element("p", {}, text));
  return element("section", { "aria-label": title }, element("h2", {}, element("code", {}, title)), ...paragraphs,
    ...table("Parameters", parameters), ...bodies(operation), element("pre", {}, example(verb.toUpperCase(), path, operation)));
}

async function load() {
  const answer = await ask("/openapi.json");
  $("login").hidden = answer.ok;
  $("message").textContent = answer.ok ? "" : answer.status === 401 ? "A token is needed." : (await answer.json()).message;
  if (!answer.ok) return;
  const document = await answer.json();
  schemas = document.components.schemas;
  const all = Object.entries(document.paths).flatMap(([path, verbs]) => Object.entries(verbs).map(([verb, operation]) => [path, verb, operation]));
  $("requests").replaceChildren(...all.map(shown));
}

onToken(load);
load();
