// The waterfall: model calls, tools, waits and approvals on one axis of time.

import { h, replace, button, tokens, dollars, seconds, clock, shorten, totalOf, legend, usageBar, describeUsage } from "./dom.js";
import { eventBlock } from "./events.js";
import { VirtualList } from "./list.js";
import { Axis } from "./log.js";
import { fold, showCallContent, showPart } from "./transcript.js";

/** @type {Record<string, string>} */
const KINDS = { model: "Model call", tool: "Tool", approval: "Approval", wait: "Wait", run: "Prompt", end: "End of the run", note: "Event" };
const ALL_ROWS_MAX = 300;
const TICKS_MAX = 5;

/** @implements {Tab} */
export class TimelineTab {
  /** @type {VirtualList<Span>} */
  list;
  /** @type {HTMLElement} */
  ruler;
  /** @type {Span[]} */
  spans = [];
  /** @type {Axis | null} */
  axis = null;
  /** @type {number | undefined} */
  timer;
  showsNotes = true;

  /**
   * @param {import("./session.js").SessionView} view
   * @param {HTMLElement} node
   */
  constructor(view, node) {
    this.view = view;
    this.node = node;
    this.app = view.app;
  }

  open() {
    this.list = new VirtualList(this.app.main, { render: (span) => this.renderRow(span), estimate: 30, onOpen: (span) => this.openSpan(span), label: "Timeline" });
    this.list.onRange = () => this.drawAxis();
    this.ruler = h(".ruler");
    const notes = h("input", { type: "checkbox", checked: true });
    notes.addEventListener("change", () => {
      this.showsNotes = notes.checked;
      this.update(this.view.log);
    });
    const key = h(".legend.muted", {},
      legend([["waiting", "until the first token"], ["model", "model"], ["tool", "tool"]]), h("span.of-tokens", {}, legend([["cached", "cache read"], ["written", "cache write"], ["fresh", "uncached"], ["out", "output"]])),
      h("label.check", {}, notes, "events"));
    replace(this.node, key, h(".trow.thead", {}, h("span", {}, "What"), this.ruler, h("span.num", {}, "Duration"), h("span.num.tokens", {}, "Tokens"), h("span.num.cost", {}, "Cost")), this.list.node);
    this.update(this.view.log);
    this.timer = setInterval(() => this.view.log.open.size && this.update(this.view.log), 500);
  }

  dispose() {
    clearInterval(this.timer);
    this.list.dispose();
  }

  /** @param {import("./log.js").SessionLog} log */
  update(log) {
    const isNearEnd = this.list.isAtEnd && log.isRunning && this.view.isLoaded;
    this.spans = log.spans.filter((span) => this.showsNotes || span.kind !== "note");
    this.list.setItems(this.spans);
    this.drawAxis(true);
    if (isNearEnd) this.list.scrollToEnd();
  }

  /** All rows share an axis; in a long session the rows in view do. */
  drawAxis(isNew = false) {
    const isLong = this.spans.length > ALL_ROWS_MAX;
    const shown = isLong ? this.spans.slice(this.list.first, this.list.end) : this.spans;
    if (!isNew && !isLong) return;
    const axis = new Axis(shown, Date.now() / 1000);
    this.axis = axis;
    for (const [at, node] of this.list.nodes) this.placeBar(this.spans[at], node);
    this.drawRuler(axis, shown.length ? `Began ${clock(shown[0].start, true)}; ${seconds(axis.active)} of work${isLong ? " in view" : ""}` : "");
  }

  /**
   * Marks of passed time, and of pauses that are drawn shorter.
   * @param {Axis} axis
   * @param {string} title
   */
  drawRuler({ total, cuts }, title) {
    const share = (/** @type {number} */ value) => `${((100 * value) / total).toFixed(3)}%`;
    const step = niceStep(total / TICKS_MAX);
    const ticks = [...Array(Math.floor(total / step) + 1).keys()].map((at) => h("span.tick", { style: { left: share(at * step) } }, at ? seconds(at * step) : "0"));
    this.ruler.title = title;
    this.list.body.style.setProperty("--tick", share(step));
    replace(this.ruler, cuts.map((cut) => h("i.cut", { style: { left: share(cut.place), width: share(cut.width) }, title: `${seconds(cut.seconds)} without work, drawn shorter` })), ticks);
  }

  /**
   * @param {Span | undefined} span
   * @param {HTMLElement} node
   */
  placeBar(span, node) {
    const bar = /** @type {HTMLElement | null} */ (node.querySelector(".bar"));
    const duration = node.querySelector(".duration");
    if (!this.axis || !span || !bar || !duration) return;
    const left = this.axis.place(span.start);
    const right = this.axis.place(span.end ?? Date.now() / 1000);
    bar.style.left = `${(left * 100).toFixed(3)}%`;
    bar.style.width = `${Math.max((right - left) * 100, 0).toFixed(3)}%`;
    const label = this.durationOf(span);
    if (duration.textContent !== label) duration.textContent = label;
    node.dataset.status = span.status;
  }

