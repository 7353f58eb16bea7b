// The log, event by event.

import { h, replace, button, clock, count, longText, shorten } from "./dom.js";
import { VirtualList } from "./list.js";
import { summarize } from "./log.js";

/** @implements {Tab} */
export class EventsTab {
  /** @type {VirtualList<LogRecord>} */
  list;
  /** @type {HTMLInputElement} */
  search;
  /** @type {HTMLElement} */
  total;

  /**
   * @param {import("./session.js").SessionView} view
   * @param {HTMLElement} node
   */
  constructor(view, node) {
    this.view = view;
    this.node = node;
    this.app = view.app;
    this.filter = "";
  }

  open() {
    this.list = new VirtualList(this.app.main, { render: (record) => this.renderRow(record), estimate: 27, onOpen: (record) => this.openRecord(record), label: "Events" });
    const filter = () => {
      this.filter = this.search.value.toLowerCase();
      this.update(this.view.log);
    };
    this.search = h("input", { type: "search", placeholder: "Filter by kind or content   /", "aria-label": "Filter events", oninput: filter });
    this.total = h("span.muted");
    replace(this.node, h(".toolbar", {}, this.search, this.total), this.list.node);
    this.update(this.view.log);
  }

  dispose() {
    this.list.dispose();
  }

  /** @param {import("./log.js").SessionLog} log */
  update(log) {
    const items = this.filter ? log.events.filter((record) => this.matches(record)) : log.events;
    // The log only grows, so an unchanged filter extends the list.
    this.list.setItems(items === log.events ? [...items] : items);
    replace(this.total, `${count(items.length)} of ${count(log.events.length)} events${this.view.isLoaded ? "" : " …"}`);
  }

  /** @param {LogRecord} record */
  matches(record) {
    return record.event.type.includes(this.filter) || JSON.stringify(record.event).toLowerCase().includes(this.filter);
  }

  /** @param {URLSearchParams} params */
  setParams(params) {
    const seq = Number(params.get("seq"));
    const at = this.view.log.events.findIndex((record) => record.seq === seq);
    if (at < 0) return;
    requestAnimationFrame(() => {
      this.list.select(at);
      this.openRecord(this.view.log.events[at]);
    });
  }

  /** @param {LogRecord} record */
  renderRow(record) {
    const open = () => {
      this.list.select(this.list.items.indexOf(record));
      this.openRecord(record);
    };
    return h(".erow", { role: "listitem", onclick: open },
      h("span.num.seq", {}, `${record.seq}`), h("span.at", {}, clock(record.at, true)), h("span.type", {}, record.event.type), h("span.detail", {}, shorten(summarize(record.event), 260)));
  }

  /** @param {LogRecord} record */
  openRecord(record) {
    this.app.openPanel(`Record ${record.seq}`, eventBlock(record),
      h(".actions", {}, button("Fork here…", () => this.app.attempt(() => this.view.fork(record.seq)))));
  }

  /** @param {string} key */
  handleKey(key) {
    return this.list.handleKey(key);
  }

  leave() {
    if (!this.filter) return false;
    this.filter = "";
    this.search.value = "";
    this.update(this.view.log);
    return true;
  }
}

/**
 * An event in full.
 * @param {LogRecord} record
 */
export function eventBlock(record) {
  return h("section.event", {}, h("h3", {}, h("span.type", {}, record.event.type), h("span.muted", {}, `record ${record.seq} · ${clock(record.at, true)}`), record.is_redacted && h("span.badge.is-other", {}, "redacted")),
    longText(JSON.stringify(record.event, null, 2), "pre.code"));
}
