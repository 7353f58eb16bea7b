// The conversation: prompts, reasoning, answers, calls with their results.

import { h, replace, button, icon, clock, longText, prettyJson, visibleJson, seconds, shorten, dollars, tokens, plain, promptOf, usageBar, describeUsage } from "./dom.js";
import { joinMembers, readMembers } from "./json.js";
import { diffLines, readUnified, showLines } from "./diff.js";
import { VirtualList } from "./list.js";
import { showMedia } from "./media.js";

/** @implements {Tab} */
export class TranscriptTab {
  /** @type {VirtualList<Entry>} */
  list;
  /** @type {HTMLInputElement} */
  search;
  /** @type {boolean | undefined} */
  foldsOpen;

  /**
   * @param {import("./session.js").SessionView} view
   * @param {HTMLElement} node
   */
  constructor(view, node) {
    this.view = view;
    this.node = node;
    this.app = view.app;
    this.filter = "";
    /** @type {Entry} */
    this.liveEntry = { kind: "live" };
  }

  open() {
    this.list = new VirtualList(this.app.main, { render: (entry) => this.renderEntry(entry), estimate: 120, onOpen: (_, node) => toggleFolds(node), label: "Transcript" });
    const find = () => {
      this.filter = this.search.value.toLowerCase();
      this.update(this.view.log);
    };
    this.search = h("input", { type: "search", placeholder: "Find in the transcript   /", "aria-label": "Find", oninput: find });
    replace(this.node, h(".toolbar", {}, this.search, button("Open folds", () => this.setFolds(true)), button("Close folds", () => this.setFolds(false)), h(".grow"), button("End", () => this.list.scrollToEnd(), { title: "Go to the end (G)" })), h(".transcript", {}, this.list.node));
    this.update(this.view.log);
  }

  dispose() {
    this.list.dispose();
  }

  /** @param {boolean} isOpen */
  setFolds(isOpen) {
    this.foldsOpen = isOpen;
    for (const each of this.node.querySelectorAll("details")) each.open = isOpen;
  }

  /** @param {import("./log.js").SessionLog} log */
  update(log) {
    const isAtEnd = this.list.isAtEnd && log.isRunning && this.view.isLoaded;
    let items = this.filter ? log.entries.filter((entry) => this.matches(entry)) : log.entries;
    items = log.live && !this.filter ? [...items, this.liveEntry] : [...items];
    this.list.setItems(items);
    for (const entry of log.changed) this.list.update(entry);
    if (log.live) this.list.update(this.liveEntry);
    if (isAtEnd) this.list.scrollToEnd();
  }

  /** @param {Entry} entry */
  matches(entry) {
    const calls = (entry.parts ?? []).map((/** @type {Part} */ part) => this.view.log.calls.get(part.id)?.result);
    return JSON.stringify([entry.parts, entry.text, entry.title, entry.instructions, calls]).toLowerCase().includes(this.filter);
  }

  /** @param {Entry} entry */
  renderEntry(entry) {
    const node = h("article.entry", { role: "listitem", data: { kind: entry.kind, seq: entry.seq ?? "" } }, RENDER[entry.kind](entry, this));
    if (this.foldsOpen !== undefined) for (const each of node.querySelectorAll("details")) each.open = this.foldsOpen;
    return node;
  }

  /**
   * Head of an entry, with what can be done at this point of the log.
   * @param {string} who
   * @param {Entry} entry
   * @param {Child[]} more
   */
  head(who, entry, ...more) {
    const { seq = 0, at = 0 } = entry;
    const events = `#/session/${encodeURIComponent(this.view.session)}/events?seq=${seq}`;
    return h("header", {}, h("span.who", {}, who), ...more, h(".grow"), h("a.at.muted", { href: events, title: `Record ${seq}` }, clock(at)),
      entry.before !== undefined && this.view.isServed && button(icon("again"), () => this.app.attempt(() => this.view.runAgain(entry)), { class: "ghost small again", title: "Run again from here (r)", "aria-label": "Run again from here" }),
      button(icon("fork"), () => this.app.attempt(() => this.view.fork(seq)), { class: "ghost small fork", title: "Fork here (f)", "aria-label": "Fork here" }));
  }

  /** @param {URLSearchParams} params */
  setParams(params) {
    const at = this.view.log.entries.findIndex((entry) => entry.seq === Number(params.get("seq")));
    if (at >= 0) requestAnimationFrame(() => this.list.select(at));
  }

  /** @param {string} key */
  handleKey(key) {
    const marked = key === "r" ? ".again" : key === "f" ? ".fork" : "";
    if (!marked) return this.list.handleKey(key);
    /** @type {HTMLElement | null | undefined} */
    const node = this.list.nodes.get(this.list.selected)?.querySelector(marked);
    node?.click();
    return true;
  }

  leave() {
    if (!this.filter) return false;
    this.filter = "";
    this.search.value = "";
    this.update(this.view.log);
    return true;
  }
}

