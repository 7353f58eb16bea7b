// Reports of a session: its cache and its cost.

import { get } from "./api.js";
import { h, replace, svg, count, tokens, dollars, clock, shorten, promptOf, usageOf, usageBar, describeUsage, legend } from "./dom.js";
import { VirtualList, table } from "./list.js";

const MISSES = ["prefix", "ttl", "lookback", "provider"];
const COLUMNS_MAX = 240;
const COLUMN_PIXELS = 46;
/** @type {Record<string, string>} */
const OUTCOMES = { cold: "first call", hit: "hit", prefix: "prefix changed", ttl: "expired", lookback: "beyond lookback", minimum: "too short to cache", provider: "not explained", unreported: "not reported" };

/**
 * A report that is read again when the session has further replies.
 * @template Data
 * @template Call
 * @implements {Tab}
 */
class Report {
  /** @type {VirtualList<Call> | undefined} */
  list;
  /** @type {number | undefined} */
  known;
  isLoading = false;

  /**
   * @param {import("./session.js").SessionView} view
   * @param {HTMLElement} node
   * @param {string} name
   */
  constructor(view, node, name) {
    this.view = view;
    this.node = node;
    this.app = view.app;
    this.name = name;
  }

  /**
   * Show the report.
   * @param {Data} report
   */
  draw(report) {
    throw new Error(`${this.name} does not show ${report}`);
  }

  async open() {
    replace(this.node, h(".list-status.muted", {}, "Reading …"));
    await this.load();
  }

  countReplies() {
    return this.view.log.spans.filter((span) => span.kind === "model" && span.end !== null).length;
  }

  async load() {
    this.known = this.countReplies();
    const report = await get(this.view.path(this.name), {}, this.view.signal);
    this.list?.dispose();
    this.draw(report);
  }

  update() {
    if (this.known === undefined || this.isLoading || this.countReplies() === this.known) return;
    this.isLoading = true;
    this.app.attempt(() => this.load()).finally(() => {
      this.isLoading = false;
    });
  }

  dispose() {
    this.list?.dispose();
  }

  /** @param {string} key */
  handleKey(key) {
    return this.list?.handleKey(key) ?? false;
  }
}

/** @type {(label: string, value: string) => HTMLElement} */
const figure = (label, value) => h(".figure", {}, h("span.value", {}, value), h("span.label", {}, label));

/** @extends {Report<CacheReport, CacheCall>} */
export class CacheTab extends Report {
  most = 1;

  /**
   * @param {import("./session.js").SessionView} view
   * @param {HTMLElement} node
   */
  constructor(view, node) {
    super(view, node, "cache");
  }

  /** @param {CacheReport} report */
  draw({ sum, hit_rate: rate, calls }) {
    this.most = Math.max(1, ...calls.map((call) => Math.max(call.prompt_tokens, call.expected_tokens, call.read_tokens)));
    this.list = new VirtualList(this.app.main, { render: (call) => this.renderRow(call), estimate: 34, label: "Calls" });
    const causes = Object.entries(sum.outcomes).map(([name, number]) => h("span.cause", { class: MISSES.includes(name) ? "miss" : "" }, h("strong", {}, count(number)), ` ${OUTCOMES[name] ?? name}`));
    replace(this.node,
      h(".figures.report", {}, figure("of expected tokens read", rate === null ? "–" : `${(100 * rate).toFixed(1)}%`), figure("expected", tokens(sum.expected_tokens)), figure("read", tokens(sum.read_tokens)), figure("missed", tokens(sum.missed_tokens)), figure("extra cost of misses", dollars(sum.usd))),
      h(".causes", {}, causes), calls.length > 0 && this.chart(calls),
      h(".legend.muted", {}, legend([["prompt", "prompt"], ["expected", "expected from the cache"], ["cached", "read"], ["missed", "missed"]])),
      h(".krow.thead", {}, ["#", "Time", "Expected and read", "Expected", "Read", "Outcome"].map((name, at) => h("span", { class: [0, 3, 4].includes(at) ? "num" : "" }, name))), this.list.node);
    this.list.setItems(calls);
  }

  /**
   * Expected tokens of every call as outlines, read ones as bars.
   * @param {CacheCall[]} calls
   */
  chart(calls) {
    const shown = calls.slice(-COLUMNS_MAX);
    const width = 100 / shown.length;
    const columns = shown.map((call, at) => {
      const isMiss = MISSES.includes(call.outcome);
      const bar = (/** @type {number} */ value, /** @type {string} */ name) => {
        const height = (100 * value) / this.most;
        return svg("rect", { x: at * width + width * 0.12, y: 100 - height, width: width * 0.76, height, class: name });
      };
      const title = `call ${call.index}: ${count(call.read_tokens)} of ${count(call.expected_tokens)} expected tokens read; ${OUTCOMES[call.outcome] ?? call.outcome}`;
      const column = svg("g", {}, svg("title", {}, title), svg("rect", { x: at * width, y: 0, width, height: 100, class: "place" }), bar(call.prompt_tokens, "prompt"), bar(call.expected_tokens, isMiss ? "expected miss" : "expected"), bar(call.read_tokens, "read"));
      column.addEventListener("click", () => this.list?.select(calls.indexOf(call)));
      return column;
    });
    return h(".chart", { style: { maxWidth: `${shown.length * COLUMN_PIXELS + 60}px` } }, h("span.muted.scale", {}, `${tokens(this.most)} tokens`), svg("svg", { viewBox: "0 0 100 100", preserveAspectRatio: "none", role: "img", "aria-label": "Expected and read tokens by call" }, columns),
      calls.length > shown.length && h("span.muted", {}, `last ${shown.length} of ${calls.length} calls`));
  }

