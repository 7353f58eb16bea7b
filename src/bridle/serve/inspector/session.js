// One session: its header, its controls, its tabs, and its events as they happen.

import { follow, get, post, sessionPath } from "./api.js";
import { ask } from "./app.js";
import { h, replace, button, icon, tokens, dollars, seconds, moment, count, shorten, promptOf, usageOf } from "./dom.js";
import { SessionLog } from "./log.js";
import { badge } from "./sessions.js";
import { TimelineTab } from "./timeline.js";
import { TranscriptTab } from "./transcript.js";
import { RequestsTab } from "./requests.js";
import { CacheTab, CostTab } from "./reports.js";
import { BranchesTab } from "./branches.js";
import { ApprovalsTab } from "./approvals.js";
import { EventsTab } from "./events.js";

/** @type {[string, string, new (view: SessionView, node: HTMLElement) => Tab][]} */
export const TABS = [
  ["timeline", "Timeline", TimelineTab],
  ["transcript", "Transcript", TranscriptTab],
  ["requests", "Requests", RequestsTab],
  ["cache", "Cache", CacheTab],
  ["cost", "Cost", CostTab],
  ["branches", "Branches", BranchesTab],
  ["approvals", "Approvals", ApprovalsTab],
  ["events", "Events", EventsTab],
];
const FIRST_PAGE = 300;
const PAGE = 5000;
/** Records that the page holds; of a longer log it shows a part, the last one first. */
const PART = 20_000;

/** @implements {View} */
export class SessionView {
  /** @type {SessionDetail} */
  detail;
  /** @type {Tab | null} */
  tab = null;
  /** @type {HTMLElement} */
  about;
  /** @type {HTMLElement} */
  actions;
  /** @type {HTMLElement} */
  banner;
  /** @type {HTMLElement} */
  tabs;
  /** @type {HTMLElement} */
  part;
  /** @type {HTMLElement} */
  body;
  /** @type {HTMLButtonElement | undefined} */
  copy;
  /** @type {number | undefined} */
  refreshing;
  isServed = false;
  frame = 0;

  /**
   * @param {import("./app.js").App} app
   * @param {string} session
   * @param {string | undefined} tab
   * @param {URLSearchParams} params
   */
  constructor(app, session, tab, params) {
    this.app = app;
    this.session = session;
    this.params = params;
    this.tabName = tab && TABS.some(([name]) => name === tab) ? tab : "timeline";
    this.log = new SessionLog(session);
    this.ending = new AbortController();
    this.loading = new AbortController();
    this.start = 0;
    this.records = 0;
    this.isLoaded = false;
    this.stream = "loading";
    /** @type {Map<HTMLElement, string>} */
    this.drawn = new Map();
  }

  dispose() {
    this.ending.abort();
    this.loading.abort();
    clearTimeout(this.refreshing);
    this.tab?.dispose?.();
  }

  /** @param {(string | number)[]} parts */
  path(...parts) {
    return sessionPath(this.session, ...parts);
  }

  get signal() {
    return this.ending.signal;
  }

  async open() {
    this.app.setTitle(`${shorten(this.session, 60)} · Bridle`);
    this.app.setBar(h("a.crumb", { href: "#/" }, "Sessions"), h("span.crumb.here", {}, shorten(this.session, 80)));
    this.about = h(".about");
    this.actions = h(".controls");
    const head = h("header.session-head", {}, this.about, this.actions);
    this.banner = h(".banner", { hidden: true });
    this.tabs = h("nav.tabs", { role: "tablist" });
    this.part = h(".part", { hidden: true });
    this.body = h(".tab-body");
    replace(this.app.main, h("section.session", {}, head, this.banner, h(".tab-bar.sticky", {}, this.tabs, this.part), this.body));
    this.detail = await get(this.path(), {}, this.signal);
    const agents = await this.app.loadAgents();
    this.isServed = agents.some((agent) => agent.name === this.detail.summary.agent);
    this.drawHead();
    await this.load(this.findPart(Number(this.params.get("seq")) || Infinity));
  }

  /**
   * The record before the part that has this one.
   * @param {number} seq
   */
  findPart(seq) {
    return Math.max(0, Math.min(this.countRecords() - PART, seq - 1 - PART / 2));
  }

