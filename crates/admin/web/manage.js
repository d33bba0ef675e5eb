// Users, settings of shares and limits of rate, and what ends sessions and makes snapshots.

import { NeedsToken, ask, may, send } from "./connection.js";
import { open, rowButton } from "./form.js";
import { clean } from "./format.js";
import { Table, badge } from "./tables.js";

const byId = (id) => document.getElementById(id);

let lists = null;

function say(words) {
  byId("manage-said").textContent = words;
}

// Returns what has the server make changes of a list as it is shown now: a change that somebody else makes meanwhile
// refuses them.
function saver(kind) {
  const { revision } = lists[kind];
  return (wanted, words) => change(kind, revision, wanted, words);
}

// Has the server make a change, tells of it and shows the list again.
async function change(kind, revision, wanted, words) {
  try {
    const done = await send("manage/" + kind, { revision, change: wanted });
    const ended = done.sessions > 0 ? " Sessions that ended: " + done.sessions + "." : "";
    say([words + "." + ended, ...done.warnings.map((warning) => "Warning: " + clean(warning))].join(" "));
  } finally {
    // Also after a refusal: somebody else may have changed the list.
    await load(kind);
  }
}

async function load(kind) {
  const list = lists[kind];
  try {
    const told = await ask("manage/" + kind);
    list.revision = told.revision;
    list.table.show(told.rows);
    list.note.textContent = told.read_only === null ? "" : clean(told.read_only) +
      ". The page tells the commands that make changes.";
  } catch (error) {
    if (error instanceof NeedsToken) {
      throw error;
    }
    list.note.textContent = clean(error.message);
  }
}

// --- Users ---

const GROUPS = { key: "groups", label: "Groups", kind: "lines", hint: "One in each line; Administrators administer the server." };
const PASSWORD = { key: "password", label: "Password", kind: "password", required: true };

function addUser() {
  const save = saver("users");
  open({
    title: "New user", label: "Add",
    fields: [{ key: "name", label: "Name", required: true }, PASSWORD, GROUPS],
    send: (values) => save({ act: "add", ...values }, "The user " + clean(values.name) + " was added"),
  });
}

// The rules for logons, in the words of `frevo user set`.
const RULES = [
  { key: "expires", label: "Expires", required: true, empty: "never", hint: "The last day, such as 2026-12-31, or never." },
  { key: "hours", label: "Hours", required: true, empty: "always", hint: "Such as mon-fri 07:00-19:00; sat 09:00-12:00, or always." },
  { key: "workstations", label: "Computers", kind: "lines", hint: "One name in each line. None: all. A computer says its name itself." },
  { key: "must_change", label: "The password must be changed", kind: "check" },
];

function userNodes(row) {
  const { name } = row;
  const save = saver("users");
  const isOn = row.state === "enabled" || row.state === "expired";
  const one = (label, act) => rowButton(label, name, "user " + label + name, act);
  const made = (words) => "The user " + clean(name) + " " + words;
  return [
    one("Password\u2026", () => open({
      title: "Password of " + name, label: "Set", fields: [PASSWORD],
      send: ({ password }) => save({ act: "password", name, password }, made("has another password")),
    })),
    one("Groups\u2026", () => open({
      title: "Groups of " + name, label: "Set", fields: [{ ...GROUPS, value: row.groups }],
      send: ({ groups }) => save({ act: "groups", name, groups }, made("has other groups")),
    })),
    one("Rules\u2026", () => open({
      title: "Rules for " + name, label: "Set", fields: RULES.map((field) => ({ ...field, value: row[field.key] || field.empty })),
      send: (values) => save({ act: "rules", name, ...values }, made("has other rules")),
    })),
    isOn ? one("Disable\u2026", () => open({
      title: "Disable " + name + "?", text: "The user cannot log on any more, and sessions end.", label: "Disable", isDanger: true,
      send: () => save({ act: "disable", name }, made("is disabled")),
    })) : one("Enable\u2026", () => open({
      title: "Enable " + name + "?", text: "The user may log on again.", label: "Enable",
      send: () => save({ act: "enable", name }, made("is enabled")),
    })),
    one("Remove\u2026", () => open({
      title: "Remove " + name + "?", text: "The account is lost, with its password; its sessions end. Its files stay.",
      label: "Remove", isDanger: true,
      send: () => save({ act: "remove", name }, made("was removed")),
    })),
  ];
}

