// The page: address, keys, theme, and the view in front.

import { get, setToken, takeToken, decode, ApiError } from "./api.js";
import { h, replace, icon, button, plain } from "./dom.js";
import { SessionsView } from "./sessions.js";
import { SessionView, TABS } from "./session.js";

const main = find("main");
const panel = find("panel");
const THEME_KEY = "bridle-theme";

/** @typedef {typeof app} App */

export const app = {
  /** @type {SessionView | SessionsView | null} */
  view: null,
  /** @type {{ name: string }[] | null} */
  agents: null,
  main,

  async loadAgents() {
    app.agents ??= /** @type {{ name: string }[]} */ ((await get("agents")).agents);
    return app.agents;
  },

  /**
   * Show details beside the view.
   * @param {string} title
   * @param {Child[]} content
   */
  openPanel(title, ...content) {
    panel.hidden = false;
    document.body.classList.add("has-panel");
    const close = button(icon("close"), () => app.closePanel(), { class: "ghost", "aria-label": "Close details", title: "Close (Esc)" });
    replace(panel, h(".panel-head", {}, h("h2", {}, title), close), h(".panel-body", {}, ...content));
    panel.scrollTop = 0;
  },

  closePanel() {
    if (panel.hidden) return false;
    panel.hidden = true;
    document.body.classList.remove("has-panel");
    replace(panel);
    return true;
  },

  /** @param {string} text */
  toast(text, kind = "") {
    const node = h(".toast", { class: kind }, text);
    find("toasts").append(node);
    setTimeout(() => node.remove(), kind === "error" ? 8000 : 3500);
  },

  /** @param {unknown} error */
  fail(error) {
    if (error instanceof DOMException && error.name === "AbortError") return;
    if (error instanceof ApiError && error.status === 401) askToken();
    else app.toast(error instanceof ApiError ? error.message : `${error}`, "error");
    if (!(error instanceof ApiError)) console.error(error);
  },

  /**
   * Do something and show an error of it.
   * @param {() => unknown} work
   */
  async attempt(work) {
    try {
      await work();
    } catch (error) {
      app.fail(error);
    }
  },

  /** @param {string[]} parts */
  go(...parts) {
    location.hash = `#/${parts.map(encodeURIComponent).join("/")}`;
  },

  /** @param {Child[]} crumbs */
  setBar(...crumbs) {
    const home = h("a.brand", { href: "#/", title: "All sessions" }, h("span.mark", {}, "bridle"));
    const theme = button(icon("theme"), toggleTheme, { class: "ghost", "aria-label": "Switch theme", title: "Light or dark (t)" });
    const help = button(icon("help"), showHelp, { class: "ghost", "aria-label": "Keys", title: "Keys (?)" });
    replace(find("bar"), home, h("nav.crumbs", {}, ...crumbs), h(".grow"), theme, help);
  },

  /** @param {string} text */
  setTitle(text) {
    document.title = plain(text);
  },
};

/**
 * An element that index.html has.
 * @param {string} id
 */
function find(id) {
  const node = document.getElementById(id);
  if (!node) throw new Error(`the page has no element #${id}`);
  return node;
}

/**
 * A dialog with a form; resolves with its values, or null.
 * @param {string} title
 * @param {Field[]} fields
 * @returns {Promise<Record<string, string> | null>}
 */
export function ask(title, fields, { submit = "OK", danger = false, text = "" } = {}) {
  return new Promise((resolve) => {
    const inputs = fields.map((field) => {
      const input = h(field.multiline ? "textarea" : "input", { name: field.name, placeholder: field.placeholder, rows: field.multiline ? 4 : undefined, value: field.value ?? "", required: field.required });
      return h("label.field", {}, h("span", {}, field.label), input);
    });
    const form = h("form", { method: "dialog" }, h("h2", {}, title), text && h("p.muted", {}, text), ...inputs,
      h(".actions", {}, button("Cancel", () => dialog.close()), h("button", { type: "submit", value: "ok", class: danger ? "danger" : "primary" }, submit)));
    /** @type {HTMLDialogElement} */
    const dialog = h("dialog", {}, form);
    dialog.addEventListener("close", () => {
      dialog.remove();
      resolve(dialog.returnValue === "ok" ? Object.fromEntries([...new FormData(form)].map(([name, value]) => [name, `${value}`])) : null);
    });
    document.body.append(dialog);
    dialog.showModal();
  });
}

