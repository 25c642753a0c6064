// The form for one row: the columns of the table that a model was fitted to, with a slider for each number.
import { element, rounded } from "./charts.js";

const $ = (id) => document.getElementById(id);
const NOTCHES = 100; // of a slider, about
const BESIDE = ["exposure", "trials"]; // numbers that describe an observation, not inputs

// The fields of a model; without names of columns, its inputs by number.
export function fieldsOf({ fields, ranges, companions }) {
  const unnamed = () => ranges.map(([low, high], k) => ({ name: `X[${k}]`, kind: "number", low, high }));
  const beside = BESIDE.filter((name) => companions.includes(name)).map((name) => ({ name, kind: "number", beside: true, start: 1 }));
  return [...(fields ?? unnamed()), ...beside];
}

/* Shows fields with start values; returns them with their inputs.
   changed: function of the field whose value was changed */
export function showForm(fields, row, changed) {
  const shown = fields.map((field, k) => {
    const start = field.start ?? (Array.isArray(row) ? row[k] : row[field.name]);
    const entry = field.kind === "category" ? choice(field) : typed(field);
    entry.id = `field${k}`;
    put(entry, field, start);
    return { ...field, entry, slider: "low" in field ? slider(field, start, k) : null };
  });
  for (const one of shown) {
    one.entry.addEventListener("input", () => {
      if (one.slider && one.entry.value !== "") one.slider.value = one.entry.value;
      changed(one);
    });
    one.slider?.addEventListener("input", () => {
      one.entry.value = one.slider.value;
      changed(one);
    });
  }
  $("inputs").replaceChildren(...shown.map(item));
  return shown;
}

function item({ name, unit, entry, slider }) {
  const text = element("label", { for: entry.id }, name, ...(unit ? [element("span", { class: "unit" }, unit)] : []));
  const sliding = slider ? [element("label", { class: "unseen", for: slider.id }, `${name}, slider`), slider] : [];
  return element("div", { class: slider ? "field" : "field short" }, text, entry, ...sliding);
}

function choice({ levels, gaps }) {
  const options = levels.map((level) => element("option", { value: level }, level));
  return element("select", {}, ...(gaps ? [element("option", { value: "" }, "unknown")] : []), ...options);
}

// A number or a date; empty where the value may be unknown.
function typed({ kind, gaps, zoned, form }) {
  const needed = gaps ? { placeholder: "unknown" } : { required: "" };
  if (kind === "number") return element("input", { type: "number", step: "any", ...needed });
  if (form) return element("input", { type: "text", ...needed, placeholder: form });
  return element("input", { type: zoned ? "datetime-local" : "date", ...needed });
}

function put(entry, { kind, zoned, form, levels }, start) {
  if (start === null || start === undefined) entry.value = kind === "category" ? (entry.querySelector("option[value='']") ? "" : levels[0]) : "";
  else if (kind === "date" && !form) entry.value = zoned ? start.replace("Z", "") : start.slice(0, 10);
  else entry.value = kind === "number" ? Number(start.toPrecision(7)) : start;
}

// Round steps within the range of training; whole numbers where the range and the start are.
function slider({ low, high }, start, k) {
  const value = start ?? (low + high) / 2, [from, to] = [Math.min(low, value), Math.max(high, value)];
  const whole = [low, high, value].every(Number.isInteger), about = rounded((to - from || 1) / NOTCHES);
  const step = whole ? Math.max(1, about) : about, digits = Math.max(0, -Math.floor(Math.log10(step) + 1e-9));
  const [min, max] = [Math.ceil(from / step - 1e-9) * step, Math.floor(to / step + 1e-9) * step].map((end) => end.toFixed(digits));
  const made = element("input", { type: "range", id: `slider${k}`, min, max, step: step.toFixed(digits) });
  made.value = value;
  return made;
}

function value({ kind, zoned, form, entry }) {
  if (entry.value === "") return null;
  if (kind === "number") return Number(entry.value);
  return kind === "date" && zoned && !form ? `${entry.value}Z` : entry.value;
}

/* The body of a request at rows that differ in one field.
   at: values of the field `along`; null: one row, as it is */
export function bodyOf(fields, named, along, at) {
  const inputs = fields.filter((field) => !field.beside), beside = fields.filter((field) => field.beside);
  const rows = (at ?? [null]).map((place) => inputs.map((field) => (place !== null && field === along ? place : value(field))));
  const body = named ? { rows: rows.map((row) => Object.fromEntries(row.map((one, k) => [inputs[k].name, one]))) } : { X: rows };
  for (const field of beside) if (field.entry.value !== "") body[field.name] = value(field);
  return body;
}

export const valid = (fields) => fields.every(({ entry }) => entry.checkValidity());
