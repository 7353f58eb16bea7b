// Builds DOM nodes. Strings become text nodes and nothing else; characters that hide or reorder text are shown by number.

import { indentJson } from "./json.js";

const HIDDEN = new RegExp(
  "[\\u0000-\\u0008\\u000b\\u000c\\u000e-\\u001f\\u007f-\\u009f\\u00ad\\u034f\\u061c\\u115f\\u1160\\u17b4\\u17b5\\u180b-\\u180f" +
    "\\u200b\\u200e\\u200f\\u2028-\\u202e\\u2060-\\u206f\\u3164\\ufeff\\uffa0\\ufff0-\\ufffb\\u{1d173}-\\u{1d17a}\\u{e0000}-\\u{e0fff}]" +
    "|\\r(?!\\n)" +
    // Joiners are part of emoji and of some scripts; anywhere else they hide something.
    "|(?<![\\p{Extended_Pictographic}\\u{1f3fb}-\\u{1f3ff}\\ufe0f\\p{sc=Arabic}\\p{sc=Devanagari}\\p{sc=Bengali}\\p{sc=Malayalam}\\p{sc=Sinhala}\\u094d])[\\u200c\\u200d]",
  "gu",
);

/** Characters without a form of their own, and spaces that look like the plain one, as at the terminal: for text that a person approves. */
const UNCLEAR = new RegExp(
  "(?![ \\n\\t])[\\p{Cc}\\p{Cf}\\p{Cs}\\p{Co}\\p{Zl}\\p{Zp}\\p{Zs}\\u034f\\u115f\\u1160\\u17b4\\u17b5\\u180b-\\u180f\\u2060-\\u206f\\u2800" +
    "\\u3164\\ufe00-\\ufe0f\\uffa0\\ufff0-\\ufffb\\u{e0000}-\\u{e0fff}]",
  "gu",
);

/** @param {string} found */
const codeName = (found) => `U+${(found.codePointAt(0) ?? 0).toString(16).toUpperCase().padStart(4, "0")}`;

/**
 * Text for attributes and short labels: hidden characters are written out.
 * @param {unknown} value
 */
export const plain = (value) => String(value).replace(HIDDEN, (found) => `⟨${codeName(found)}⟩`);

/**
 * Nodes that show a text with its hidden characters.
 * @param {string} value
 * @returns {Node[]}
 */
function textNodes(value) {
  // guard: inspector-hidden-characters
  if (value.search(HIDDEN) < 0) return [document.createTextNode(value)];
  /** @type {Node[]} */
  const nodes = [];
  let from = 0;
  for (const found of value.matchAll(HIDDEN)) {
    if (found.index > from) nodes.push(document.createTextNode(value.slice(from, found.index)));
    const mark = document.createElement("span");
    mark.className = "hidden-char";
    mark.textContent = codeName(found[0]);
    nodes.push(mark);
    from = found.index + found[0].length;
  }
  if (from < value.length) nodes.push(document.createTextNode(value.slice(from)));
  return nodes;
}

/**
 * @param {ParentNode} node
 * @param {Child} child
 * @returns {void}
 */
function append(node, child) {
  if (child === null || child === undefined || child === false) return;
  if (Array.isArray(child)) for (const each of child) append(node, each);
  else if (child instanceof Node) node.append(child);
  else node.append(...textNodes(String(child)));
}

/**
 * An element. `props`: on* are listeners, `class` and `data` and plain attributes; values are made visible.
 * @template {string} Tag
 * @param {Tag} tag
 * @param {Props} [props]
 * @param {Child[]} children
 * @returns {ElementOf<Tag>}
 */
export function h(tag, props, ...children) {
  const [name, ...classes] = tag.split(".");
  const node = /** @type {ElementOf<Tag>} */ (document.createElement(name || "div"));
  if (classes.length) node.className = classes.join(" ");
  for (const [key, value] of Object.entries(props ?? {})) {
    if (value === undefined || value === null || value === false) continue;
    if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else if (key === "class") node.className = `${node.className} ${value}`.trim();
    else if (key === "data") Object.assign(node.dataset, value);
    else if (key === "style") Object.assign(node.style, value);
    else if (key === "value") Object.assign(node, { value });
    else if (value === true) node.setAttribute(key, "");
    else node.setAttribute(key, plain(value));
  }
  append(node, children);
  return node;
}