  /** @param {CacheCall} call */
  renderRow(call) {
    const share = (/** @type {number} */ value) => ({ width: `${(100 * value) / this.most}%` });
    const isMiss = MISSES.includes(call.outcome);
    return h(".krow", { role: "listitem", data: { status: isMiss ? "error" : "ok" } },
      h("span.num", {}, `${call.index}`), h("span.muted", {}, clock(call.at)),
      h(".cache-track", {}, h("i.prompt", { style: share(call.prompt_tokens) }), h("i.expected", { class: isMiss ? "miss" : "", style: share(call.expected_tokens) }), h("i.cached", { style: share(call.read_tokens) })),
      h("span.num", {}, tokens(call.expected_tokens)), h("span.num", {}, tokens(call.read_tokens)),
      h("span.cause", { class: isMiss ? "miss" : "" }, OUTCOMES[call.outcome] ?? call.outcome, call.missed_tokens > 0 && h("span.muted", {}, ` −${tokens(call.missed_tokens)} tokens, ${dollars(call.usd)}`), call.why && h("span.why.muted", {}, call.why)));
  }
}

/** @extends {Report<CostReport, CostCall>} */
export class CostTab extends Report {
  /**
   * @param {import("./session.js").SessionView} view
   * @param {HTMLElement} node
   */
  constructor(view, node) {
    super(view, node, "cost");
  }

  /** @param {CostReport} report */
  draw({ usage: counts, usd, by_model: models, by_tool: tools, calls }) {
    const usage = usageOf(counts);
    this.list = new VirtualList(this.app.main, { render: (call) => this.renderRow(call), estimate: 32, label: "Calls" });
    replace(this.node,
      h(".figures.report", {}, figure("cost", dollars(usd)), figure("uncached", tokens(usage.input)), figure("cache read", tokens(usage.cache_read)), figure("cache write", tokens(usage.cache_write)), figure("output", tokens(usage.output)), figure("reasoning", tokens(usage.reasoning))),
      h(".columns", {}, this.group("By model", models, "Calls"), this.group("By tool (estimated share)", tools, "Uses")),
      h("h3.section", {}, "Calls"), h(".lrow.thead", {}, ["Step", "Model", "Tokens", "In", "Out", "Cost"].map((name, at) => h("span", { class: at === 0 || at > 2 ? "num" : "" }, name))), this.list.node);
    this.list.setItems(calls);
  }

  /**
   * @param {string} title
   * @param {CostRow[]} rows
   * @param {string} unit
   */
  group(title, rows, unit) {
    const isPriced = rows.some((row) => Number(row.usd) > 0);
    const weight = (/** @type {CostRow} */ row) => (isPriced ? Number(row.usd ?? 0) : row.tokens);
    const most = Math.max(...rows.map(weight), 1e-12);
    rows.sort((a, b) => weight(b) - weight(a));
    return h("section.group", {}, h("h3", {}, title), rows.length ? table([{ name: "Name" }, { name: "", class: "bars" }, { name: unit, class: "num" }, { name: "Tokens", class: "num" }, { name: "Cost", class: "num" }],
      rows.map((row) => ({ cells: [h("span.name", {}, shorten(row.name || "–", 60)), h(".share", {}, h("i", { style: { width: `${(100 * weight(row)) / most}%` } })), count(row.calls), tokens(row.tokens), dollars(row.usd)] }))) : h("p.muted", {}, "None."));
  }

  /** @param {CostCall} call */
  renderRow(call) {
    const usage = usageOf(call.usage);
    const outcome = call.outcome ?? "answered";
    return h(".lrow", { role: "listitem", data: { status: outcome === "answered" ? "ok" : "error" } },
      h("span.num", { title: `run ${call.run}, step ${call.step}, attempt ${call.attempt}` }, `${call.run}.${call.step}${call.attempt > 1 ? `.${call.attempt}` : ""}`), h("span.name", {}, shorten(call.model, 60), call.summary && h("span.tag", {}, "summary"), outcome !== "answered" && h("span.outcome", {}, ` ${outcome}`)),
      h("span", { title: describeUsage(usage) }, usageBar(usage)), h("span.num", {}, tokens(promptOf(usage))), h("span.num", {}, tokens(usage.output)), h("span.num", {}, dollars(call.usd)));
  }
}
