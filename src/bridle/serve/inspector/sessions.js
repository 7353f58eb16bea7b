// The list of sessions: search, filters, pages.

import { get } from "./api.js";
import { h, replace, button, tokens, dollars, ago, moment, seconds, shorten, totalOf, usageOf } from "./dom.js";
import { VirtualList } from "./list.js";

const REFRESH_MS = 4000;
const STATES = ["running", "waiting", "done", "failed", "cancelled", "paused", "budget", "steps", "seconds", "no_progress", "refused", "context", "unfinished", "new", "torn", "corrupt"];
/** @type {[string, string][]} */
const TIMES = [["", "any time"], ["3600", "last hour"], ["86400", "last day"], ["604800", "last week"], ["2592000", "last 30 days"]];
/** @type {[string, string][]} */
const COSTS = [["", "any cost"], ["0.01", "$0.01 or more"], ["0.1", "$0.10 or more"], ["1", "$1 or more"], ["10", "$10 or more"]];

/** @param {string} status */
export const badge = (status) => h("span.badge", { class: `is-${/^[a-z_]+$/.test(status) ? status : "other"}` }, status.replace("_", " "));

/** @implements {View} */
export class SessionsView {
  /** @type {VirtualList<SessionSummary>} */
  list;
  /** @type {Record<string, HTMLSelectElement>} */
  selects;
  /** @type {HTMLInputElement} */
  search;
  /** @type {HTMLButtonElement} */
  clear;
  /** @type {HTMLButtonElement} */
  more;
  /** @type {HTMLElement} */
  status;
  /** @type {number | undefined} */
  timer;
  /** @type {number | undefined} */
  typing;

  /**
   * @param {import("./app.js").App} app
   * @param {URLSearchParams} params
   */
  constructor(app, params) {
    this.app = app;
    /** @type {Record<string, string>} */
    this.filter = Object.fromEntries(["text", "status", "agent", "model", "tenant", "caller", "within", "usd_min"].map((name) => [name, params.get(name) ?? ""]));
    /** @type {SessionSummary[]} */
    this.rows = [];
    /** @type {number | null} */
    this.next = null;
    this.turn = 0;
    this.seen = { agent: new Set(), model: new Set(), tenant: new Set(), caller: new Set() };
    this.ending = new AbortController();
  }

  dispose() {
    this.ending.abort();
    clearInterval(this.timer);
    this.list.dispose();
  }

  async open() {
    this.app.setTitle("Sessions · Bridle");
    this.app.setBar(h("span.crumb", {}, "Sessions"));
    this.selects = {
      status: this.select("status", STATES.map((state) => /** @type {[string, string]} */ ([state, state.replace("_", " ")])), "any state"),
      agent: this.select("agent", [], "any agent"),
      model: this.select("model", [], "any model"),
      tenant: this.select("tenant", [], "any tenant"),
      caller: this.select("caller", [], "any caller"),
      usd_min: this.select("usd_min", COSTS.slice(1), COSTS[0][1]),
      within: this.select("within", TIMES.slice(1), TIMES[0][1]),
    };
    this.search = h("input", { type: "search", placeholder: "Search prompts and ids   /", "aria-label": "Search", value: this.filter.text, oninput: () => this.change("text", this.search.value) });
    this.clear = button("Clear", () => this.leave(), { class: "link", title: "Clear the filters (Esc)" });
    this.list = new VirtualList(this.app.main, { render: (row) => this.renderRow(row), estimate: 57, onOpen: (row) => this.app.go("session", row.session), label: "Sessions" });
    this.status = h(".list-status.muted");
    this.more = button("Load more", () => this.app.attempt(() => this.load(true)), { class: "more" });
    replace(this.app.main, h("section.sessions", {},
      h(".filters.sticky", {}, this.search, h(".selects", {}, Object.values(this.selects), this.clear)),
      h(".row.head", { "aria-hidden": "true" }, ["State", "Session", "Agent", "Model", "Steps", "Tokens", "Cost", "Updated"].map((name) => h("span", {}, name))),
      this.list.node, h(".list-end", {}, this.status, this.more)));
    await this.load();
    this.timer = setInterval(() => document.visibilityState === "visible" && this.load().catch(() => {}), REFRESH_MS);
  }

  /**
   * @param {string} name
   * @param {[string, string][]} options
   * @param {string} any
   */
  select(name, options, any) {
    const node = h("select", { "aria-label": name, onchange: () => this.change(name, node.value) }, h("option", { value: "" }, any), options.map(([value, label]) => h("option", { value }, label)));
    if (this.filter[name] && !options.some(([value]) => value === this.filter[name])) node.append(h("option", { value: this.filter[name] }, this.filter[name]));
    node.value = this.filter[name];
    return node;
  }

