// The page: asks the server every few seconds and shows the answers.

import { Chart } from "./charts.js";
import { NeedsToken, ask, canLogOff, logOff, logOn, may } from "./connection.js";
import { bytes, clean, counted, latency, number, span } from "./format.js";
import { closeColumn, endColumn, snapshotActs, startManaging } from "./manage.js";
import { Table, badge, meter, share } from "./tables.js";

const PAUSE_MS = 5000;
const SESSIONS_ASKED = 2000;
const OPENS_ASKED = 500;
const ROWS_SHOWN = 100;
const THEME = "frevo-theme";

const byId = (id) => document.getElementById(id);
const text = (id, value) => {
  byId(id).textContent = value;
};
const megabytes = (value) => (value === null ? "\u2013" : number(value));

let charts = null;
let tables = null;
let samples = null;
let earlier = new Map();
let asking = false;

// --- Theme ---

function applyTheme(theme) {
  if (theme === "light" || theme === "dark") {
    document.documentElement.dataset.theme = theme;
  } else {
    delete document.documentElement.dataset.theme;
  }
  Object.values(charts || {}).forEach((chart) => chart.build());
}

function startTheme() {
  const chosen = localStorage.getItem(THEME) || "";
  byId("theme").value = chosen;
  applyTheme(chosen);
  byId("theme").addEventListener("change", (event) => {
    localStorage.setItem(THEME, event.target.value);
    applyTheme(event.target.value);
  });
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  dark.addEventListener("change", () => applyTheme(byId("theme").value));
}

// --- The history ---

const COLUMNS = [
  "time", "received_per_second", "sent_per_second", "operations_per_second",
  "failures_per_second", "median_us", "p95_us", "p99_us",
];

function addSamples(answer) {
  const isNew = samples === null || answer.last < samples.last;
  const columns = {};
  // Drops samples that are not older than the new ones: after a clock was set back, the line would
  // run backwards.
  const first = answer.time.length > 0 ? answer.time[0] : Infinity;
  const kept = isNew ? [] : samples.columns.time.filter((time) => time < first);
  for (const name of COLUMNS) {
    const old = isNew ? [] : samples.columns[name].slice(0, kept.length);
    columns[name] = old.concat(answer[name]).slice(-answer.samples_max);
  }
  samples = { last: answer.last, columns };
  const { time } = columns;
  const mega = (values) => values.map((value) => value / 1e6);
  charts.throughput.show([time, mega(columns.sent_per_second), mega(columns.received_per_second)]);
  charts.operations.show([time, columns.operations_per_second, columns.failures_per_second]);
  charts.latency.show([time, columns.median_us, columns.p95_us, columns.p99_us]);
  const latest = (name) => (time.length > 0 ? columns[name][time.length - 1] : null);
  const rate = (name) => (time.length > 0 ? bytes(latest(name)) + "/s" : "\u2013");
  text("tile-reads", rate("sent_per_second"));
  text("tile-writes", rate("received_per_second"));
  text("tile-operations", time.length > 0 ? number(latest("operations_per_second")) + "/s" : "\u2013");
  text("tile-latency", latency(latest("p99_us")));
}

// --- Clients ---

const CAUSES = [
  ["disk", "waited_medium_us"],
  ["others", "waited_others_us"],
  ["limits", "waited_limits_us"],
  ["credits", "without_credits_us"],
  ["network", "unsent_us"],
  ["server", "busy_us"],
];

function protection(row) {
  if (row.encryption) {
    return "sealed, " + row.encryption;
  }
  return row.signing ? "signed, " + row.signing : "none";
}