const userColumns = [
  { head: "User", up: true, first: true, text: (row) => row.name, look: "name" },
  { head: "State", node: (row) => [badge(row.state === "enabled" ? "good" : "unknown", row.state)], text: (row) => row.state },
  { head: "Groups", text: (row) => row.groups.join(", "), look: "medium" },
  { head: "Expires", hint: "The moment from which on the user cannot log on", text: (row) => (row.expires || "").slice(0, 10), look: "short wide" },
  { head: "Password of", hint: "The day on which the password was changed", text: (row) => (row.password_changed || "").slice(0, 10), look: "short wide" },
  { head: "Change", node: userNodes, text: () => "", look: "acts" },
];

// --- Shares and limits ---

const LINES = "One in each line: a user, or a group as @staff.";
const FIELDS = {
  shares: [
    { key: "path", label: "Folder", required: true, hint: "The whole path on the server; it has to be there." },
    { key: "comment", label: "Comment" },
    { key: "read_only", label: "Read-only", kind: "check" },
    { key: "hidden", label: "Not listed", kind: "check" },
    { key: "allow", label: "May connect", kind: "lines", hint: LINES + " Nobody named: all users." },
    { key: "deny", label: "May not connect", kind: "lines", hint: LINES },
    { key: "write_list", label: "May write although it is read-only", kind: "lines", hint: LINES },
    { key: "read_list", label: "May read only", kind: "lines", hint: LINES },
  ],
  rates: [
    { key: "shares", label: "Shares", kind: "lines", hint: "One in each line. None: all shares." },
    { key: "users", label: "Users", kind: "lines", hint: LINES },
    { key: "networks", label: "Networks", kind: "lines", hint: "One in each line, such as 10.9.0.0/16." },
    { key: "each", label: "Limits are of", kind: "choice", choices: [["", "all of them together"], ["user", "each user"], ["session", "each session"], ["address", "each address"]] },
    { key: "read", label: "Read, bytes a second", hint: "A number, or one such as 100M." },
    { key: "write", label: "Write, bytes a second" },
    { key: "operations", label: "Operations a second", kind: "number" },
    { key: "weight", label: "Weight", kind: "number", hint: "The part of a session in limits that it shares with others." },
  ],
};
const NAMES = { shares: "share", rates: "limit" };

// The keys that a form has changed. An empty field removes its key.
function changed(fields, values, before) {
  const keys = {};
  for (const { key, kind } of fields) {
    const old = before[key];
    let value = values[key];
    if (value === "" || Array.isArray(value) && value.length === 0 || value === false && old === undefined) {
      value = null;
    } else if (kind === "number") {
      value = Number(value);
    } else if (typeof old === "number") {
      value = /^\d+$/.test(value) ? Number(value) : value;
    }
    if (JSON.stringify(value) !== JSON.stringify(old === undefined ? null : old)) {
      keys[key] = value;
    }
  }
  return keys;
}

function addSection(kind) {
  const fields = FIELDS[kind];
  const save = saver(kind);
  open({
    title: "New " + NAMES[kind], label: "Add", fields: [{ key: "name", label: "Name", required: true }, ...fields],
    send: (values) => save({ act: "add", name: values.name, keys: changed(fields, values, {}) },
      "The " + NAMES[kind] + " " + clean(values.name) + " was added"),
  });
}

function sectionNodes(kind, row) {
  const { name } = row;
  const save = saver(kind);
  const keys = row.keys || {};
  // A section may call `allow` by its other name.
  const nameOf = (key) => (key === "allow" && keys.users !== undefined ? "users" : key);
  const fields = FIELDS[kind].map((field) => ({ ...field, key: nameOf(field.key), value: keys[nameOf(field.key)] }));
  const one = (label, act) => rowButton(label, name, kind + " " + label + name, act);
  const made = (words) => "The " + NAMES[kind] + " " + clean(name) + " " + words;
  return [
    one("Change\u2026", () => open({
      title: "The " + NAMES[kind] + " " + name, label: "Change", fields,
      send: async (values) => {
        const wanted = changed(fields, values, keys);
        if (Object.keys(wanted).length > 0) {
          await save({ act: "set", name, keys: wanted }, made("was changed"));
        }
      },
    })),
    one("Remove\u2026", () => open({
      title: "Remove the " + NAMES[kind] + " " + name + "?", label: "Remove", isDanger: true,
      text: kind === "shares" ? "Clients lose it at once. Its folder and files stay." : "Nothing is held back by it any more.",
      send: () => save({ act: "remove", name }, made("was removed")),
    })),
  ];
}

