"use strict";
// Lists the models, and again every two seconds. A token stays in this tab only.
const $ = (selector) => document.querySelector(selector);
const EVERY = 2000;

async function show() {
  const token = sessionStorage.getItem("token");
  const headers = token ? { Authorization: `Bearer ${token}` } : {};
  const answer = await fetch("/models", { headers });
  const asks = answer.status === 401 || answer.status === 403;
  $("#login").hidden = !asks;
  $("table").hidden = !answer.ok;
  if (!answer.ok) {
    $("#said").textContent = asks ? "A token is needed." : (await answer.json()).message;
    return !asks;
  }
  const { models } = await answer.json();
  $("#said").textContent = models.length ? "" : "No models yet.";
  $("tbody").replaceChildren(...models.map(row));
  return true;
}

function row(model) {
  const line = document.createElement("tr");
  for (const name of ["name", "commit", "rows", "inputs", "likelihood"]) {
    const cell = document.createElement("td");
    cell.textContent = model[name] ?? model.error ?? "";
    line.append(cell);
  }
  return line;
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

$("#login").addEventListener("submit", (event) => {
  event.preventDefault();
  sessionStorage.setItem("token", $("#token").value);
  $("#token").value = "";
  live();
});
live();