// The rates of sessions since the previous answer.
function withRates(sessions, now) {
  const next = new Map();
  const rows = sessions.map((row) => {
    const old = earlier.get(row.id);
    next.set(row.id, { at: now, activity: row.activity });
    const seconds = old ? (now - old.at) / 1000 : 0;
    const grown = (field) => {
      return seconds > 0 ? Math.max(0, row.activity[field] - old.activity[field]) / seconds : 0;
    };
    const causes = CAUSES.map(([name, field]) => [name, grown(field) / 1e6]);
    const large = causes.filter(([, part]) => part >= 0.05).sort((a, b) => b[1] - a[1]);
    const waits = large.slice(0, 2).map(([name, part]) => name + " " + Math.round(part * 100) + " %");
    return {
      ...row,
      reads: grown("sent"),
      writes: grown("received"),
      rate: grown("operations"),
      waits: waits.join(", ") + (row.limited_by ? " (" + clean(row.limited_by) + ")" : ""),
    };
  });
  earlier = next;
  return rows;
}

const clientColumns = [
  { head: "User", up: true, text: (row) => row.user, look: "name" },
  { head: "Address", up: true, text: (row) => row.address, look: "short medium" },
  { head: "Client", hint: "The name that the client gives its machine; it proves nothing", up: true, text: (row) => row.client, look: "medium" },
  { head: "Dialect", text: (row) => row.dialect, look: "short wide" },
  { head: "Protection", text: protection, look: "short medium" },
  { head: "Reads", hint: "Sorts by reads and writes together", first: true, text: (row) => bytes(row.reads) + "/s", value: (row) => row.reads + row.writes, look: "number" },
  { head: "Writes", text: (row) => bytes(row.writes) + "/s", value: (row) => row.writes, look: "number" },
  { head: "Op/s", text: (row) => number(row.rate), value: (row) => row.rate, look: "number" },
  { head: "Waits for", hint: "Parts of the time in which requests waited for the disk, for other clients, for credits, for limits of rate, for the network or for the server's processor", text: (row) => row.waits, look: "short wide" },
  { head: "Open", text: (row) => number(row.opens), value: (row) => row.opens, look: "number medium" },
  { head: "Idle", up: true, text: (row) => span(row.idle_ms / 1000), value: (row) => row.idle_ms, look: "number" },
];

// --- Open files ---

function pathOf(row) {
  const isRoot = row.path === "" || row.path === "\\";
  return isRoot ? "\\" : row.path + (row.kind === "directory" ? "\\" : "");
}

const openColumns = [
  { head: "User", up: true, text: (row) => row.user, look: "name" },
  { head: "Share", up: true, text: (row) => row.share, look: "medium" },
  { head: "Path", up: true, first: true, text: pathOf, look: "path" },
  { head: "Access", hint: "r read, w write, d delete, x execute, a attributes alone", text: (row) => row.access, look: "short medium" },
  { head: "Caching", hint: "The client's lease or oplock: R read, W write, H handle", text: (row) => row.caching, look: "short wide" },
  { head: "Locks", text: (row) => number(row.locks), value: (row) => row.locks, look: "number medium" },
  { head: "Kept", hint: "How it outlives a lost connection: durable, resilient or persistent", text: (row) => row.durable || "", look: "short wide" },
];

// --- Shares ---

const STATES = { ok: ["good", "ok"], failed: ["bad", "failed"], no_answer: ["bad", "no answer"],
  not_served: ["bad", "not served"] };

function stateNodes(row) {
  const [kind, words] = STATES[row.state] || ["unknown", row.state === "none" ? "pipes" : "not looked at yet"];
  const nodes = [badge(kind, words)];
  if (row.reason) {
    nodes.push(" " + clean(row.reason));
  }
  for (const client of row.brake ? row.brake.clients : []) {
    nodes.push(" ", badge("bad", "brake: " + clean(client.action)), " " + clean(client.user) + " at " + clean(client.address));
  }
  return nodes;
}

function spaceNodes(row) {
  if (!row.total) {
    return ["\u2013"];
  }
  const used = 1 - row.available / row.total;
  const words = Math.round(used * 100) + " % used";
  return [meter(used, words), bytes(row.available) + " free of " + bytes(row.total)];
}