  /** @param {Span} span */
  durationOf(span) {
    if (span.kind === "note" || span.kind === "run" || span.kind === "end") return "";
    return seconds((span.end ?? Date.now() / 1000) - span.start);
  }

  /** @param {Span} span */
  renderRow(span) {
    const { usage } = span;
    const text = [span.text, span.did].filter(Boolean).join(" · ");
    const outcome = span.problem || (span.kind !== "model" && span.outcome && span.outcome !== "ok" && span.outcome !== "approve" ? span.outcome : "");
    const open = () => {
      this.list.select(this.spans.indexOf(span));
      this.openSpan(span);
    };
    const node = h(".trow", { role: "listitem", data: { kind: span.kind, status: span.status }, onclick: open },
      h("span.tname", {}, h(`i.dot`), h("span.name", {}, shorten(span.kind === "approval" ? `approve ${span.name}` : span.name, 80)), h("span.detail", {}, shorten(text.replace(/\s+/g, " "), 140)), outcome && h("span.outcome", {}, shorten(outcome, 120))),
      h(".track", {}, h(".bar", {}, this.firstToken(span))),
      h("span.num.duration"),
      h("span.num.tokens", { title: usage ? describeUsage(usage) : "" }, usage && [usageBar(usage), tokens(totalOf(usage))]),
      h("span.num.cost", {}, span.kind === "model" && span.usage ? dollars(span.usd) : ""));
    this.placeBar(span, node);
    return node;
  }

  /**
   * Share of a model call until its first token.
   * @param {Span} span
   */
  firstToken({ latency, start, end }) {
    const first = latency?.first_token_seconds;
    if (!first || end === null || end <= start) return null;
    return h("i.waiting", { style: { width: `${Math.min(100, (100 * first) / (end - start)).toFixed(1)}%` } });
  }

  /** @param {Span} span */
  openSpan(span) {
    const { usage, latency } = span;
    /** @type {[string, Child][]} */
    const known = [
      ["model", span.model],
      ["began", clock(span.start, true)],
      ["duration", this.durationOf(span)],
      ["outcome", span.outcome ?? span.stop ?? (span.status === "note" ? "" : span.status)],
      ["first token", latency?.first_token_seconds != null && seconds(latency.first_token_seconds)],
      ["answered by", span.by],
      ["cost", span.usage && dollars(span.usd)],
    ];
    const facts = known.filter(([, value]) => value);
    const records = this.view.log.events.filter((record) => record.seq === span.seq || record.seq === span.endSeq);
    const reply = records.at(-1)?.event.reply;
    const call = this.view.log.calls.get(span.call ?? "");
    const place = (/** @type {string} */ tab, /** @type {number} */ seq) => `#/session/${encodeURIComponent(this.view.session)}/${tab}?seq=${seq}`;
    this.app.openPanel(`${KINDS[span.kind]}: ${span.name}`,
      h("dl.facts", {}, facts.map(([name, value]) => [h("dt", {}, name), h("dd", {}, value)])),
      usage && h(".usage", {}, usageBar(usage), h("p.muted", {}, describeUsage(usage))),
      span.problem && h("p.error", {}, span.problem),
      span.child && h("p", {}, h("a", { href: `#/session/${encodeURIComponent(span.child)}` }, `Open ${span.child}`)),
      h(".actions", {}, span.kind === "model" && h("a.button", { href: place("requests", span.seq) }, "Exact request"), ["run", "model"].includes(span.kind) && span.status !== "open" && h("a.button", { href: place("transcript", span.endSeq ?? span.seq) }, "In the transcript"),
        button("Fork here…", () => this.app.attempt(() => this.view.fork(span.endSeq ?? span.seq)))),
      reply && h(".reply", {}, reply.parts.map((/** @type {Part} */ part) => showPart(part, this.view.log.calls))),
      call && h(".reply", {}, showCallContent(call)),
      records.map((record) => fold([h("span.label.type", {}, record.event.type), h("span.muted", {}, `record ${record.seq}`)], () => eventBlock(record), { open: !reply && !call })));
  }

  /** @param {string} key */
  handleKey(key) {
    return this.list.handleKey(key);
  }
}

/**
 * The next larger of 1, 2, 5, 10 …
 * @param {number} value
 */
function niceStep(value) {
  const unit = 10 ** Math.floor(Math.log10(value));
  return ([1, 2, 5].find((each) => each * unit >= value) ?? 10) * unit;
}
