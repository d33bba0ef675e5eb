// Requests to the server, with the token if there is one.

const KEY = "frevo-token";
const PATIENCE_MS = 20000;

// The server requires a token, or refused the one that was sent.
export class NeedsToken extends Error {}

export function hasToken() {
  return sessionStorage.getItem(KEY) !== null;
}

// Keeps the token as long as the tab is open.
export function keepToken(token) {
  sessionStorage.setItem(KEY, token);
}

export function forgetToken() {
  sessionStorage.removeItem(KEY);
}

// Gets a path of the interface as JSON.
export async function ask(path) {
  const headers = {};
  const token = sessionStorage.getItem(KEY);
  if (token !== null) {
    headers.Authorization = "Bearer " + token;
  }
  const stop = new AbortController();
  const timer = setTimeout(() => stop.abort(), PATIENCE_MS);
  try {
    const answer = await fetch(path, { headers, cache: "no-store", signal: stop.signal });
    if (answer.status === 401) {
      throw new NeedsToken(token === null ? "" : "The server has another token.");
    }
    const body = await answer.json();
    if (!answer.ok) {
      throw new Error(body.error || "The server answered with " + answer.status + ".");
    }
    return body;
  } finally {
    clearTimeout(timer);
  }
}
