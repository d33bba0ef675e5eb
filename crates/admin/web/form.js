// The dialog of the page: a form, or a question. Errors stand beside their fields.

import { NeedsToken } from "./connection.js";
import { clean } from "./format.js";

const byId = (id) => document.getElementById(id);

let current = null;

function element(name, properties, ...children) {
  const made = Object.assign(document.createElement(name), properties);
  made.append(...children);
  return made;
}

// A button in a row of a table: `key` tells it from all others, so that it keeps the focus.
export function rowButton(label, about, key, act) {
  const button = element("button", { type: "button", className: "small", textContent: label });
  button.setAttribute("aria-label", label + " " + clean(about));
  button.dataset.key = key;
  button.addEventListener("click", act);
  return button;
}

// The control of a field. A list has an entry in each line.
function controlOf(field, id) {
  const { kind, value } = field;
  if (kind === "lines") {
    return element("textarea", { id, rows: 3, spellcheck: false, value: (value || []).join("\n") });
  }
  if (kind === "choice") {
    const options = field.choices.map(([of, words]) => element("option", { value: of, textContent: words }));
    return Object.assign(element("select", { id }, ...options), { value: value || "" });
  }
  if (kind === "check") {
    return element("input", { id, type: "checkbox", checked: Boolean(value) });
  }
  const input = element("input", { id, type: kind || "text", spellcheck: false, required: Boolean(field.required) });
  input.autocomplete = kind === "password" ? "new-password" : "off";
  input.value = value === undefined || value === null ? "" : value;
  return input;
}

// A field: `key`, `label`, `hint`, `kind`, `value`.
function rowOf(field) {
  const id = "field-" + field.key;
  const control = controlOf(field, id);
  const wrong = element("p", { id: id + "-wrong", className: "wrong" });
  const parts = [element("label", { htmlFor: id, textContent: field.label }), control];
  const described = [wrong.id];
  if (field.hint) {
    parts.push(element("p", { id: id + "-hint", className: "quiet", textContent: field.hint }));
    described.push(id + "-hint");
  }
  control.setAttribute("aria-describedby", described.join(" "));
  const row = element("div", { className: field.kind === "check" ? "field check" : "field" }, ...parts, wrong);
  return { field, control, wrong, row };
}

function read({ field, control }) {
  if (field.kind === "check") {
    return control.checked;
  }
  if (field.kind === "lines") {
    return control.value.split("\n").map((line) => line.trim()).filter((line) => line !== "");
  }
  return field.kind === "password" ? control.value : control.value.trim();
}

function tell(mine, error) {
  const at = mine.rows.find(({ field }) => field.key === error.field);
  const place = at ? at.wrong : byId("form-wrong");
  place.textContent = clean(error.message);
  place.scrollIntoView({ block: "nearest" });
  if (at) {
    at.control.setAttribute("aria-invalid", "true");
    at.control.focus();
  }
  byId("form-command").hidden = !error.command;
  byId("form-command").textContent = clean(error.command);
}

async function submit(event) {
  event.preventDefault();
  const mine = current;
  // Another dialog may be open when the answer comes.
  const isOpen = () => current === mine && byId("dialog").open;
  for (const { wrong, control } of mine.rows) {
    wrong.textContent = "";
    control.removeAttribute("aria-invalid");
  }
  byId("form-wrong").textContent = "";
  byId("form-send").disabled = true;
  try {
    const values = Object.fromEntries(mine.rows.map((row) => [row.field.key, read(row)]));
    await mine.send(values);
    if (isOpen()) {
      byId("dialog").close();
    }
  } catch (error) {
    if (isOpen() && error instanceof NeedsToken) {
      byId("dialog").close();
    } else if (isOpen()) {
      tell(mine, error);
    }
  } finally {
    if (current === mine) {
      byId("form-send").disabled = false;
    }
  }
}

// Opens the dialog: `title`, `text`, `fields`, `label` of the button, `isDanger`, and `send`, which gets the values.
export function open(options) {
  const rows = (options.fields || []).map(rowOf);
  const focused = document.activeElement && document.activeElement.dataset.key;
  current = { rows, send: options.send, focused };
  byId("form-title").textContent = clean(options.title);
  byId("form-text").textContent = clean(options.text || "");
  byId("form-wrong").textContent = "";
  byId("form-command").hidden = true;
  byId("form-fields").replaceChildren(...rows.map(({ row }) => row));
  byId("form-send").textContent = options.label;
  byId("form-send").disabled = false;
  byId("form-send").className = options.isDanger ? "danger" : "main";
  byId("dialog").showModal();
  // The first field, or the button that changes nothing.
  (rows.length > 0 ? rows[0].control : byId("form-cancel")).focus();
}

byId("form").addEventListener("submit", submit);
byId("form-cancel").addEventListener("click", () => byId("dialog").close());
byId("dialog").addEventListener("close", () => {
  const { focused } = current;
  // Passwords do not stay in the page.
  byId("form-fields").replaceChildren();
  // The button that opened the dialog may have been drawn again.
  const again = [...document.querySelectorAll("[data-key]")].find((button) => button.dataset.key === focused);
  if (focused && again) {
    again.focus();
  }
});
