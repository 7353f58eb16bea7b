// Folds the events of a session into what the views show: spans of time and entries of the conversation.
// The log leaves out fields that have their default.

import { usageOf } from "./dom.js";

export class SessionLog {
  /**
   * The log of a session after a record; before it, the model is not known.
   * @param {string} session
   */
  constructor(session, start = 0, model = "") {
    this.session = session;
    this.isPart = start > 0;
    /** @type {LogRecord[]} */
    this.events = [];
    /** @type {Span[]} */
    this.spans = [];
    /** @type {Entry[]} */
    this.entries = [];
    /** @type {Map<string, ToolUse>} */
    this.calls = new Map();
    /** @type {Map<string, Span>} */
    this.open = new Map();
    this.model = this.isPart ? model : "";
    this.shownModel = "";
    this.stepSeq = 0;
    this.run = 0;
    this.last = start;
    /** @type {LiveReply | null} */
    this.live = null;
    this.failedAt = 0;
    this.isRunning = false;
    /** @type {Set<Entry>} */
    this.changed = new Set();
  }

  /**
   * Add an event of the log; entries that it changed are in `changed`.
   * @param {LogRecord} record
   */
  add(record) {
    if (record.seq <= this.last) return false;
    this.last = record.seq;
    this.events.push(record);
    const { event, seq, at } = record;
    const handle = HANDLERS[event.type];
    if (handle) handle(this, event, seq, at);
    else this.note(seq, at, event.type, summarize(event));
    return true;
  }

  /**
   * Add a delta: text of a reply in progress.
   * @param {string} kind
   * @param {any} delta
   */
  addDelta(kind, delta) {
    if (kind === "attempt_restarted" || !["text_delta", "reasoning_delta", "tool_call_delta", "progress"].includes(kind)) {
      if (kind === "attempt_restarted") this.live = null;
      return;
    }
    if (kind === "progress") {
      const call = this.calls.get(delta.call_id);
      if (call) {
        call.progress = delta.message;
        this.changed.add(call.entry);
      }
      return;
    }
    this.live ??= { text: "", reasoning: "", calls: new Map() };
    if (kind === "text_delta") this.live.text += delta.text;
    else if (kind === "reasoning_delta") this.live.reasoning += delta.reasoning;
    else {
      const call = this.live.calls.get(delta.index) ?? { name: "", arguments: "" };
      call.name ||= delta.name;
      call.arguments += delta.arguments;
      this.live.calls.set(delta.index, call);
    }
  }

  /**
   * Begin something that has a duration.
   * @param {string} key
   * @param {Omit<Span, "end" | "status" | "run">} span
   */
  begin(key, span) {
    /** @type {Span} */
    const made = { end: null, status: "open", run: this.run, ...span };
    this.spans.push(made);
    this.open.set(key, made);
    return made;
  }

  /**
   * End it.
   * @param {string} key
   * @param {number} at
   * @param {Partial<Span>} more
   */
  finish(key, at, more) {
    const span = this.open.get(key);
    this.open.delete(key);
    if (span) Object.assign(span, { end: Math.max(at, span.start) }, more);
    return span;
  }

  /**
   * Mark something that has no duration.
   * @param {number} seq
   * @param {number} at
   * @param {string} name
   */
  note(seq, at, name, text = "", status = "note", kind = "note") {
    /** @type {Span} */
    const span = { kind, name, text, start: at, end: at, seq, status, run: this.run };
    this.spans.push(span);
    return span;
  }

  /**
   * Add a row to the transcript.
   * @param {string} kind
   * @param {number} seq
   * @param {number} at
   * @param {Record<string, unknown>} more
   * @returns {Entry}
   */
  entry(kind, seq, at, more) {
    const made = { kind, seq, at, run: this.run, ...more };
    this.entries.push(made);
    return made;
  }

  /**
   * Add a row that says what happened.
   * @param {number} seq
   * @param {number} at
   * @param {string} title
   */
  notice(seq, at, title, text = "", status = "note") {
    return this.entry("notice", seq, at, { title, text, status });
  }

}

/** @param {{ id: string, endpoint?: { name: string } } | null | undefined} model */
const nameModel = (model) => (model ? [model.endpoint?.name, model.id].filter(Boolean).join(":") : "");
/** @param {string} id */
const callKey = (id, attempt = 1) => `tool:${id}:${attempt}`;

/** @type {Handler} */
function addReply(log, event, seq, at) {
  const { reply } = event;
  const entry = log.entry("assistant", seq, at, {
    parts: reply.parts,
    model: reply.origin?.model ?? log.model,
    usage: usageOf(reply.usage),
    usd: event.usd,
    stop: reply.stop,
    stopDetail: reply.stop_detail ?? "",
    latency: event.latency,
    before: log.stepSeq - 1,
  });
  for (const part of reply.parts) addCall(log, entry, part);
}

