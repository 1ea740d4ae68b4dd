// Requests to the server. A token is asked for when the server wants one, and kept until the tab is closed.

const TOKEN = "tidemill-token";
let askForToken = async () => null;

/** `ask(why)` returns a token, or null if the user gives none. */
export function onTokenWanted(ask) {
  askForToken = ask;
}

export const hasToken = () => sessionStorage.getItem(TOKEN) !== null;

export class Failed extends Error {
  constructor(status, code, message) {
    super(message);
    this.status = status;
    this.code = code;
  }
}

async function answered(method, path, body, signal) {
  const headers = { Accept: "application/json" };
  const token = sessionStorage.getItem(TOKEN);
  if (token) headers.Authorization = `Bearer ${token}`;
  if (body !== undefined) headers["Content-Type"] = "application/json";
  const answer = await fetch(path, { method, headers, body, signal, cache: "no-store", credentials: "same-origin" });
  const text = await answer.text();
  let found = null;
  try {
    found = text ? JSON.parse(text) : null;
  } catch {
    throw new Failed(answer.status, "", `the server answered ${answer.status} with something that is not JSON`);
  }
  if (answer.ok) return found;
  const code = found?.error_code ?? "";
  throw new Failed(answer.status, code, (found?.error_msg ?? `the server answered ${answer.status}`).replace(`[${code}]`, ""));
}

export const get = (path, signal) => answered("GET", path, undefined, signal);

/** Send what changes something. `body`: an object, or JSON as a text. Asks for a token where the server wants one. */
export async function send(method, path, body) {
  const text = body === undefined || typeof body === "string" ? body : JSON.stringify(body);
  for (let why = ""; ; ) {
    try {
      return await answered(method, path, text);
    } catch (error) {
      if (!(error instanceof Failed) || error.status !== 401) throw error;
      const token = await askForToken(hasToken() ? error.message : why);
      if (token === null) throw error;
      sessionStorage.setItem(TOKEN, token);
    }
  }
}

/** Ask for a token ahead of a request. Returns whether there is one now. */
export async function giveToken(why) {
  const token = await askForToken(why);
  if (token !== null) sessionStorage.setItem(TOKEN, token);
  return token !== null;
}

export const feedPath = (id, below = "") => `/api/v2/changefeeds/${encodeURIComponent(id)}${below}`;
