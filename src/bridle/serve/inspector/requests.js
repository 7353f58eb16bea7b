// The requests that were sent, byte for byte, each with its difference to the one before.

import { get } from "./api.js";
import { h, replace, button, bytes, count, longText, prettyJson, shorten } from "./dom.js";
import { readDiff, showLines } from "./diff.js";
import { VirtualList } from "./list.js";
import { webLink } from "./media.js";

/** @implements {Tab} */
export class RequestsTab {
  /** @type {VirtualList<SentRequest>} */
  list;
  /** @type {HTMLElement} */
  status;
  /** @type {SentRequest[] | undefined} */
  calls;
  /** @type {number | undefined} */
  wanted;
  known = 0;
  isPretty = true;
  isLoading = false;

  /**
   * @param {import("./session.js").SessionView} view
   * @param {HTMLElement} node
   */
  constructor(view, node) {
    this.view = view;
    this.node = node;
    this.app = view.app;
  }

  async open() {
    this.list = new VirtualList(this.app.main, { render: (call) => this.renderRow(call), estimate: 34, onOpen: (call) => this.openCall(call.number), label: "Requests" });
    this.status = h(".list-status.muted", {}, "Rebuilding the requests from the log …");
    replace(this.node, h(".toolbar.muted", {}, "Each request is rebuilt from the log and proven by its recorded digest."), this.status, h(".crow.thead", {}, ["#", "Step", "Model", "Outcome", "Proof", "Body"].map((name, at) => h("span", { class: at % 5 ? "" : "num" }, name))), this.list.node);
    const calls = await this.load();
    // On a narrow screen the details would cover the list.
    const wanted = calls.find((call) => call.seq === this.wanted) ?? (matchMedia("(min-width: 721px)").matches && calls.at(-1));
    if (wanted) await this.show(wanted);
  }

  /** @param {URLSearchParams} params */
  setParams(params) {
    this.wanted = Number(params.get("seq"));
    const call = this.calls?.find((each) => each.seq === this.wanted);
    if (call) this.app.attempt(() => this.show(call));
  }

  /** @param {SentRequest} call */
  show(call) {
    this.list.select(call.number - 1);
    return this.openCall(call.number);
  }

  async load() {
    /** @type {SentRequest[]} */
    const calls = (await get(this.view.path("calls"), {}, this.view.signal)).calls;
    this.calls = calls;
    this.known = this.countCalls();
    this.list.setItems(calls);
    this.status.hidden = calls.length > 0;
    replace(this.status, "No request was sent.");
    return calls;
  }

  countCalls() {
    return this.view.log.spans.filter((span) => span.kind === "model").length;
  }

  update() {
    if (!this.calls || this.isLoading || this.countCalls() === this.known) return;
    this.isLoading = true;
    this.app.attempt(() => this.load()).finally(() => {
      this.isLoading = false;
    });
  }

  dispose() {
    this.list.dispose();
  }

  /** @param {SentRequest} call */
  renderRow(call) {
    const isOk = call.outcome === "model_replied";
    return h(".crow", { role: "listitem", data: { status: isOk ? "ok" : "error" }, onclick: () => this.app.attempt(() => this.show(call)) },
      h("span.num", {}, `${call.number}`), h("span", {}, `${call.step}${call.attempt > 1 ? `, attempt ${call.attempt}` : ""}`), h("span.model", {}, shorten(call.model, 60)),
      h("span", {}, h("i.dot"), call.stop || call.outcome || "open"), h("span.muted", {}, call.problem ? shorten(call.problem, 80) : call.is_proven ? "digest proven" : "not proven"), h("span.num", {}, bytes(call.body_bytes)));
  }

  /** @param {number} number */
  async openCall(number) {
    /** @type {{ call: SentRequest, method: string, url: string, headers: [string, string][], body: string, digest: string, difference?: { layer: string, place: string, first_byte: number, body_bytes: number, changes: string[], diff?: string[] } }} */
    const found = await get(this.view.path("calls", number), {}, this.view.signal);
    const { difference } = found;
    const body = h(".body-block");
    const draw = () => replace(body, longText(this.isPretty ? prettyJson(found.body) : found.body, "pre.code"));
    const toggle = button(this.isPretty ? "Exact bytes" : "Indented", () => {
      this.isPretty = !this.isPretty;
      replace(toggle, this.isPretty ? "Exact bytes" : "Indented");
      draw();
    });
    draw();
    this.app.openPanel(`Request ${number}`,
      h("p.address", {}, h("strong", {}, `${found.method} `), webLink(found.url)),
      h("dl.facts", {}, [["model", found.call.model], ["outcome", found.call.stop || found.call.outcome], ["digest", `${found.digest.slice(0, 16)}… ${found.call.is_proven ? "proven" : "not proven"}`], ["problem", found.call.problem]].filter(([, value]) => value).map(([name, value]) => [h("dt", {}, name), h("dd", {}, value)])),
      h("h3", {}, "Difference to the request before"),
      difference ? [h("p", {}, h("span.tag", {}, difference.layer), ` ${difference.place}`, difference.first_byte > 0 && h("span.muted", {}, ` from byte ${count(difference.first_byte)} of ${count(difference.body_bytes)}`)),
        h("ul.changes", {}, difference.changes.map((each) => h("li", {}, each))), difference.diff && difference.diff.length > 0 && showLines(readDiff(difference.diff), { isWhole: true })]
        : h("p.muted", {}, number === 1 ? "It is the first request." : "None: the same request was sent again."),
      h("h3", {}, "Headers"), longText(found.headers.map(([name, value]) => `${name}: ${value}`).join("\n"), "pre.code"),
      h(".with-action", {}, h("h3", {}, "Body"), toggle), body);
  }

  /** @param {string} key */
  handleKey(key) {
    return this.list.handleKey(key);
  }
}