function optionsOf(row) {
  const options = [["read_only", "read-only"], ["encrypt", "encrypted"], ["hidden", "hidden"]];
  const saved = row.saved > 0 ? ["compression saved " + bytes(row.saved)] : [];
  return options.filter(([field]) => row[field]).map(([, name]) => name).concat(saved).join(", ");
}

const shareColumns = [
  { head: "Share", up: true, first: true, text: (row) => row.name },
  { head: "State", node: stateNodes, text: (row) => row.state },
  { head: "Space", node: spaceNodes, text: () => "", value: (row) => (row.total ? row.available / row.total : 2), look: "medium short" },
  { head: "Sessions", text: (row) => number(row.connections), value: (row) => row.connections, look: "number" },
  { head: "Open", text: (row) => number(row.opens), value: (row) => row.opens, look: "number" },
  { head: "Options", text: optionsOf, look: "wide" },
  { head: "Comment", text: (row) => row.comment, look: "wide" },
];

function shareRows(shares, health) {
  const known = new Map(health.rows.map((row) => [row.name, row]));
  const served = shares.map((row) => ({ ...row, state: "none", ...known.get(row.name) }));
  const absent = health.rows.filter((row) => row.state === "not_served");
  return absent.map((row) => ({ ...row, connections: 0, opens: 0, comment: "" })).concat(served);
}

// --- Snapshots ---

const moment = (seconds) => (seconds === null ? "\u2013" : new Date(seconds * 1000).toLocaleString());

function snapshotNodes(row) {
  if (row.last_error) {
    return [badge("bad", "failed"), " " + clean(row.last_error)];
  }
  if (row.ahead > 0) {
    return [badge("bad", "look"), " " + number(row.ahead) + " of a time to come: is the server's clock right?"];
  }
  if (row.lacks) {
    return [badge("bad", "look"), " " + clean(row.lacks)];
  }
  return [badge("good", "ok")];
}

const snapshotColumns = [
  { head: "Share", up: true, first: true, text: (row) => row.share },
  { head: "State", node: snapshotNodes, text: (row) => row.last_error || "" },
  { head: "Number", text: (row) => number(row.count), value: (row) => row.count, look: "number" },
  { head: "Oldest", text: (row) => moment(row.oldest), value: (row) => row.oldest, look: "medium" },
  { head: "Newest", text: (row) => moment(row.newest), value: (row) => row.newest },
  { head: "Next", text: (row) => moment(row.next), value: (row) => row.next, look: "medium" },
  { head: "By", text: (row) => row.provider || "", look: "wide" },
  { head: "Schedule", text: (row) => row.schedule, look: "wide" },
];

// --- Quotas ---

const LIMITS = [["space", "soft_space"], ["space", "hard_space"], ["files", "soft_files"], ["files", "hard_files"]];

function fullness(row) {
  const parts = LIMITS.filter(([, limit]) => row[limit] !== null).map(([used, limit]) => (row[limit] > 0 ? row[used] / row[limit] : 1));
  return Math.max(0, ...parts);
}

function limitOf(soft, hard, show) {
  const limit = hard === null ? soft : hard;
  return limit === null ? "\u2013" : show(limit);
}

function fullNodes(row) {
  const full = fullness(row);
  const words = Math.round(full * 100) + " %" + (row.enforced ? "" : ", counted only");
  return [meter(Math.min(1, full), words), words];
}

