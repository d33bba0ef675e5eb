// Requests to the server, in the session of this browser: a cookie that no script can read.

const PATIENCE_MS = 20000;
const CHANGE_PATIENCE_MS = 120000;
const RIGHTS = ["look", "act", "manage"];

let session = null;
let learning = null;

// The server requires a token, or refused the one that was sent.
export class NeedsToken extends Error {}

// The server refused a change: `field` of the form, and `command` to run instead, if there are some.
export class Refused extends Error {
  constructor(status, body) {
    super(body.error || "The server answered with " + status + ".");
    this.field = body.field || "";
    this.command = body.command || "";
  }
}

// True if this browser has a right: "look", "act" or "manage".
export function may(right) {
  return session !== null && RIGHTS.indexOf(session.rights) >= RIGHTS.indexOf(right);
}

// True for a session that can be ended: not on the Unix socket.
export function canLogOff() {
  return session !== null && !session.local;
}

async function request(method, path, body) {
  const headers = {};
  if (method !== "GET" && session !== null && session.csrf) {
    headers["X-Frevo-CSRF"] = session.csrf;
  }
  const stop = new AbortController();
  const timer = setTimeout(() => stop.abort(), method === "GET" ? PATIENCE_MS : CHANGE_PATIENCE_MS);
  try {
    const sent = body === undefined ? undefined : JSON.stringify(body);
    const answer = await fetch(path, { method, headers, body: sent, cache: "no-store", signal: stop.signal });
    if (answer.status === 401) {
      const words = session === null ? "" : "The session has ended; log on again.";
      session = null;
      throw new NeedsToken(body && body.token ? "The server has another token." : words);
    }
    const told = await answer.json();
    if (!answer.ok) {
      throw new Refused(answer.status, told);
    }
    return told;
  } finally {
    clearTimeout(timer);
  }
}

// Gets a path of the interface as JSON. Learns the rights of this browser first.
export async function ask(path) {
  if (session === null) {
    learning = learning || request("GET", "session");
    try {
      session = await learning;
    } finally {
      learning = null;
    }
  }
  return request("GET", path);
}

// Has the server change something.
export function send(path, body) {
  return request("POST", path, body);
}

// Begins a session.
export async function logOn(token) {
  session = await request("POST", "session", { token });
}

// Ends the session.
export async function logOff() {
  try {
    await request("DELETE", "session");
  } finally {
    session = null;
  }
}