  /** Records of the log, as far as they are known: those of another part may be newer than the summary. */
  countRecords() {
    this.records = Math.max(this.records, this.detail.summary.records, this.log.last);
    return this.records;
  }

  /**
   * Show the part of the log after a record, and follow it if it is the last one.
   * @param {number} start
   */
  async load(start) {
    this.loading.abort();
    this.loading = new AbortController();
    const { signal } = this.loading;
    this.countRecords();
    this.start = start;
    this.stream = "loading";
    this.isLoaded = false;
    this.log = new SessionLog(this.session, start, this.detail.summary.model);
    this.tab?.dispose?.();
    this.tab = null;
    if (!(await this.loadEvents(signal)) || signal.aborted) return;
    if (this.log.last > this.detail.summary.records) this.refreshDetail(0);  // the run went on meanwhile
    follow(this.session, this.log.last, {
      signal,
      onRecord: (record) => this.add([record]),
      onDelta: (kind, delta) => {
        this.log.addDelta(kind, delta);
        this.schedule();
      },
      onState: (state) => {
        this.stream = state;
        this.drawHead();
      },
    }).catch(this.app.fail);
  }

  /**
   * Read the part; true if it has the end of the log.
   * @param {AbortSignal} signal
   */
  async loadEvents(signal) {
    const { log, start } = this;
    /** @type {{ events: LogRecord[], next: number | null }} */
    let page = await get(this.path("events"), { after: start, limit: FIRST_PAGE }, signal);
    for (const record of page.events) log.add(record);
    this.isLoaded = page.next === null;
    this.showTab(this.tabName, this.params);
    // Records that were added meanwhile belong to the last part.
    const end = start + PART >= this.countRecords() ? Infinity : start + PART;
    while (page.next !== null && log.last < end) {
      page = await get(this.path("events"), { after: page.next, limit: Math.min(PAGE, end - log.last) }, signal);
      if (signal.aborted) return false;
      for (const record of page.events) log.add(record);
      this.isLoaded = page.next === null || log.last >= end;
      this.schedule();
    }
    this.drawPart(page.next === null);
    if (log.last - start > FIRST_PAGE && this.params.get("seq")) this.tab?.setParams?.(this.params);
    return page.next === null;
  }

  /**
   * Which part of a long log is shown, with ways to the others.
   * @param {boolean} isEnd
   */
  drawPart(isEnd) {
    const records = this.countRecords();
    this.part.hidden = isEnd && this.start === 0;
    if (this.part.hidden) return;
    const show = (/** @type {number} */ start) => {
      this.params = new URLSearchParams();
      return this.load(start);
    };
    /** @type {(label: string, start: number, isOff: boolean) => HTMLElement} */
    const go = (label, start, isOff) => button(label, () => this.app.attempt(() => show(start)), { class: "small", disabled: isOff });
    const before = this.start === 0;
    replace(this.part, h("span", {}, `Records ${count(this.start + 1)} to ${isEnd ? "the end" : count(this.log.last)} of ${count(records)}`),
      go("Start", 0, before), go("Earlier", Math.max(0, this.start - PART), before), go("Later", Math.min(this.start + PART, Math.max(0, records - PART)), isEnd), go("End", Math.max(0, records - PART), isEnd));
  }

  /** @param {LogRecord[]} records */
  add(records) {
    for (const record of records) {
      if (!this.log.add(record)) continue;
      if (/^(prompted|resumed|run_ended|approval_|model_replied|configured|server_)/.test(record.event.type)) this.refreshDetail();
    }
    this.schedule();
  }

  /** Draw what changed, once per frame. */
  schedule() {
    if (this.frame) return;
    this.frame = requestAnimationFrame(() => {
      this.frame = 0;
      if (this.signal.aborted) return;
      this.tab?.update?.(this.log);
      this.log.changed.clear();
    });
  }

  refreshDetail(delay = 60) {
    clearTimeout(this.refreshing);
    this.refreshing = setTimeout(async () => {
      try {
        this.detail = await get(this.path(), {}, this.signal);
        this.drawHead();
        this.tab?.updateDetail?.(this.detail);
      } catch (error) {
        this.app.fail(error);
      }
    }, delay);
  }