function rulesOf({ keys }) {
  const rules = [["allow", "only "], ["users", "only "], ["deny", "not "], ["write_list", "writes: "], ["read_list", "reads: "]];
  const found = rules.filter(([key]) => Array.isArray(keys && keys[key]));
  return found.map(([key, words]) => words + keys[key].join(", ")).join("; ") || "all users";
}

function limitsOf({ keys }) {
  const limits = [["read", " read"], ["write", " written"], ["operations", " operations"]];
  const found = limits.filter(([key]) => keys && keys[key] !== undefined);
  return found.map(([key, words]) => keys[key] + words).join(", ") || "none";
}

const sectionColumns = (kind, more) => [
  { head: kind === "shares" ? "Share" : "Limit", up: true, first: true, text: (row) => row.name, look: "name" },
  ...more,
  { head: "In", hint: "The file and the line of the section", text: (row) => row.file + (row.line ? ":" + row.line : ""), look: "wide path" },
  { head: "Change", node: (row) => sectionNodes(kind, row), text: () => "", look: "acts" },
];

// --- Sessions, open files, snapshots ---

// A question whose answer has the server do `act` at `path`.
function question(title, words, label, path, act) {
  return () => open({ title, text: words, label, isDanger: true, send: async () => {
    await send(path, act);
    say(title.replace("?", "") + ": done.");
  } });
}

export const endColumn = {
  head: "End", text: () => "", look: "acts",
  node: (row) => (may("act") ? [rowButton("End\u2026", "the session of " + row.user, "session " + row.id, question(
    "End the session of " + row.user + "?", "Its open files are closed; the client may log on again.", "End",
    "kick", { kind: "session", name: row.id },
  ))] : []),
};

export const closeColumn = {
  head: "Close", text: () => "", look: "acts",
  node: (row) => (may("act") ? [rowButton("Close\u2026", row.path, "open " + row.id, question(
    "Close the file?", row.share + ": " + row.path + ". The client loses changes that it has not sent.", "Close",
    "kick", { kind: "open", name: row.id },
  ))] : []),
};

async function deleteSnapshot(share) {
  let choices;
  try {
    const all = await send("snapshots", { act: "list", share });
    choices = all.reverse().filter((one) => !one.shadow_copy).map(({ snapshot }) => [String(snapshot), new Date(snapshot * 1000).toLocaleString()]);
  } catch (error) {
    say(clean(error.message));
    return;
  }
  if (choices.length === 0) {
    say("The share " + clean(share) + " has no snapshots of the server.");
    return;
  }
  open({
    title: "Delete a snapshot of " + share, text: "Earlier versions of files are lost with it.", label: "Delete", isDanger: true,
    fields: [{ key: "snapshot", label: "Snapshot of", kind: "choice", choices, value: choices[0][0] }],
    send: async ({ snapshot }) => {
      await send("snapshots", { act: "remove", share, snapshot: Number(snapshot) });
      say("The snapshot was deleted.");
    },
  });
}

export const snapshotActs = {
  head: "Change", text: () => "", look: "acts",
  node: (row) => (may("act") ? [
    rowButton("Make one\u2026", "snapshot of " + row.share, "make " + row.share, () => open({
      title: "Make a snapshot of " + row.share + "?", label: "Make",
      send: async () => {
        await send("snapshots", { act: "create", share: row.share });
        say("A snapshot of " + clean(row.share) + " was made.");
      },
    })),
    rowButton("Delete\u2026", "a snapshot of " + row.share, "delete " + row.share, () => deleteSnapshot(row.share)),
  ] : []),
};

// Shows the lists to those who may change them, once.
export async function startManaging() {
  byId("manage").hidden = !may("manage");
  if (lists !== null || !may("manage")) {
    return;
  }
  const list = (kind, caption, columns, empty) => ({
    revision: "", note: byId(kind + "-note"), table: new Table(byId(kind + "-list"), caption, columns, { limit: 1000, empty, others: "the files have all" }),
  });
  lists = {
    users: list("users", "Accounts of users", userColumns, "There are no users."),
    shares: list("shares", "Settings of shares", sectionColumns("shares", [
      { head: "Folder", text: (row) => (row.keys ? row.keys.path : ""), look: "path" },
      { head: "Users", text: rulesOf, look: "medium" },
    ]), "There are no shares."),
    rates: list("rates", "Settings of limits of rate", sectionColumns("rates", [
      { head: "Limits", text: limitsOf },
    ]), "There are no limits of rate."),
  };
  byId("add-user").addEventListener("click", addUser);
  byId("add-share").addEventListener("click", () => addSection("shares"));
  byId("add-rate").addEventListener("click", () => addSection("rates"));
  await Promise.all(Object.keys(lists).map(load));
}