let isAsking = false;
async function askToken() {
  if (isAsking) return;
  isAsking = true;
  const given = await ask("This server needs its token", [{ name: "token", label: "Token", required: true }], { submit: "Open" });
  isAsking = false;
  if (!given) return;
  setToken(given.token);
  app.agents = null;
  route();
}

function toggleTheme() {
  const isDark = document.documentElement.dataset.theme === "dark" || (!document.documentElement.dataset.theme && matchMedia("(prefers-color-scheme: dark)").matches);
  setTheme(isDark ? "light" : "dark");
}

/** @param {string | null} theme */
function setTheme(theme) {
  if (theme !== "dark" && theme !== "light") return;
  document.documentElement.dataset.theme = theme;
  localStorage.setItem(THEME_KEY, theme);
}

const KEYS = [
  ["j  k", "next, previous row"],
  ["g  G", "first, last row"],
  ["Enter", "open the row"],
  ["1 … 8", "tabs of a session"],
  ["/", "search or filter"],
  ["f  r", "transcript: fork at the row, run again from it"],
  ["t", "light or dark"],
  ["Esc", "close, clear, back to the list"],
  ["?", "these keys"],
];

function showHelp() {
  if (document.querySelector("dialog[open]")) return;
  const rows = KEYS.map(([keys, about]) => h("tr", {}, h("td", {}, keys.split(/\s+/).map((key) => h("kbd", {}, key))), h("td", {}, about)));
  /** @type {HTMLDialogElement} */
  const dialog = h("dialog.help", {}, h("h2", {}, "Keys"), h("table", {}, h("tbody", {}, rows)), h(".actions", {}, button("Close", () => dialog.close(), { class: "primary" })));
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
}

/** @param {KeyboardEvent} event */
function onKey(event) {
  if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
  const target = event.target instanceof Element ? event.target : null;
  const field = target?.closest("input, textarea, select");
  if (event.key === "Escape") {
    if (field instanceof HTMLElement) field.blur();
    else if (!app.closePanel()) app.view?.leave();
    return;
  }
  if (field || (event.key === "Enter" && target?.closest("button, a, summary"))) return;
  const tab = /^[1-9]$/.test(event.key) && TABS[Number(event.key) - 1];
  if (event.key === "?") showHelp();
  else if (event.key === "t") toggleTheme();
  else if (event.key === "/") /** @type {HTMLInputElement | null} */ (document.querySelector("input[type=search]"))?.focus();
  else if (tab && app.view instanceof SessionView) app.view.showTab(tab[0]);
  else if (!app.view?.handleKey(event.key)) return;
  event.preventDefault();
}

function route() {
  const [where, query = ""] = location.hash.replace(/^#\/?/, "").split("?");
  const [kind, session, tab] = where.split("/").map(decode);
  const params = new URLSearchParams(query);
  if (kind === "session" && session && app.view instanceof SessionView && app.view.session === session) {
    app.view.showTab(tab, params);
    return;
  }
  app.closePanel();
  app.view?.dispose();
  app.view = kind === "session" && session ? new SessionView(app, session, tab, params) : new SessionsView(app, params);
  main.scrollTop = 0;
  app.view.open().catch(showFailure);
}

/**
 * A view that cannot be opened says why, in its place.
 * @param {unknown} error
 */
function showFailure(error) {
  if (!(error instanceof ApiError) || error.status === 401) app.fail(error);
  else replace(main, h(".list-status", {}, h("p.error", {}, error.message), h("p", {}, h("a", { href: "#/" }, "All sessions"))));
}

takeToken();
setTheme(localStorage.getItem(THEME_KEY));
addEventListener("hashchange", route);
addEventListener("keydown", onKey);
route();