/** @param {HTMLElement | undefined} node */
function toggleFolds(node) {
  const folds = [...(node?.querySelectorAll("details") ?? [])];
  const isOpen = folds.some((each) => !each.open);
  for (const each of folds) each.open = isOpen;
}

/** @param {string} text */
export const showText = (text) => longText(text, ".prose");

/**
 * A fold whose content is made when it is opened.
 * @param {Child} summary
 * @param {() => Child} content
 * @param {Props} props
 */
export function fold(summary, content, { open = false, ...props } = {}) {
  const node = h("details", { ...props, open }, h("summary", {}, summary));
  const fill = () => {
    if (node.open && node.childElementCount === 1) node.append(h(".fold", {}, content()));
  };
  node.addEventListener("toggle", fill);
  if (open) fill();
  return node;
}

/**
 * A part of a message; `calls` has the results of its calls.
 * @param {Part} part
 * @param {Map<string, ToolUse>} [calls]
 * @returns {HTMLElement | null}
 */
export function showPart(part, calls) {
  if (part.type === "text") return part.text ? showText(part.text) : null;
  if (part.type === "media") return showMedia(part);
  if (part.type === "tool_call") return showCall(calls?.get(part.id) ?? /** @type {any} */ (part));
  if (part.type === "tool_result") return h(".result", {}, h("span.muted", {}, `result of ${part.call_id}`), (part.parts ?? []).map(showResultPart));
  if (part.type === "reasoning") {
    if (!part.text) return h("p.muted.reasoning-note", {}, part.redacted ? "Reasoning, redacted by the provider" : "Reasoning, sealed by the provider");
    return fold([h("span.label", {}, "Reasoning"), h("span.muted.peek", {}, shorten(part.text.replace(/\s+/g, " "), 110))], () => showText(part.text), { class: "reasoning" });
  }
  return fold([h("span.label", {}, part.kind ?? part.type), h("span.muted.peek", {}, shorten(part.text ?? "", 110))], () => longText(part.text || prettyJson(part.native ?? ""), "pre.code"));
}

/** @param {Part} part */
function showResultPart(part) {
  if (part.type !== "text") return showPart(part);
  const lines = readUnified(part.text);
  return lines ? showLines(lines, { isWhole: true }) : longText(part.text, "pre.code");
}

const PAIRS = [["old_text", "new_text"], ["old_string", "new_string"], ["old_str", "new_str"], ["old", "new"], ["before", "after"], ["search", "replace"]];

/**
 * Arguments of a call; those of an edit as a difference.
 * @param {string} text
 */
export function showArguments(text) {
  const given = readMembers(text);
  if (!given) return longText(text || "{}", "pre.code");
  const pair = findPair(given);
  /** @type {HTMLElement[]} */
  const shown = [];
  let rest = given;
  if (pair) {
    shown.push(showLines(diffLines(pair[0].value ?? "", pair[1].value ?? "")));
    rest = rest.filter((each) => !pair.includes(each));
  }
  for (const each of rest) {
    const lines = ["patch", "diff"].includes(each.name) && each.value !== undefined && readUnified(each.value);
    if (lines) {
      shown.push(showLines(lines, { isWhole: true }));
      rest = rest.filter((other) => other !== each);
    }
  }
  for (const each of rest.filter(({ value }) => value?.includes("\n"))) {
    shown.push(h("p.muted.argument", {}, each.name), longText(each.value ?? "", "pre.code"));
    rest = rest.filter((other) => other !== each);
  }
  if (rest.length || !shown.length) shown.unshift(longText(visibleJson(joinMembers(rest)), "pre.code"));
  return h(".arguments", {}, shown);
}

/**
 * The old and the new text of an edit; null if the arguments have none, or one of the names twice.
 * @param {JsonMember[]} given
 * @returns {[JsonMember, JsonMember] | null}
 */
function findPair(given) {
  const find = (/** @type {string} */ name) => {
    const found = given.filter((each) => each.name === name);
    return found.length === 1 && found[0].value !== undefined ? found[0] : null;
  };
  for (const [old, changed] of PAIRS) {
    const [before, after] = [find(old), find(changed)];
    if (before && after) return [before, after];
  }
  return null;
}

/** @param {string} text */
const inline = (text) => {
  const given = readMembers(text);
  const words = given ? given.map(({ name, raw, value }) => `${name}=${value ?? raw}`).join(", ") : text;
  return shorten((words ?? "").replace(/\s+/g, " "), 120);
};