/**
 * @param {SessionLog} log
 * @param {Entry} entry
 * @param {Part} part
 */
function addCall(log, entry, part) {
  if (part.type === "tool_call") log.calls.set(part.id, { id: part.id, name: part.name, arguments: part.arguments, entry, result: null });
}

/**
 * @param {SessionLog} log
 * @param {Partial<Part>} received
 * @param {number} seq
 * @param {number} at
 * @param {Partial<LogEvent>} event
 */
function addResult(log, received, seq, at, event = {}) {
  const result = { outcome: "ok", parts: [], call_id: "", ...received };
  const call = log.calls.get(result.call_id);
  if (!call) {
    log.entry("results", seq, at, { parts: [result] });
    return;
  }
  Object.assign(call, { result, resultSeq: seq, seconds: call.startedAt ? at - call.startedAt : null, ran: event.arguments ?? "" });
  call.rule = event.rule || call.rule;
  log.changed.add(call.entry);
}

/** @typedef {(log: SessionLog, event: LogEvent, seq: number, at: number) => void} Handler */

/** @type {Record<string, Handler>} */
const HANDLERS = {
  configured(log, event, seq, at) {
    const { settings } = event;
    log.model = nameModel(settings.model);
    const name = event.handed_over_to ? `handed over to ${event.handed_over_to}` : "settings";
    log.note(seq, at, name, [settings.name, log.model].filter(Boolean).join(" · "));
    if (seq === 1 || event.handed_over_to) {
      log.entry("settings", seq, at, { title: name, agent: settings.name ?? "", model: log.model, instructions: settings.instructions ?? "", tools: settings.tools ?? [] });
    } else log.notice(seq, at, "Settings changed", [settings.name, log.model].filter(Boolean).join(" · "));
  },
  forked(log, event, seq, at) {
    log.note(seq, at, "forked", `from ${event.parent} at record ${event.at}`);
    log.notice(seq, at, "Forked", `from ${event.parent} at record ${event.at}`);
  },
  imported(log, event, seq, at) {
    log.note(seq, at, "imported", `${event.messages.length} messages`);
    for (const message of event.messages) {
      const entry = log.entry(message.role === "assistant" ? "assistant" : "user", seq, at, { parts: message.parts.filter((/** @type {Part} */ part) => part.type !== "tool_result"), model: "imported" });
      for (const part of message.parts) {
        addCall(log, entry, part);
        if (part.type === "tool_result") addResult(log, part, seq, at);
      }
      if (!entry.parts.length) log.entries.pop();
    }
  },
  prompted(log, event, seq, at) {
    log.run += 1;
    log.isRunning = true;
    log.note(seq, at, log.isPart ? "run" : `run ${log.run}`, readParts(event.parts), "note", "run");
    log.entry("user", seq, at, { parts: event.parts, caller: event.caller, before: seq - 1 });
  },
  resumed(log, event, seq, at) {
    log.isRunning = true;
    for (const [key, span] of log.open) if (span.kind !== "approval") log.finish(key, at, { status: "lost" });
    log.note(seq, at, "resumed", event.took_over ? "took over" : "");
    log.notice(seq, at, "Resumed", event.took_over ? "taken over from a process that did not answer" : "");
  },
  model_asked(log, event, seq, at) {
    let start = at;
    if (event.wait_seconds > 0) {
      const from = log.failedAt || at;
      start = Math.max(at, from + event.wait_seconds);
      log.spans.push({ kind: "wait", name: "wait", text: event.wait_source, start: from, end: start, seq, status: "note", run: log.run });
    }
    const attempt = event.attempt ?? 1;
    const model = event.model_key || log.model;
    if (attempt === 1) log.stepSeq = seq;
    // The name of the model is shown where it changes.
    const text = [attempt > 1 && `attempt ${attempt}`, model !== log.shownModel && model].filter(Boolean).join(" · ");
    log.shownModel = model;
    log.begin("model", { kind: "model", name: event.summarizes_until ? "summary" : `step ${event.step}`, text, model, attempt, seq, start });
  },
  model_replied(log, event, seq, at) {
    const { stop, parts } = event.reply;
    const usage = usageOf(event.reply.usage);
    const status = event.output_error ? "error" : "ok";
    log.finish("model", at, { status, usage, usd: event.usd, stop, endSeq: seq, latency: event.latency, did: readParts(parts) });
    log.live = null;
    if (event.summarizes_until) log.notice(seq, at, "Summary received");
    else addReply(log, event, seq, at);
  },
  model_failed(log, event, seq, at) {
    const text = `${event.failure.kind}: ${event.failure.message ?? ""}`;
    log.finish("model", at, { status: "error", usage: event.usage && usageOf(event.usage), usd: event.usd, endSeq: seq, latency: event.latency, problem: text });
    log.failedAt = at;
    log.live = null;
    log.notice(seq, at, "Model call failed", event.partial_text ? `${text}\n\nReceived before: ${event.partial_text}` : text, "error");
  },
  model_switched(log, event, seq, at) {
    log.model = nameModel(event.model) || log.model;
    log.note(seq, at, "model switched", `${log.model}: ${event.why}`, "warn");
    log.notice(seq, at, "Model switched", `${log.model}: ${event.why}`, "warn");
  },
  tool_started(log, event, seq, at) {
    log.begin(callKey(event.call_id, event.attempt), { kind: "tool", name: event.name, text: event.arguments ?? "", seq, start: at, attempt: event.attempt ?? 1, call: event.call_id });
    const call = log.calls.get(event.call_id);
    if (!call) return;
    Object.assign(call, { startedAt: at, rule: event.rule });
    log.changed.add(call.entry);
  },
  tool_finished(log, event, seq, at) {
    const id = event.result.call_id;
    const outcome = event.result.outcome ?? "ok";
    const status = outcome === "ok" ? "ok" : "error";
    const key = [...log.open.keys()].find((each) => each.startsWith(`tool:${id}:`));
    const more = { status, outcome, endSeq: seq };
    if (key) log.finish(key, at, more);
    else Object.assign(log.note(seq, at, event.name || log.calls.get(id)?.name || id, event.arguments ?? "", status, "tool"), more, { call: id });
    addResult(log, event.result, seq, at, event);
  },
  tool_interrupted(log, event, seq, at) {
    log.finish(callKey(event.call_id, event.attempt), at, { status: "error", outcome: "interrupted", endSeq: seq });
    log.notice(seq, at, "Tool interrupted", event.why, "error");
  },
  approval_asked(log, event, seq, at) {
    log.begin(`ask:${event.binding}`, { kind: "approval", name: event.name || log.calls.get(event.call_id)?.name || event.call_id, text: event.rule, seq, start: at, call: event.call_id, question: event.question });
    const call = log.calls.get(event.call_id);
    if (!call) return;
    call.waits = true;
    log.changed.add(call.entry);
  },
  approval_answered(log, event, seq, at) {
    const status = event.answer === "reject" ? "error" : "ok";
    log.finish(`ask:${event.binding}`, at, { status, outcome: event.answer, by: event.by, endSeq: seq });
    const call = log.calls.get(event.call_id);
    /** @type {Record<string, string>} */
    const answers = { approve: event.arguments ? "approved with other arguments" : "approved", reject: "rejected", done: "settled" };
    const words = answers[event.answer];
    if (!call) {
      log.notice(seq, at, `Call ${words}`, event.reason ?? "", status);
      return;
    }
    Object.assign(call, { waits: false, answer: words, answeredBy: event.by, answerReason: event.reason, edited: event.arguments });
    log.changed.add(call.entry);
  },
  reprompted(log, event, seq, at) {
    log.note(seq, at, "reprompted", event.why);
    log.entry("harness", seq, at, { title: event.why, text: event.message });
  },
  steered(log, event, seq, at) {
    log.note(seq, at, "steered", event.message, "note");
    log.entry("user", seq, at, { parts: [{ type: "text", text: event.message }], title: "steering", caller: event.by });
  },
  steering_taken() {},
  compacted(log, event, seq, at) {
    const sizes = `${(event.before_tokens ?? 0).toLocaleString("en-US")} → ${(event.after_tokens ?? 0).toLocaleString("en-US")} tokens`;
    log.note(seq, at, "compacted", sizes, "warn");
    log.notice(seq, at, "Compacted", `${event.why} (${sizes})${event.summary ? `\n\n${event.summary}` : ""}`);
  },
  prefix_moved(log, event, seq, at) {
    log.note(seq, at, "prefix moved", summarize(event), "warn");
  },
  cache_degraded(log, event, seq, at) {
    log.note(seq, at, "cache degraded", summarize(event), "warn");
  },
  subrun_started(log, event, seq, at) {
    const span = [...log.open.values()].findLast((each) => each.kind === "tool");
    Object.assign(log.note(seq, at, "sub-run", event.session), { child: event.session, parent: span?.seq });
  },
  run_ended(log, event, seq, at) {
    log.isRunning = false;
    for (const [key, span] of log.open) {
      if (span.kind === "approval" && event.stop === "waiting") continue;
      log.finish(key, at, { status: span.kind === "approval" ? "note" : "lost", endSeq: seq });
    }
    log.live = null;
    const status = event.stop === "done" ? "ok" : ["waiting", "paused"].includes(event.stop) ? "warn" : "error";
    log.note(seq, at, event.stop.replace("_", " "), event.reason ?? "", status, "end");
    log.entry("end", seq, at, { stop: event.stop, text: event.reason ?? "", partial: event.partial_text, status, by: event.by });
  },
};

