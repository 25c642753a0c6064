// The form for one row: the columns of the table that a model was fitted to, with a slider for each number and date.
import { element, rounded } from "./charts.js";

const $ = (id) => document.getElementById(id);
const NOTCHES = 100; // of a slider, about
const DAY = 864e5; // ms
const OF_OBSERVATIONS = ["exposure", "trials"]; // numbers that describe an observation, not inputs

// The fields of a model; without names of columns, its inputs by number.
export function fieldsOf({ fields, ranges, companions }) {
  const unnamed = () => ranges.map(([low, high], k) => ({ name: `X[${k}]`, kind: "number", low, high }));
  const others = OF_OBSERVATIONS.filter((name) => companions.includes(name)).map((name) => ({ name, kind: "number", ofObservation: true, start: 1 }));
  return [...(fields ?? unnamed()), ...others];
}

/* Shows fields with start values; returns them with their inputs.
   changed: function of the field whose value was changed */
export function showForm(fields, row, changed) {
  const shown = fields.map((field, k) => {
    const start = field.start ?? (Array.isArray(row) ? row[k] : row[field.name]);
    const timed = field.kind === "date" && !field.form && (field.zoned || [start, field.low, field.high].some((one) => String(one).includes("T")));
    const entry = field.kind === "category" ? choice(field) : typed({ ...field, timed });
    entry.id = `field${k}`;
    put(entry, { ...field, timed }, start);
    return { ...field, timed, entry, slider: "low" in field ? slider({ ...field, timed }, start, k) : null };
  });
  for (const one of shown) {
    one.entry.addEventListener("input", () => {
      if (one.slider && one.entry.value !== "") one.slider.value = numberOf(one);
      changed(one);
    });
    one.slider?.addEventListener("input", () => {
      one.entry.value = one.kind === "date" ? textOf(one, Number(one.slider.value)) : one.slider.value;
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

// A number, a date or a time; empty where the value may be unknown.
function typed({ kind, gaps, form, timed }) {
  const needed = gaps ? { placeholder: "unknown" } : { required: "" };
  if (kind === "number") return element("input", { type: "number", step: "any", ...needed });
  if (form) return element("input", { type: "text", ...needed, placeholder: form });
  return timed ? element("input", { type: "datetime-local", step: "1", ...needed }) : element("input", { type: "date", ...needed });
}

function put(entry, { kind, form, levels, timed }, start) {
  if (start === null || start === undefined) entry.value = kind === "category" ? (entry.querySelector("option[value='']") ? "" : levels[0]) : "";
  else if (kind === "date" && !form) entry.value = timed ? start.replace("Z", "") : start;
  else entry.value = kind === "number" && !Number.isInteger(start) ? Number(start.toPrecision(7)) : start;
}

// Days since 1970 of a date or time of the form, and the text of an entry of the form from days.
const daysOf = (text) => Date.parse(text.includes("T") && !text.endsWith("Z") ? `${text}Z` : text) / DAY;
export const textOf = ({ timed }, days) => new Date(1000 * Math.round(86400 * days)).toISOString().slice(0, timed ? 19 : 10);

// The value of a field that has a slider; null if it is empty.
export const numberOf = ({ kind, entry }) => (entry.value === "" ? null : kind === "date" ? daysOf(entry.value) : Number(entry.value));

// Round steps within the range of training; whole numbers where the range and the start are, whole days of dates.
function slider({ kind, timed, ...field }, first, k) {
  const [low, high, start] = [field.low, field.high, first].map((one) => (kind === "date" && one ? daysOf(one) : one));
  const value = start ?? (low + high) / 2, [from, to] = [Math.min(low, value), Math.max(high, value)];
  const whole = (kind === "date" && !timed) || [low, high, value].every(Number.isInteger), about = rounded((to - from || 1) / NOTCHES);
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

const valueAt = (field, place) => (field.kind === "date" ? `${textOf(field, place)}${field.zoned ? "Z" : ""}` : place);

/* The body of a request at rows that differ in one field.
   at: values of the field `along`; null: one row, as it is */
export function bodyOf(fields, named, along, at) {
  const inputs = fields.filter((field) => !field.ofObservation), others = fields.filter((field) => field.ofObservation);
  const rows = (at ?? [null]).map((place) => inputs.map((field) => (place !== null && field === along ? valueAt(field, place) : value(field))));
  const body = named ? { rows: rows.map((row) => Object.fromEntries(row.map((one, k) => [inputs[k].name, one]))) } : { X: rows };
  for (const field of others) if (field.entry.value !== "") body[field.name] = value(field);
  return body;
}

// The first field whose value cannot be used; undefined if all can.
export const invalid = (fields) => fields.find(({ entry }) => !entry.checkValidity());
