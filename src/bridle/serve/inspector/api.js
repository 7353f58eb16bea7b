// Requests to the API of the server that served this page.

const BASE = new URL("api/", document.baseURI);
const TOKEN_KEY = "bridle-token";

export class ApiError extends Error {
  constructor(status, code, message, hint) {
    super(hint ? `${message}; ${hint}` : message);
    Object.assign(this, { status, code });
  }
}

/** Move a token from the address (#token=…) to this tab's storage, so that it is not in the history. */
export function takeToken() {
  const found = /^#token=([^&]+)&?(.*)$/.exec(location.hash);
  if (!found) return;
  sessionStorage.setItem(TOKEN_KEY, decode(found[1]));
  history.replaceState(null, "", `#${found[2] || "/"}`);
}

export const setToken = (token) => sessionStorage.setItem(TOKEN_KEY, token);

export function decode(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

function headers(more = {}) {
  const token = sessionStorage.getItem(TOKEN_KEY);
  return token ? { ...more, authorization: `Bearer ${token}` } : more;
}

/** A path of the API; every part is encoded. */
export function path(...parts) {
  for (const part of parts) {
    // A browser resolves these two even when they are encoded.
    if (/^\.{1,2}$/.test(String(part))) throw new ApiError(400, "invalid_request", `a session with the name ${part} cannot be shown`);
  }
  return parts.map((part) => encodeURIComponent(part)).join("/");
}

export const sessionPath = (session, ...parts) => path("sessions", session, ...parts);

async function request(method, where, { query, body, signal, accept } = {}) {
  const url = new URL(where, BASE);
  for (const [name, value] of Object.entries(query ?? {})) {
    if (value !== "" && value !== undefined && value !== null) url.searchParams.set(name, value);
  }
  const options = { method, signal, redirect: "error", credentials: "omit", cache: "no-store", headers: headers(accept ? { accept } : {}) };
  if (body !== undefined) {
    options.body = JSON.stringify(body);
    options.headers["content-type"] = "application/json";
  }
  const reply = await fetch(url, options);
  if (reply.ok) return reply;
  let error = {};
  try {
    error = (await reply.json()).error ?? {};
  } catch {
    // not from our server
  }
  throw new ApiError(reply.status, error.code ?? "error", error.message ?? `the server answered ${reply.status}`, error.hint);
}

export const get = async (where, query, signal) => (await request("GET", where, { query, signal })).json();
export const post = async (where, body = {}) => (await request("POST", where, { body })).json();

/** Stream the events of a session after a record, and reconnect until `signal` ends it. */
export async function follow(session, after, { onRecord, onDelta, onState, signal }) {
  let last = after;
  let failures = 0;
  while (!signal.aborted) {
    try {
      const reply = await request("GET", sessionPath(session, "stream"), {
        query: { after: last, until: "never" },
        accept: "text/event-stream",
        signal,
      });
      onState("live");
      failures = 0;
      for await (const frame of readFrames(reply.body)) {
        const data = JSON.parse(frame.data);
        if (frame.id) {
          last = Number(frame.id);
          onRecord(data);
        } else if (frame.event !== "end") onDelta(frame.event, data);
      }
    } catch (error) {
      if (signal.aborted) return;
      if (error instanceof ApiError && [401, 403, 404, 421].includes(error.status)) throw error;
    }
    onState("reconnecting");
    failures += 1;
    await new Promise((done) => setTimeout(done, Math.min(500 * 2 ** failures, 15_000)));
  }
}

async function* readFrames(stream) {
  const reader = stream.pipeThrough(new TextDecoderStream()).getReader();
  let buffer = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    buffer += value;
    const frames = buffer.split("\n\n");
    buffer = frames.pop();
    for (const text of frames) {
      const frame = { id: "", event: "", data: "" };
      for (const line of text.split("\n")) {
        const at = line.indexOf(":");
        const name = line.slice(0, at);
        if (name in frame) frame[name] += line.slice(at + 1).replace(/^ /, "");
      }
      if (frame.data) yield frame;
    }
  }
}
