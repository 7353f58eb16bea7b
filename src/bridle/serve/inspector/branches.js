// Forks of a session: the tree, a comparison of two of them, and a replay.

import { get } from "./api.js";
import { h, replace, button, tokens, dollars, seconds, shorten, totalOf, usageOf } from "./dom.js";
import { showDiff } from "./diff.js";
import { table } from "./list.js";
import { badge } from "./sessions.js";
import { showPart } from "./transcript.js";

/** @implements {Tab} */
export class BranchesTab {
  /** @type {HTMLElement} */
  tree;
  /** @type {HTMLElement} */
  result;
  /** @type {HTMLElement} */
  replayed;
  /** @type {Branch[]} */
  branches = [];
  selected = -1;

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
    this.tree = h(".tree");
    this.result = h(".comparison");
    this.replayed = h(".replayed");
    const agents = await this.app.loadAgents();
    const select = h("select", { "aria-label": "Replay with" }, h("option", { value: "" }, "as recorded"), agents.map((agent) => h("option", { value: agent.name }, `with ${agent.name} as it is now`)));
    replace(this.node, h("h3.section", {}, "Family"), this.tree, this.result,
      h("h3.section", {}, "Replay"), h("p.muted", {}, "Decides every step again from the log, without calling a model or a tool, and reports the first difference."),
      h(".toolbar", {}, select, button("Replay", () => this.app.attempt(() => this.replay(select.value)), { class: "primary" })), this.replayed);
    await this.load();
  }

  /** @param {URLSearchParams} params */
  setParams(params) {
    const other = params.get("compare");
    if (other) this.app.attempt(() => this.compare(other));
  }

  async load() {
    this.branches = (await get(this.view.path("branches"), {}, this.view.signal)).branches;
    this.selected = this.branches.findIndex((each) => each.session === this.view.session);
    this.draw();
  }

  draw() {
    replace(this.tree, this.branches.map((branch, at) => {
      const isHere = branch.session === this.view.session;
      return h(".brow", { class: [isHere && "here", at === this.selected && "selected"].filter(Boolean).join(" "), data: { session: branch.session } },
        h("span.branch", { style: { paddingLeft: `${Math.min(branch.depth ?? 0, 12) * 18}px` } }, Boolean(branch.depth) && h("i.joint"),
          isHere ? h("strong", {}, branch.session) : h("a", { href: `#/session/${encodeURIComponent(branch.session)}/transcript` }, branch.session),
          h("span.muted.peek", {}, branch.read_error || shorten((branch.first_text ?? "").replace(/\s+/g, " "), 90))),
        h("span.muted", {}, branch.parent ? `from record ${branch.at}` : "root"), h("span", {}, badge(branch.end || "new")),
        h("span.num", {}, `${branch.own_messages ?? 0} msg`), h("span.num", {}, `${branch.steps ?? 0} step${branch.steps === 1 ? "" : "s"}`), h("span.num", {}, dollars(branch.usd === undefined ? 0 : branch.usd)),
        isHere ? h("span.muted", {}, "this one") : button("Compare", () => this.app.attempt(() => this.compare(branch.session)), { class: "small" }));
    }));
  }

  /** @param {string} other */
  async compare(other) {
    /** @type {{ a: BranchSide, b: BranchSide, messages: number, records: number, settings?: [string, string, string][], pairs?: MessagePair[] }} */
    const found = await get(this.view.path("compare"), { other }, this.view.signal);
    const { a, b } = found;
    /** @type {(name: string, left: string, right: string) => { cells: Child[], props: Props }} */
    const row = (name, left, right) => ({ cells: [h("span.muted", {}, name), left, right], props: { class: left === right ? "" : "differs" } });
    const calls = (/** @type {BranchSide} */ side) => (side.calls ?? []).map(([name, number]) => `${name} × ${number}`).join(", ") || "none";
    const total = (/** @type {BranchSide} */ side) => tokens(totalOf(usageOf(side.usage)));
    replace(this.result, h("h3.section", {}, "Comparison"), h("p.muted", {}, `${found.messages} equal messages, ${found.records} shared records`),
      table([{ name: "" }, { name: shorten(a.session, 60) }, { name: shorten(b.session, 60) }], [
        row("model", a.model, b.model), row("end", a.end, b.end), row("messages", `${a.messages}`, `${b.messages}`), row("steps", `${a.steps}`, `${b.steps}`), row("tokens", total(a), total(b)), row("cost", dollars(a.usd), dollars(b.usd)), row("time", seconds(a.seconds), seconds(b.seconds)), row("calls", calls(a), calls(b)),
        ...(found.settings ?? []).map(([name, left, right]) => row(name, shorten(left, 300), shorten(right, 300))),
      ], { class: "compare" }),
      (found.pairs ?? []).map((pair) => this.showPair(pair)));
    this.result.scrollIntoView({ block: "start" });
  }

  /** @param {MessagePair} pair */
  showPair(pair) {
    const text = (/** @type {Message} */ message) => message.parts.map((part) => part.text ?? "").join("\n");
    const side = (/** @type {Message | null} */ message) => h(".side", {}, message ? [h("header", {}, h("span.who", {}, message.role), h("span.muted", {}, message.id ?? "")), message.parts.map((part) => showPart(part))] : h("p.muted", {}, "no message"));
    const { a, b, kind } = pair;
    const isText = (/** @type {Message} */ message) => message.parts.every((part) => part.type === "text");
    const lines = kind === "changed" && a && b && isText(a) && isText(b) && h("details.whole", {}, h("summary", {}, "Lines that differ"), showDiff(text(a), text(b)));
    return h(".pair", { data: { kind } }, side(a), side(b), lines);
  }

  /** @param {string} agent */
  async replay(agent) {
    replace(this.replayed, h("p.muted", {}, "Replaying …"));
    /** @type {{ records: number, length: number, is_identical: boolean, end?: string, model_calls?: number, tool_runs?: number, unchecked?: string[], divergence?: { seq: number, event: string, differences?: string[], effects?: string[], request?: { changes: string[] } } }} */
    const found = await get(this.view.path("replay"), { agent }, this.view.signal);
    const { divergence } = found;
    const verdict = divergence ? h("p.error", {}, `Differs at record ${divergence.seq} (${divergence.event})`) : h("p.good", {}, found.is_identical ? "Identical: the replay has the hash of the log." : "Equal to the log.");
    replace(this.replayed, verdict,
      h("p.muted", {}, `${found.records} of ${found.length} records, ${found.model_calls ?? 0} model calls, ${found.tool_runs ?? 0} tool runs; end: ${found.end ?? ""}`),
      divergence && h("ul.changes", {}, [...(divergence.differences ?? []), ...(divergence.effects ?? []).map((each) => `wants: ${each}`)].map((each) => h("li", {}, each))),
      divergence?.request && h("ul.changes", {}, divergence.request.changes.map((each) => h("li", {}, each))),
      found.unchecked && found.unchecked.length > 0 && h("ul.changes.muted", {}, found.unchecked.map((each) => h("li", {}, each))));
  }

  /** @param {string} key */
  handleKey(key) {
    if (!this.branches.length) return false;
    if (key === "j" || key === "k") this.selected = Math.max(0, Math.min(this.branches.length - 1, this.selected + (key === "j" ? 1 : -1)));
    else if (key === "Enter") {
      const { session } = this.branches[this.selected];
      if (session !== this.view.session) this.app.go("session", session, "transcript");
    } else return false;
    this.draw();
    return true;
  }
}