/**
 * @template {ParentNode} Parent
 * @param {Parent} node
 * @param {Child[]} children
 */
export function replace(node, ...children) {
  const made = document.createDocumentFragment();
  for (const child of children) append(made, child);
  node.replaceChildren(made);
  return node;
}

/**
 * @param {string} name
 * @param {Props} attributes
 * @param {Child[]} children
 */
export function svg(name, attributes, ...children) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  append(node, children);
  return node;
}

const ICONS = {
  theme: "M12 3a9 9 0 1 0 0 18V3z M12 3a9 9 0 0 1 0 18",
  help: "M9.2 9a3 3 0 1 1 4.3 2.7c-1 .5-1.5 1.1-1.5 2.3M12 17.5v.1",
  back: "M14.5 5.5 8 12l6.5 6.5",
  close: "M6 6l12 12M18 6 6 18",
  copy: "M9 9h10v11H9z M5 15V4h10",
  again: "M19 12a7 7 0 1 1-2.300-5.200M19 4v4.500h-4.500",
  fork: "M7 4v16M7 12c6 0 10-1 10-7M14.500 7.500 17 4.500l2.500 3",
  search: "M11 5a6 6 0 1 0 0 12 6 6 0 0 0 0-12zM15.500 15.500 20 20",
};

/** @param {keyof typeof ICONS} name */
export function icon(name) {
  const attributes = { viewBox: "0 0 24 24", class: "icon", "aria-hidden": "true" };
  return svg("svg", attributes, svg("path", { d: ICONS[name] }));
}

/**
 * @param {Child} label
 * @param {() => unknown} onclick
 * @param {Props} [props]
 */
export function button(label, onclick, props = {}) {
  return h("button", { type: "button", onclick, ...props }, label);
}

const FIRST = 4000;
const MORE = 100_000;

/**
 * Long text in a block: the beginning at first, the rest on demand.
 * @param {string} value
 */
export function longText(value, tag = "pre.text") {
  const block = h(tag, { dir: "auto" });
  let shown = value.length <= FIRST * 1.25 ? value.length : FIRST;
  const fill = () => {
    const rest = value.length - shown;
    const showMore = () => {
      shown = Math.min(value.length, shown + MORE);
      fill();
    };
    const more = rest > 0 && button(`Show more (${count(rest)} characters)`, showMore, { class: "link more" });
    replace(block, value.slice(0, shown), more);
  };
  fill();
  return block;
}

const COUNTS = { input: 0, cache_read: 0, cache_write: 0, output: 0, reasoning: 0 };

/**
 * Usage with all its counts: the API and the log leave out fields that have their default.
 * @param {Partial<Usage> | undefined} usage
 * @returns {Usage}
 */
export const usageOf = (usage) => ({ ...COUNTS, ...usage });
/** @param {Usage} usage */
export const promptOf = (usage) => usage.input + usage.cache_read + usage.cache_write;
/** @param {Usage} usage */
export const totalOf = (usage) => promptOf(usage) + usage.output;

/** @param {number | string | null | undefined} value */
export const count = (value) => Number(value ?? 0).toLocaleString("en-US");

/** @param {number} value */
export function tokens(value) {
  if (value < 10_000) return count(value);
  return value < 1_000_000 ? `${(value / 1000).toFixed(value < 100_000 ? 1 : 0)}k` : `${(value / 1e6).toFixed(2)}M`;
}

/** @param {Dollars} value */
export function dollars(value) {
  if (value === null || value === undefined) return "–";
  const usd = Number(value);
  if (usd === 0) return "$0";
  return usd < 0.01 ? `$${usd.toFixed(5)}` : `$${usd.toFixed(usd < 1 ? 4 : 2)}`;
}