const quotaColumns = [
  { head: "Quota of", hint: "A user or a group by its number on the server's host, or a whole share", up: true, text: (row) => (row.kind === "share" ? "share" : row.kind + " " + row.id) },
  { head: "Shares", hint: "All shares on the file system of a user's or group's quota", up: true, text: (row) => row.shares.join(", ") },
  { head: "Full", hint: "The fullest of the limits", first: true, node: fullNodes, text: () => "", value: fullness },
  { head: "Space", text: (row) => bytes(row.space), value: (row) => row.space, look: "number" },
  { head: "Limit", text: (row) => limitOf(row.soft_space, row.hard_space, bytes), value: (row) => row.hard_space, look: "number" },
  { head: "Files", text: (row) => (row.kind === "share" && row.files === 0 ? "\u2013" : number(row.files)), value: (row) => row.files, look: "number medium" },
  { head: "Limit", text: (row) => limitOf(row.soft_files, row.hard_files, number), value: (row) => row.hard_files, look: "number medium" },
];

// --- Limits of rate ---

function eachOf(row) {
  return row.each === null ? "all together" : row.each + " (" + number(row.buckets) + ")";
}

// The users, sessions or addresses that are held back: `ann (write, 12 wait)`.
function heldOf(row) {
  const words = (one) => (one.waiting > 0 ? number(one.waiting) + " wait" : number(one.held) + " waited");
  return row.most_held.map((one) => clean(one.who) + " (" + one.by + ", " + words(one) + ")").join(", ");
}

const perSecond = (value, show) => (value === null ? "\u2013" : show(value) + "/s");

const rateColumns = [
  { head: "Limit", up: true, text: (row) => row.name, look: "name" },
  { head: "For each", hint: "Who has the limits on its own, and how many there are", text: eachOf },
  { head: "Read", text: (row) => perSecond(row.read, bytes), value: (row) => row.read, look: "number medium" },
  { head: "Write", text: (row) => perSecond(row.write, bytes), value: (row) => row.write, look: "number medium" },
  { head: "Operations", text: (row) => perSecond(row.operations, number), value: (row) => row.operations, look: "number medium" },
  { head: "Waiting", hint: "Requests that wait now", first: true, text: (row) => number(row.waiting), value: (row) => row.waiting, look: "number" },
  { head: "Held back", hint: "Requests that have waited since the limit is in force", text: (row) => number(row.held), value: (row) => row.held, look: "number" },
  { head: "For", text: (row) => span(row.held_us / 1e6), value: (row) => row.held_us, look: "number medium" },
  { head: "Held back most", hint: "Those with limits of their own that wait now, or have waited longest, and the limit that they wait for", text: heldOf, look: "wide" },
];

// A card with a table is there while the table has rows.
function showCard(name, rows, more) {
  byId(name + "-card").hidden = rows.length === 0;
  tables[name].show(rows, more);
}

// --- Cluster ---

const unitColumns = [
  { head: "Unit", up: true, first: true, text: (row) => row.name },
  { head: "Owner", text: (row) => row.owner || "none" },
  { head: "Here", hint: "The state at this node", text: (row) => row.state },
  { head: "For", hint: "Time with this owner, as this node has seen it", text: (row) => (row.owned_seconds === null ? "\u2013" : span(row.owned_seconds)), value: (row) => row.owned_seconds, look: "number" },
  { head: "Because", text: (row) => row.because || "", look: "wide" },
  { head: "Fence", text: (row) => row.fence || "no storage", look: "medium" },
];

const happeningColumns = [
  { head: "Ago", up: true, first: true, text: (row) => span(row.seconds_ago), value: (row) => row.seconds_ago, look: "number" },
  { head: "What happened here", node: (row) => [badge(row.is_warning ? "bad" : "good", row.is_warning ? "look" : "note"), " " + clean(row.what)], text: (row) => row.what },
];

const witnessColumns = [
  { head: "Client", up: true, first: true, text: (row) => row.client },
  { head: "User", text: (row) => row.user },
  { head: "From", text: (row) => row.address },
  { head: "Uses", hint: "The address at which the client uses SMB", text: (row) => row.server_address },
  { head: "Share", text: (row) => row.share || "\u2013" },
  { head: "News", hint: "News that the client has not fetched", text: (row) => (row.waiting ? "waits" : number(row.queued) + " not fetched"), value: (row) => row.queued, look: "number" },
];