/**
 * What parts say and call, for a line.
 * @param {Part[] | undefined} parts
 */
function readParts(parts = []) {
  const calls = new Map();
  for (const part of parts) if (part.type === "tool_call") calls.set(part.name, (calls.get(part.name) ?? 0) + 1);
  const called = [...calls].map(([name, number]) => `→ ${name}${number > 1 ? ` × ${number}` : ""}`);
  const said = parts.map((part) => (part.type === "text" ? part.text : part.type === "media" ? `[${part.kind}]` : ""));
  return [...called, ...said].filter(Boolean).join(" · ").slice(0, 300);
}

/** @type {Record<string, (event: LogEvent) => string>} */
const LINES = {
  configured: (event) => [event.settings.name, nameModel(event.settings.model)].filter(Boolean).join(" · "),
  prompted: (event) => readParts(event.parts),
  model_asked: (event) => [event.summarizes_until ? "summary" : `step ${event.step}`, event.attempt > 1 && `attempt ${event.attempt} after ${event.after_failure}`, event.model_key].filter(Boolean).join(" · "),
  model_replied: (event) => readParts(event.reply.parts),
  model_failed: (event) => `${event.failure.kind}: ${event.failure.message ?? ""}`,
  tool_started: (event) => `${event.name} ${event.arguments ?? ""}`,
  tool_finished: (event) => [event.name, event.result.outcome ?? "ok", readParts(event.result.parts)].filter(Boolean).join(" · "),
};

