// Calls that wait for a person: approve, edit their arguments, reject.

import { post } from "./api.js";
import { h, replace, button, moment, longText, visibleJson } from "./dom.js";
import { readUnified, showLines } from "./diff.js";
import { isJson, readMembers } from "./json.js";
import { showArguments } from "./transcript.js";

const BY_KEY = "bridle-by";
/** @type {Record<string, string>} */
const QUESTIONS = {
  run: "May this call run?",
  in_doubt: "This call started and has no result. Did it take effect?",
  sampling: "May the server of this tool ask the model?",
  elicitation: "The server of this tool asks you for values.",
};

/** @typedef {{ text: HTMLTextAreaElement, original: string, reason: HTMLInputElement, by: HTMLInputElement, problem: HTMLElement }} AnswerForm */

/** @param {Approval} approval */
const nameCard = ({ id, is_approved: isApproved }) => `${id}${isApproved ? " approved" : ""}`;

/** @implements {Tab} */
export class ApprovalsTab {
  /** @type {HTMLElement} */
  pending;
  /** @type {HTMLElement} */
  history;
  shown = -1;

  /**
   * @param {import("./session.js").SessionView} view
   * @param {HTMLElement} node
   */
  constructor(view, node) {
    this.view = view;
    this.node = node;
    this.app = view.app;
    /** @type {Map<string, HTMLElement>} */
    this.cards = new Map();
  }

  open() {
    this.pending = h(".cards");
    this.history = h(".history");
    replace(this.node, this.pending, this.history);
    this.updateDetail(this.view.detail);
    this.update(this.view.log);
  }

  /** @param {SessionDetail} detail */
  updateDetail({ approvals: open, approved_calls: approved }) {
    const approvals = [...open, ...approved];
    const known = new Set(approvals.map(nameCard));
    for (const id of [...this.cards.keys()]) if (!known.has(id)) this.cards.delete(id);
    // A card that a person edits stays.
    for (const approval of approvals) {
      const name = nameCard(approval);
      if (!this.cards.has(name)) this.cards.set(name, approval.is_approved ? this.makeApprovedCard(approval) : this.makeCard(approval));
    }
    replace(this.pending, approvals.length ? [...this.cards.values()] : h("p.list-status.muted", {}, "No call waits for an answer."));
  }

  /** @param {import("./log.js").SessionLog} log */
  update(log) {
    const answered = log.events.filter((record) => record.event.type === "approval_answered");
    if (answered.length === this.shown) return;
    this.shown = answered.length;
    replace(this.history, answered.length > 0 && [h("h3.section", {}, "Answered"), answered.toReversed().slice(0, 200).map(({ event, at }) =>
      h(".answered", { data: { status: event.answer === "reject" ? "error" : "ok" } }, h("i.dot"), h("strong", {}, event.name || event.call_id), h("span", {}, `${event.answer}${event.arguments ? " with other arguments" : ""}`), h("span.muted", {}, [event.by && `by ${event.by}`, event.reason].filter(Boolean).join(": ")), h(".grow"), h("span.muted", {}, moment(at))))]);
  }

  /**
   * A call that is approved and has not started: it can still be rejected.
   * @param {Approval} approval
   */
  makeApprovedCard(approval) {
    const text = visibleJson(approval.complete_arguments || approval.arguments);
    const reason = h("input", { type: "text", placeholder: "Reason (recorded)", "aria-label": "Reason" });
    const by = h("input", { type: "text", placeholder: "Your name (recorded)", "aria-label": "Your name", value: localStorage.getItem(BY_KEY) ?? "" });
    const form = { text: h("textarea"), original: "", reason, by, problem: h("p.error") };
    const state = `Approved${approval.approved_by ? ` by ${approval.approved_by}` : ""}${approval.is_uncompared ? ", not compared with an agent" : ""}, not run yet.`;
    return h("section.card", { data: { approval: approval.id } },
      h("header", {}, h("h3", {}, approval.tool), h(".grow"), h("span.muted", {}, moment(approval.asked_at))),
      h("p", {}, `${state} The call runs when the run is resumed.`), h("pre.code", {}, text),
      h(".answer", {}, reason, by),
      h(".actions", {}, button("Reject", () => this.answer(approval, "reject", form), { class: "danger" })));
  }

  /** @param {Approval} approval */
  makeCard(approval) {
    const original = visibleJson(approval.complete_arguments || approval.arguments);
    const text = h("textarea.code", { rows: Math.min(14, original.split("\n").length + 1), spellcheck: "false", "aria-label": "Arguments", value: original });
    const problem = h("p.error", { hidden: true });
    const reason = h("input", { type: "text", placeholder: "Reason (recorded)", "aria-label": "Reason" });
    const by = h("input", { type: "text", placeholder: "Your name (recorded)", "aria-label": "Your name", value: localStorage.getItem(BY_KEY) ?? "" });
    const form = { text, original, reason, by, problem };
    const approve = button("Approve", () => this.answer(approval, "approve", form), { class: "primary" });
    text.addEventListener("input", () => {
      const isEdited = text.value !== original;
      replace(approve, isEdited ? "Approve with these arguments" : "Approve");
      problem.hidden = true;
    });
    const lines = readUnified(approval.preview ?? "");
    const preview = approval.preview && (lines ? showLines(lines, { isWhole: true }) : longText(approval.preview, "pre.code"));
    return h("section.card", { data: { approval: approval.id } },
      h("header", {}, h("h3", {}, approval.tool), h("span.muted", {}, approval.rule && `rule: ${approval.rule}`), h(".grow"), h("span.muted", {}, moment(approval.asked_at))),
      h("p", {}, QUESTIONS[approval.question ?? "run"] ?? approval.question),
      preview && [h("h4", {}, "What it would do, according to the tool"), preview],
      h("h4", {}, "Arguments"), /"(old|new)_?\w*"\s*:/.test(original) && showArguments(original), text, problem,
      h(".answer", {}, reason, by),
      h(".actions", {}, approve, approval.question === "in_doubt" && button("It was done", () => this.answer(approval, "done", form)),
        button("Reject", () => this.answer(approval, "reject", form), { class: "danger" })));
  }

  /**
   * @param {Approval} approval
   * @param {"approve" | "done" | "reject"} answer
   * @param {AnswerForm} form
   */
  async answer(approval, answer, { text, original, reason, by, problem }) {
    /** @type {Record<string, string>} */
    const body = { answer, reason: reason.value, by: by.value };
    if (answer === "approve" && text.value !== original) {
      if (!readMembers(text.value)) {
        problem.hidden = false;
        replace(problem, isJson(text.value) ? "The arguments are not a JSON object." : "The arguments are not JSON.");
        return;
      }
      body.arguments = text.value; // as text: a number keeps every digit
    }
    localStorage.setItem(BY_KEY, by.value);
    await this.app.attempt(async () => {
      const reply = await post(this.view.path("approvals", approval.id), body);
      const compared = reply.approval.is_uncompared ? " It was not compared with an agent." : "";
      this.app.toast(reply.run ? "Answered; the run continues." : `Answered.${compared} The run continues when its process, or bridle resume, takes the answer up.`);
      this.view.refreshDetail(0);
    });
  }

  handleKey() {
    return false;
  }
}