function showCluster(view, witness) {
  byId("cluster-card").hidden = view === null;
  if (view === null) {
    return;
  }
  const state = !view.etcd_answers ? "etcd does not answer" : view.is_serving ? "served" : "paused";
  const most = view.max_dialect === null ? "" : "clients use SMB " + clean(view.max_dialect) + " at most; ";
  text("cluster-facts", clean(view.cluster) + ", node " + clean(view.node) + ": " + state + "; " + most +
    view.nodes.map((node) => clean(node.name) + " (" + clean(node.state) + ", " + counted(node.units, "unit") + ")").join(", "));
  tables.units.show(view.units);
  tables.happenings.show(view.happenings);
  tables.witness.show(witness.rows, witness.more);
}

// A server on its own has no cluster.
async function askCluster() {
  try {
    return await ask("cluster");
  } catch (error) {
    if (error instanceof NeedsToken) {
      throw error;
    }
    return null;
  }
}

// --- Errors ---

const errorColumns = [
  { head: "Status", up: true, text: (row) => row.status, look: "path" },
  { head: "Requests", first: true, text: (row) => number(row.count), value: (row) => row.count, look: "number" },
  { head: "Part", node: (row) => [share(row.part, Math.round(row.part * 100) + " % of all errors")], text: () => "", value: (row) => row.count, look: "medium" },
];

// --- The whole page ---

function build() {
  const chart = (id, options) => new Chart(byId(id), byId(id + "-legend"), options);
  charts = {
    throughput: chart("throughput", { title: "Throughput in MB/s", series: ["reads", "writes"], format: megabytes, least: 1 }),
    operations: chart("operations", { title: "Operations per second", series: ["all", "errors"], format: number, least: 10 }),
    latency: chart("latency", { title: "Latency", series: ["50 %", "95 %", "99 %"], format: latency, isLog: true }),
  };
  const acts = (columns, column) => (may("act") ? columns.concat(column) : columns);
  const table = (id, caption, columns, options) => new Table(byId(id), caption, columns, { limit: ROWS_SHOWN, ...options });
  tables = {
    shares: table("shares", "Shares and their folders", shareColumns, { empty: "There are no shares.", others: "frevo status shows all" }),
    snapshots: table("snapshots", "Snapshots that the server makes of shares", acts(snapshotColumns, snapshotActs), { empty: "", others: "frevo status shows all" }),
    quotas: table("quotas", "Users, groups and shares with limits, the fullest first", quotaColumns, { empty: "", others: "frevo quota show shows all" }),
    rates: table("rates", "Limits of rate and what they hold back", rateColumns, { empty: "", others: "frevo status shows all" }),
    units: table("units", "Units of the cluster and their owners", unitColumns, { empty: "There are no shares with cluster = true." }),
    happenings: table("happenings", "What happened at this node", happeningColumns, { empty: "Nothing happened yet.", others: "the log has all" }),
    witness: table("witness", "Clients of other nodes that have registered here", witnessColumns, { empty: "No client of another node has registered here.", others: "frevo status shows more" }),
    clients: table("clients", "Sessions of clients", acts(clientColumns, endColumn), { empty: "No client is connected.", others: "frevo top and frevo status show all" }),
    opens: table("opens", "Files that clients have open", acts(openColumns, closeColumn), { empty: "No files are open.", others: "frevo opens shows all" }),
    errors: table("errors", "Requests answered with an error", errorColumns, { empty: "No request was answered with an error.", others: "/status lists all" }),
  };
  for (const name of ["clients", "opens"]) {
    byId(name + "-filter").addEventListener("input", (event) => tables[name].filterBy(event.target.value));
  }
}