  /**
   * @param {string} name
   * @param {string} value
   */
  change(name, value) {
    this.filter[name] = value;
    const query = new URLSearchParams(Object.entries(this.filter).filter(([, given]) => given));
    history.replaceState(null, "", `#/${query.size ? `?${query}` : ""}`);
    clearTimeout(this.typing);
    this.typing = setTimeout(() => this.app.attempt(() => this.load()), name === "text" ? 150 : 0);
  }

  async load(more = false) {
    const { within, ...filter } = this.filter;
    const limit = more ? 100 : Math.min(500, Math.max(100, this.rows.length));
    const query = { ...filter, limit, offset: more ? this.next : 0, since: within ? Date.now() / 1000 - Number(within) : "" };
    this.turn += 1;
    const { turn } = this;
    /** @type {{ sessions: SessionSummary[], next: number | null }} */
    const page = await get("sessions", query, this.ending.signal);
    if (turn !== this.turn) return;
    const known = new Map(this.rows.map((row) => [row.session, row]));
    // A row that did not change stays the same object, so that its node stays too.
    const rows = page.sessions.map((row) => {
      const old = known.get(row.session);
      return old && JSON.stringify(old) === JSON.stringify(row) ? old : row;
    });
    this.rows = more ? [...this.rows, ...rows] : rows;
    this.next = page.next;
    for (const row of rows) this.offer(row);
    this.list.setItems(this.rows);
    this.more.hidden = this.next === null;
    const isFiltered = Object.values(this.filter).some(Boolean);
    this.clear.hidden = !isFiltered;
    const none = isFiltered ? "No session matches." : "No sessions yet. Run an agent with this log: bridle run \"Hello\"";
    replace(this.status, this.rows.length ? `${this.rows.length}${this.next === null ? "" : "+"} session${this.rows.length === 1 ? "" : "s"}` : none);
  }

  /**
   * Offer the agent, the model, the tenant and the callers of a row as filters.
   * @param {SessionSummary} row
   */
  offer(row) {
    for (const name of /** @type {const} */ (["agent", "model", "tenant"])) this.offerValue(name, row[name]);
    for (const caller of row.callers ?? []) this.offerValue("caller", caller);
  }

  /**
   * @param {"agent" | "model" | "tenant" | "caller"} name
   * @param {string | undefined} value
   */
  offerValue(name, value) {
    if (!value || this.seen[name].has(value)) return;
    this.seen[name].add(value);
    const select = this.selects[name];
    if ([...select.options].some((option) => option.value === value)) return;
    const option = h("option", {}, value);
    option.value = value;
    select.append(option);
  }

  /** @param {SessionSummary} row */
  renderRow(row) {
    const total = totalOf(usageOf(row.usage));
    const about = row.problem || row.reason;
    return h("a.row", { href: `#/session/${encodeURIComponent(row.session)}`, role: "listitem", data: { session: row.session } },
      h("span.state", {}, badge(row.status), row.pending_approvals > 0 && h("span.badge.is-waiting.count", {}, `${row.pending_approvals}`)),
      h("span.what", {}, h("span.prompt", { dir: "auto" }, shorten(row.prompt.replace(/\s+/g, " ") || "(no prompt)", 160)),
        h("span.id", {}, row.session, row.parent && h("span.tag", {}, "fork"), row.parent_session && h("span.tag", {}, "sub-run"), about && row.status !== "done" && h("span.why", {}, shorten(about, 90)))),
      h("span.agent", {}, shorten(row.agent || "–", 40)),
      h("span.model", {}, shorten(row.model || "–", 48)),
      h("span.num.steps", {}, `${row.steps}`),
      h("span.num.tokens", {}, tokens(total)),
      h("span.num.cost", {}, dollars(row.usd)),
      h("span.num.time", { title: `${moment(row.updated_at)}, ${row.records} records, ${seconds(row.updated_at - row.created_at)}` }, ago(row.updated_at)));
  }

  /** @param {string} key */
  handleKey(key) {
    return this.list.handleKey(key);
  }

  leave() {
    if (!Object.values(this.filter).some(Boolean)) return;
    for (const name of Object.keys(this.filter)) this.filter[name] = "";
    for (const select of Object.values(this.selects)) select.value = "";
    this.search.value = "";
    this.change("text", "");
  }
}