  /** @param {string | undefined} name */
  showTab(name, params = new URLSearchParams()) {
    const found = TABS.find(([each]) => each === name) ?? TABS[0];
    this.params = params;
    const seq = Number(params.get("seq"));
    if (this.isLoaded && seq && seq <= this.countRecords() && (seq <= this.start || seq > this.log.last)) {
      this.tabName = found[0];
      this.app.attempt(() => this.load(this.findPart(seq)));
      return;
    }
    let { tab } = this;
    if (!tab || this.tabName !== found[0]) {
      tab?.dispose?.();
      this.app.closePanel();
      this.tabName = found[0];
      const hash = `#/session/${encodeURIComponent(this.session)}/${this.tabName}`;
      if (!location.hash.startsWith(hash)) history.replaceState(null, "", hash);
      replace(this.body);
      this.app.main.scrollTop = 0;
      const made = new found[2](this, this.body);
      this.tab = tab = made;
      this.app.attempt(() => made.open());
    }
    tab.setParams?.(params);
    this.drawTabs();
  }

  drawTabs() {
    const waiting = this.detail?.approvals.length ?? 0;
    this.redraw(this.tabs, `${this.tabName} ${waiting}`, () => TABS.map(([name, label], at) =>
      h("a.tab", { href: `#/session/${encodeURIComponent(this.session)}/${name}`, role: "tab", "aria-selected": name === this.tabName ? "true" : "false", title: `${label} (${at + 1})`, data: { tab: name } },
        label, name === "approvals" && waiting > 0 && h("span.badge.is-waiting.count", {}, `${waiting}`))));
    this.tabs.querySelector("[aria-selected=true]")?.scrollIntoView({ block: "nearest", inline: "nearest" });
  }

  /**
   * Draw a part again only if its key changed: a button must not be replaced between press and release.
   * @param {HTMLElement} node
   * @param {string} key
   * @param {() => Child} make
   */
  redraw(node, key, make) {
    if (this.drawn.get(node) === key) return;
    this.drawn.set(node, key);
    replace(node, make());
  }

  drawHead() {
    if (!this.detail) return;
    const { summary, approvals } = this.detail;
    const usage = usageOf(summary.usage);
    const prompt = promptOf(usage);
    /** @type {(label: string, value: string, title?: string) => HTMLElement} */
    const figure = (label, value, title) => h(".figure", { title }, h("span.value", {}, value), h("span.label", {}, label));
    this.copy ??= button(icon("copy"), () => navigator.clipboard?.writeText(this.session).then(() => this.app.toast("Id copied")), { class: "ghost small", "aria-label": "Copy the id", title: "Copy the id" });
    const isLive = this.stream === "live" && this.detail.is_running;
    replace(this.about,
      h(".title", {}, badge(summary.status), isLive && h("span.pulse", { title: "Live" }), h("h1", { dir: "auto" }, shorten(summary.prompt.replace(/\s+/g, " "), 200) || this.session),
        this.stream === "reconnecting" && h("span.muted", {}, "reconnecting…")),
      h(".meta.muted", {}, h("span.session-id", {}, this.session, this.copy), [summary.agent, summary.model, moment(summary.created_at), summary.tenant && `tenant ${summary.tenant}`, summary.caller && `caller ${summary.caller}`].filter(Boolean).map((word) => h("span", {}, word)),
        summary.parent_session && h("a", { href: `#/session/${encodeURIComponent(summary.parent_session)}` }, `sub-run of ${summary.parent_session}`), summary.reason && h("span.why", {}, summary.reason)),
      h(".figures", {},
        figure("steps", count(summary.steps)), figure("prompt tokens", tokens(prompt), `${count(prompt)} tokens read`), figure("output", tokens(usage.output), `${count(usage.output)} tokens written, ${count(usage.reasoning)} of them reasoning`),
        figure("cached", prompt ? `${Math.round((100 * usage.cache_read) / prompt)}%` : "–", `${count(usage.cache_read)} tokens from the cache`), figure("cost", dollars(summary.usd)),
        figure("duration", seconds(summary.updated_at - summary.created_at)), figure("records", count(summary.records))));
    const ids = approvals.map((each) => each.id).join(" ");
    this.redraw(this.actions, `${summary.status} ${this.detail.is_running} ${ids}`, () => this.controls());
    this.banner.hidden = !approvals.length || this.tabName === "approvals";
    this.redraw(this.banner, ids, () => approvals.length > 0 && h("a", { href: `#/session/${encodeURIComponent(this.session)}/approvals` }, `${approvals.length} call${approvals.length === 1 ? " waits" : "s wait"} for your answer: ${approvals.map((each) => each.tool).join(", ")}`));
    this.drawTabs();
  }

