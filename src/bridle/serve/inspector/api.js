// Requests to the API of the server that served this page.

const BASE = new URL("api/", document.baseURI);
const TOKEN_KEY = "bridle-token";

export class ApiError extends Error {
  /**
   * @param {number} status
   * @param {string} code
   * @param {string} message
   * @param {string} [hint]
   */
  constructor(status, code, message, hint) {
    super(hint ? `${message}; ${hint}` : message);
    this.status = status;
    this.code = code;
  }
}

/** Move a token from the address (#token=…) to this tab's storage, so that it is not in the history. */
export function takeToken() {
  const found = /^#token=([^&]+)&?(.*)$/.exec(location.hash);
  if (!found) return;
  sessionStorage.setItem(TOKEN_KEY, decode(found[1]));
  history.replaceState(null, "", `#${found[2] || "/"}`);
}

/** @param {string} token */
export const setToken = (token) => sessionStorage.setItem(TOKEN_KEY, token);

/** @param {string} text */
export function decode(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

/**
 * @param {Record<string, string>} more
 * @returns {Record<string, string>}
 */
function headers(more) {
  const token = sessionStorage.getItem(TOKEN_KEY);
  return token ? { ...more, authorization: `Bearer ${token}` } : more;
}

/**
 * A path of the API; every part is encoded.
 * @param {(string | number)[]} parts
 */
export function path(...parts) {
  for (const part of parts) {
    // A browser resolves these two even when they are encoded.
    if (/^\.{1,2}$/.test(String(part))) throw new ApiError(400, "invalid_request", `a session with the name ${part} cannot be shown`);
  }
  return parts.map((part) => encodeURIComponent(part)).join("/");
}

/** @type {(session: string, ...parts: (string | number)[]) => string} */
export const sessionPath = (session, ...parts) => path("sessions", session, ...parts);

/** @typedef {Record<string, string | number | null | undefined>} Query */

/**
 * @param {string} method
 * @param {string} where
 * @param {{ query?: Query, body?: unknown, signal?: AbortSignal, accept?: string }} options
 */
async function request(method, where, { query, body, signal, accept }) {
  const url = new URL(where, BASE);
  for (const [name, value] of Object.entries(query ?? {})) {
    if (value !== "" && value !== undefined && value !== null) url.searchParams.set(name, `${value}`);
  }
  const sent = headers({ ...(accept && { accept }), ...(body !== undefined && { "content-type": "application/json" }) });
  const reply = await fetch(url, { method, signal, redirect: "error", credentials: "omit", cache: "no-store", headers: sent, body: body === undefined ? undefined : JSON.stringify(body) });
  if (reply.ok) return reply;
  /** @type {{ code?: string, message?: string, hint?: string }} */
  let error = {};
  try {
    error = (await reply.json()).error ?? {};
  } catch {
    // not from our server
  }
  throw new ApiError(reply.status, error.code ?? "error", error.message ?? `the server answered ${reply.status}`, error.hint);
}

/** @type {(where: string, query?: Query, signal?: AbortSignal) => Promise<any>} */
export const get = async (where, query, signal) => (await request("GET", where, { query, signal })).json();
/** @type {(where: string, body?: object) => Promise<any>} */
export const post = async (where, body = {}) => (await request("POST", where, { body })).json();

/**
 * Stream the events of a session after a record, and reconnect until `signal` ends it.
 * @param {string} session
 * @param {number} after
 * @param {{ onRecord: (record: LogRecord) => void, onDelta: (kind: string, delta: any) => void, onState: (state: string) => void, signal: AbortSignal }} options
 */
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

/**
 * The events of a stream.
 * @param {ReadableStream<Uint8Array<ArrayBuffer>> | null} stream
 */
async function* readFrames(stream) {
  if (!stream) return;
  const reader = stream.pipeThrough(new TextDecoderStream()).getReader();
  let buffer = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    buffer += value;
    const frames = buffer.split("\n\n");
    buffer = frames.pop() ?? "";
    for (const text of frames) {
      /** @type {Record<string, string>} */
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