/** @param {ToolUse} call */
function showCall(call) {
  const outcome = call.result?.outcome ?? (call.waits ? "waits for approval" : call.startedAt ? "running" : call.progress ? "running" : "");
  const state = outcome === "ok" ? "ok" : outcome === "waits for approval" ? "warn" : call.result ? "error" : "open";
  const isEdit = findPair(readMembers(call.arguments) ?? []) !== null;
  const summary = [
    h("i.dot"), h("span.name", {}, shorten(call.name, 80)), h("span.peek.muted", {}, inline(call.arguments)),
    call.answer && h("span.tag", {}, `${call.answer}${call.answeredBy ? ` by ${call.answeredBy}` : ""}`),
    h("span.outcome", {}, outcome === "ok" ? "" : outcome), h("span.num.muted", {}, call.seconds != null ? seconds(call.seconds) : ""),
  ];
  return fold(summary, () => showCallContent(call), { class: "call", open: isEdit || state === "error", "data-status": state });
}

/**
 * Arguments, answer and result of a call.
 * @param {ToolUse} call
 * @returns {Child}
 */
export const showCallContent = (call) => [
  h("h4", {}, "Arguments"), showArguments(call.arguments),
  call.edited && [h("h4", {}, "Arguments as approved"), showArguments(call.edited)],
  call.answerReason && h("p", {}, h("span.muted", {}, "Reason: "), call.answerReason),
  call.rule && h("p.muted", {}, `Rule: ${call.rule}`),
  call.progress && !call.result && h("p.muted", {}, call.progress),
  call.result && [h("h4", {}, "Result"), call.result.parts.length ? call.result.parts.map(showResultPart) : h("p.muted", {}, "empty")],
];

/** @param {string} status */
const stateOf = (status) => ({ data: { status } });

/** @type {Record<string, (entry: Entry, tab: TranscriptTab) => Child>} */
const RENDER = {
  settings: (entry, tab) => [
    tab.head("Settings", entry, h("span.muted", {}, [entry.agent, entry.model].filter(Boolean).join(" · "))),
    entry.instructions && fold([h("span.label", {}, "Instructions"), h("span.muted.peek", {}, shorten(entry.instructions.replace(/\s+/g, " "), 110))], () => showText(entry.instructions)),
    entry.tools.length > 0 && fold([h("span.label", {}, `${entry.tools.length} tool${entry.tools.length === 1 ? "" : "s"}`), h("span.muted.peek", {}, shorten(entry.tools.map((/** @type {{ name: string }} */ each) => each.name).join(", "), 110))],
      () => entry.tools.map((/** @type {{ name: string, effect?: string, description?: string }} */ each) => h(".tool-spec", {}, h("strong", {}, each.name), h("span.muted", {}, ` ${each.effect ?? ""}`), h("p", {}, each.description ?? "")))),
  ],
  user: (entry, tab) => [
    tab.head(entry.title === "steering" ? "Steering" : "User", entry, entry.caller && h("span.muted", {}, entry.caller)),
    entry.parts.map((/** @type {Part} */ part) => showPart(part)),
  ],
  assistant: (entry, tab) => [
    tab.head("Assistant", entry, h("span.muted.model", {}, entry.model)),
    entry.parts.map((/** @type {Part} */ part) => showPart(part, tab.view.log.calls)),
    entry.usage && h("footer.muted", {}, usageBar(entry.usage), h("span", { title: describeUsage(entry.usage) }, `${tokens(promptOf(entry.usage))} in, ${tokens(entry.usage.output)} out`), h("span", {}, dollars(entry.usd)),
      entry.latency && h("span", {}, seconds(entry.latency.total_seconds ?? 0)), !["done", "tools"].includes(entry.stop) && h("span.outcome", {}, `stopped: ${entry.stop} ${plain(entry.stopDetail)}`)),
  ],
  results: (entry, tab) => [tab.head("Tool", entry), entry.parts.map((/** @type {Part} */ part) => showPart(part))],
  harness: (entry, tab) => [tab.head("Harness", entry, h("span.muted", {}, entry.title)), showText(entry.text)],
  notice: (entry, tab) => h(".notice", stateOf(entry.status), tab.head(entry.title, entry), entry.text && longText(entry.text, ".prose.small")),
  end: (entry, tab) => h(".notice.end", stateOf(entry.status), tab.head(`Run ended: ${entry.stop.replace("_", " ")}`, entry, entry.by && h("span.muted", {}, `by ${entry.by}`)), entry.text && longText(entry.text, ".prose.small"), entry.partial && [h("p.muted", {}, "Received before the end:"), showText(entry.partial)]),
  live: (_, tab) => {
    const { live } = tab.view.log;
    if (!live) return null;
    return [h("header", {}, h("span.who", {}, "Assistant"), h("span.pulse"), h("span.muted", {}, "writing")),
      live.reasoning && h(".reasoning-live.muted", {}, shorten(live.reasoning.slice(-600), 600)),
      live.text && longText(live.text.slice(-20_000), ".prose"),
      [...live.calls.values()].map((call) => h(".live-call", {}, h("span.name", {}, call.name), " ", h("span.muted", {}, shorten(call.arguments, 200))))];
  },
};