  controls() {
    const { is_running: isRunning, summary, approvals } = this.detail;
    /** @type {(label: string, work: () => unknown, props?: Props) => HTMLElement} */
    const act = (label, work, props) => button(label, () => this.app.attempt(work), props);
    if (isRunning) {
      return [
        act("Steer…", () => this.steer(), { title: "Send a message to the run" }),
        act("Pause", () => this.control("pause"), { title: "Stop after this step" }),
        act("Cancel run", () => this.control("cancel"), { class: "danger" }),
      ];
    }
    const isOpen = ["unfinished", "paused", "cancelled", "waiting", "failed", "budget", "steps", "seconds"].includes(summary.status);
    return [
      this.isServed && isOpen && !approvals.length && act("Resume", () => this.resume(), { class: "primary" }),
      this.isServed && act("Prompt…", () => this.prompt(), { title: "Continue the session" }),
      act("Fork…", () => this.fork(null), { title: "Start a session with the records of this one" }),
    ];
  }

  /** @param {string} action */
  async control(action, body = {}) {
    const outcome = await post(this.path(action), body);
    this.app.toast(`${action}: ${outcome.status ?? "sent"}`);
    this.refreshDetail(0);
  }

  async steer() {
    const given = await ask("Steer the run", [{ name: "text", label: "Message", multiline: true, required: true }], { submit: "Send", text: "The run takes it up before its next request." });
    if (given) await this.control("steer", { text: given.text });
  }

  async prompt() {
    const given = await ask("Continue the session", [{ name: "prompt", label: "Prompt", multiline: true, required: true }], { submit: "Run" });
    if (!given) return;
    await post(this.path("prompts"), { prompt: given.prompt });
    this.refreshDetail(0);
  }

  async resume() {
    await post(this.path("resume"));
    this.refreshDetail(0);
  }

  /**
   * Fork before a message, and run from there: a prompt may be changed, a reply is asked for again.
   * @param {Entry} entry
   */
  async runAgain({ kind, parts, before }) {
    const isPrompt = kind === "user";
    const said = /** @type {Part[]} */ (parts);
    const text = said.filter((part) => part.type === "text").map((part) => part.text).join("\n");
    const given = await ask("Run again from here", [
      ...(isPrompt ? [{ name: "prompt", label: "Prompt", multiline: true, required: true, value: text }] : []),
      { name: "model", label: "Model", placeholder: "as before" },
      { name: "session", label: "Name of the new session", placeholder: "made if empty" },
    ], { submit: "Run", text: "Runs in a fork with the records before this message. This session stays as it is; actions that were done stay done." });
    if (!given) return;
    const made = await post(this.path("fork"), { at: before, session: given.session || null, model: given.model || null });
    const media = said.filter((part) => part.type === "media");
    if (isPrompt) await post(sessionPath(made.session, "prompts"), { prompt: [{ type: "text", text: given.prompt }, ...media] });
    else await post(sessionPath(made.session, "resume"));
    this.app.go("session", made.session, "transcript");
  }

  /**
   * Fork at a record, or at the end, and open the fork.
   * @param {number | null} at
   */
  async fork(at) {
    const place = at === null ? "at its end" : `after record ${at}`;
    const given = await ask(`Fork ${place}`, [
      { name: "session", label: "Name of the new session", placeholder: "made if empty" },
      { name: "model", label: "Model to continue with", placeholder: "as before" },
    ], { submit: "Fork", text: "The fork shares the records up to here. This session stays as it is; actions that were done stay done." });
    if (!given) return;
    const made = await post(this.path("fork"), { at, session: given.session || null, model: given.model || null });
    const done = made.completed_actions?.length;
    this.app.toast([`Forked after record ${made.at}.`, made.cut_reason, done && `${done} action${done === 1 ? "" : "s"} of the parent after this point stay done.`].filter(Boolean).join(" "));
    this.app.go("session", made.session, "transcript");
  }

  /** @param {string} key */
  handleKey(key) {
    return this.tab?.handleKey?.(key) ?? false;
  }

  leave() {
    if (!this.tab?.leave?.()) this.app.go();
  }
}