/** @param {number | null | undefined} value */
export function seconds(value) {
  if (value === null || value === undefined) return "";
  if (value < 0.0005) return "0 ms";
  if (value < 1) return `${(value * 1000).toFixed(value < 0.01 ? 1 : 0)} ms`;
  if (value < 60) return `${value.toFixed(value < 10 ? 2 : 1)} s`;
  if (value < 3600) return `${Math.floor(value / 60)}m ${Math.floor(value % 60)}s`;
  if (value < 86400) return `${Math.floor(value / 3600)}h ${Math.floor((value % 3600) / 60)}m`;
  return `${Math.floor(value / 86400)}d ${Math.floor((value % 86400) / 3600)}h`;
}

/** @param {number} value */
export function bytes(value) {
  return value < 10_240 ? `${count(value)} B` : value < 1_048_576 ? `${(value / 1024).toFixed(0)} kB` : `${(value / 1_048_576).toFixed(1)} MB`;
}

/** @param {number} value */
const pad = (value, width = 2) => String(value).padStart(width, "0");

/** @param {number} at */
export function clock(at, fraction = false) {
  const date = new Date(at * 1000);
  const base = `${pad(date.getHours())}:${pad(date.getMinutes())}:${pad(date.getSeconds())}`;
  return fraction ? `${base}.${pad(date.getMilliseconds(), 3)}` : base;
}

/** @param {number} at */
export function day(at) {
  const date = new Date(at * 1000);
  return `${date.getFullYear()}-${pad(date.getMonth() + 1)}-${pad(date.getDate())}`;
}

/** @param {number} at */
export const moment = (at) => `${day(at)} ${clock(at)}`;

/** @param {number} at */
export function ago(at) {
  const passed = Date.now() / 1000 - at;
  if (passed < 60) return "now";
  if (passed < 3600) return `${Math.floor(passed / 60)} min`;
  if (passed < 86400) return `${Math.floor(passed / 3600)} h`;
  return passed < 86400 * 14 ? `${Math.floor(passed / 86400)} d` : day(at);
}

/**
 * JSON with indentation if the text is JSON, else the text.
 * @param {string} text
 */
export const prettyJson = (text) => indentJson(text) ?? text;

/**
 * JSON text in which hidden characters are escaped: the same value, all of it visible.
 * @param {string} text
 */
export const visibleJson = (text) => prettyJson(text).replace(UNCLEAR, (found) => [...Array(found.length).keys()].map((at) => `\\u${found.charCodeAt(at).toString(16).padStart(4, "0")}`).join(""));

/** @type {(text: string, length: number) => string} */
export const shorten = (text, length) => (text.length > length ? `${text.slice(0, length)}…` : text);

/** @type {[keyof Usage, string][]} */
const USAGE = [["cache_read", "cached"], ["cache_write", "written"], ["input", "fresh"], ["output", "out"]];

/**
 * Tokens of a call by their cache state.
 * @param {Usage} usage
 */
export function usageBar(usage) {
  const total = USAGE.reduce((sum, [field]) => sum + usage[field], 0) || 1;
  return h("span.usage-bar", {}, USAGE.map(([field, name]) => usage[field] > 0 && h(`i.${name}`, { style: { width: `${(100 * usage[field]) / total}%` } })));
}

/**
 * Colours with their meaning.
 * @param {string[][]} rows
 */
export const legend = (rows) => rows.map(([name, label]) => h("span", {}, h(`i.swatch.${name}`), label));

/** @param {Usage} usage */
export function describeUsage(usage) {
  const words = [
    usage.cache_read && `${count(usage.cache_read)} from the cache`,
    usage.cache_write && `${count(usage.cache_write)} written to the cache`,
    usage.input && `${count(usage.input)} uncached`,
    `${count(usage.output)} output`,
    usage.reasoning && `${count(usage.reasoning)} of it reasoning`,
  ];
  return words.filter(Boolean).join(", ");
}