/** The sentence about a configuration that was refused; empty if none was. */
function refusal(configuration) {
  const refused = configuration.refused;
  return refused === null ? "" : "Since " + moment(refused.since) + " the files of the configuration are refused, and " +
    "the configuration before is in force: " + clean(refused.why);
}

function show([history, status, opens, health, cluster, snapshots, quotas]) {
  // The elements are shown first, because charts cannot be drawn in hidden elements.
  byId("login").hidden = true;
  byId("figures").hidden = false;
  byId("leave").hidden = !canLogOff();
  if (charts === null) {
    build();
  }
  const server = status.server;
  document.title = clean(server.name) + " \u2013 Frevo";
  text("name", clean(server.name));
  text("facts", "Frevo " + server.version + ", up " + span(server.now - server.started) + ", " +
    counted(server.connections, "connection"));
  addSamples(history);
  text("tile-sessions", number(server.sessions));
  text("tile-opens", number(server.opens));
  text("tile-memory", bytes(server.memory));
  text("tile-logons", number(server.failed_logons));
  tables.shares.show(shareRows(status.shares.rows, health), status.shares.more);
  showCard("snapshots", snapshots);
  showCard("quotas", quotas);
  showCard("rates", status.rates.rows, status.rates.more);
  showCluster(cluster, status.witness);
  tables.clients.show(withRates(status.sessions.rows, performance.now()), status.sessions.more);
  tables.opens.show(opens.opens.rows, opens.opens.more);
  const sum = server.errors.reduce((all, error) => all + error.count, 0);
  tables.errors.show(server.errors.map((error) => ({ ...error, part: error.count / sum })));
}

function say(kind, words, notice) {
  const place = byId("connection");
  // An unchanged status is not set again, because screen readers would repeat it.
  if (place.textContent !== words) {
    place.className = "badge " + kind;
    place.textContent = words;
  }
  byId("notice").hidden = !notice;
  text("notice", notice || "");
}

function wantToken(why) {
  const wasHidden = byId("login").hidden;
  byId("figures").hidden = true;
  byId("login").hidden = false;
  byId("leave").hidden = true;
  text("login-error", why);
  say("unknown", "token needed", "");
  if (wasHidden || why) {
    byId("token").focus();
  }
}

async function look() {
  if (asking) {
    return;
  }
  asking = true;
  try {
    const since = samples === null ? 0 : samples.last;
    const answers = await Promise.all([
      ask("history?since=" + since),
      ask("status?parts=none&latencies=no&limit=" + SESSIONS_ASKED),
      ask("status?parts=opens&latencies=no&limit=" + OPENS_ASKED),
      ask("shares"),
      askCluster(),
      ask("snapshots"),
      ask("quotas"),
      ask("configuration"),
    ]);
    show(answers);
    await startManaging();
    say("good", "live", refusal(answers.at(-1)));
  } catch (error) {
    if (error instanceof NeedsToken) {
      wantToken(error.message);
    } else {
      const why = error.name === "AbortError" ? "it did not answer" : clean(error.message);
      say("bad", "no connection", "The server cannot be asked: " + why +
        ". The figures are the latest known; the page tries again every " + PAUSE_MS / 1000 + " s.");
    }
  } finally {
    asking = false;
  }
}

function tick() {
  // A hidden page and a page without a token send no requests.
  if (!document.hidden && byId("login").hidden) {
    look();
  }
}

startTheme();
byId("login-form").addEventListener("submit", async (event) => {
  event.preventDefault();
  const token = byId("token").value.trim();
  byId("token").value = "";
  text("login-error", "");
  try {
    await logOn(token);
  } catch (error) {
    wantToken(clean(error.message));
    return;
  }
  if (tables === null) {
    look();
  } else {
    // Another token may have other rights: the page is built for them.
    location.reload();
  }
});
byId("leave").addEventListener("click", async () => {
  await logOff().catch(() => {});
  location.reload();
});
document.addEventListener("visibilitychange", tick);
setInterval(tick, PAUSE_MS);
look();