/**
 * An event in a line: what it says, or its short fields.
 * @param {LogEvent} event
 */
export function summarize(event) {
  if (LINES[event.type]) return LINES[event.type](event);
  const words = [];
  for (const [name, value] of Object.entries(event)) {
    if (name === "type" || value === "" || value === null || value === 0) continue;
    if (typeof value === "object") {
      if (Array.isArray(value) ? value.length : Object.keys(value).length) words.push(`${name} ${Array.isArray(value) ? `(${value.length})` : "{…}"}`);
    } else words.push(`${name} ${String(value).slice(0, 200)}`);
    if (words.join(" · ").length > 240) break;
  }
  return words.join(" · ");
}

/** A time axis without the pauses in which neither a model nor a tool worked. */
export class Axis {
  /**
   * @param {Span[]} spans
   * @param {number} now
   */
  constructor(spans, now) {
    const busy = spans
      .filter((span) => span.kind === "model" || span.kind === "tool" || span.kind === "wait")
      .map((span) => [span.start, span.end ?? now])
      .sort((a, b) => a[0] - b[0]);
    const edges = spans.flatMap((span) => [span.start, span.end ?? now]);
    /** @type {number[][]} */
    const merged = [];
    for (const [start, end] of busy) {
      const last = merged.at(-1);
      if (last && start <= last[1]) last[1] = Math.max(last[1], end);
      else merged.push([start, end]);
    }
    const active = merged.reduce((sum, [start, end]) => sum + end - start, 0) || 0.001;
    const gapMax = Math.max(active * Math.min(0.06, 0.5 / merged.length), 0.0005);
    const points = [...new Set([...edges, ...merged.flat()])].sort((a, b) => a - b);
    /** @type {number[]} */
    this.times = [];
    /** @type {number[]} */
    this.places = [];
    /** @type {{ place: number, width: number, seconds: number }[]} */
    this.cuts = [];
    let place = 0;
    let at = 0;
    for (let index = 0; index < points.length; index++) {
      if (index > 0) {
        const passed = points[index] - points[index - 1];
        while (at < merged.length && merged[at][1] <= points[index - 1]) at += 1;
        const isBusy = at < merged.length && merged[at][0] <= points[index - 1];
        if (!isBusy && passed > gapMax) this.cuts.push({ place, width: gapMax, seconds: passed });
        place += isBusy ? passed : Math.min(passed, gapMax);
      }
      this.times.push(points[index]);
      this.places.push(place);
    }
    this.total = place || 1;
    this.active = active;
  }

  /**
   * Share of the width, 0 to 1.
   * @param {number} time
   */
  place(time) {
    let low = 0;
    let high = this.times.length - 1;
    if (high < 0 || time <= this.times[0]) return 0;
    if (time >= this.times[high]) return 1;
    while (high - low > 1) {
      const middle = (low + high) >> 1;
      if (this.times[middle] <= time) low = middle;
      else high = middle;
    }
    const span = this.times[high] - this.times[low] || 1;
    const share = (time - this.times[low]) / span;
    return (this.places[low] + share * (this.places[high] - this.places[low])) / this.total;
  }
}
