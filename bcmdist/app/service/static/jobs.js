// The list of jobs, with progress and the last lines of each log.
import { element, short } from "./charts.js";
import { note } from "./words.js";

export function showJobs(jobs) {
  const list = document.getElementById("jobs");
  const open = new Set([...list.querySelectorAll("details[open]")].map((one) => one.dataset.id));
  const focused = document.activeElement?.closest?.("details")?.dataset.id;
  list.replaceChildren(...(jobs.length ? jobs.map((job) => item(job, open.has(job.id))) : [element("li", {}, note("None yet: `bcmdist submit fit DATA --model NAME`, or POST /jobs."))]));
  if (focused) list.querySelector(`details[data-id="${focused}"] summary`)?.focus();
}

function item(job, isOpen) {
  const parts = [element("strong", {}, job.command ?? "job"), element("span", job.error ? { class: "alarm" } : {}, job.state)];
  if (job.waiting) parts.push(element("span", { class: "quiet" }, job.waiting));
  if (job.partitions) {
    const text = `${short(job.partitions_done)} of ${short(job.partitions)} partitions`;
    parts.push(element("progress", { max: job.partitions, value: job.partitions_done, "aria-label": `${job.stage}: ${text}` }));
    parts.push(element("span", { class: "quiet" }, `${job.stage}, ${text}`));
  }
  if (job.rows_per_second) parts.push(element("span", { class: "quiet" }, `${short(Math.round(job.rows_per_second))} rows/s`));
  parts.push(element("code", { class: "quiet" }, job.id));
  const log = element("details", { "data-id": job.id, ...(isOpen ? { open: "" } : {}) }, element("summary", {}, "Log"), element("pre", {}, job.log.map(line).join("\n")));
  const why = job.error ? [element("div", { class: "alarm" }, `${job.error}: ${job.message ?? ""}`)] : [];
  return element("li", {}, element("div", { class: "job" }, ...parts), ...why, log);
}

function line({ at, event, ...facts }) {
  const said = Object.entries(facts).filter(([, value]) => value !== null && typeof value !== "object").map(([name, value]) => `${name} ${value}`);
  return [at, event, said.join(", ")].join("  ");
}
