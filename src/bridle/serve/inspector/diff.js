// Differences between texts, line by line.

import { h, button } from "./dom.js";

const LINES_MAX = 1500;
const SHOWN_MAX = 400;

/**
 * Lines with their kind: " ", "-" or "+".
 * @param {string} before
 * @param {string} after
 * @returns {DiffLine[]}
 */
export function diffLines(before, after) {
  const a = before.split("\n");
  const b = after.split("\n");
  let start = 0;
  while (start < a.length && start < b.length && a[start] === b[start]) start += 1;
  let end = 0;
  while (end < a.length - start && end < b.length - start && a[a.length - 1 - end] === b[b.length - 1 - end]) end += 1;
  const left = a.slice(start, a.length - end);
  const right = b.slice(start, b.length - end);
  /** @type {(kind: string, lines: string[]) => DiffLine[]} */
  const mark = (kind, lines) => lines.map((line) => [kind, line]);
  const middle = left.length > LINES_MAX || right.length > LINES_MAX ? [...mark("-", left), ...mark("+", right)] : align(left, right);
  return [...mark(" ", a.slice(0, start)), ...middle, ...mark(" ", a.slice(a.length - end))];
}

/**
 * The longest common subsequence of two lists of lines.
 * @param {string[]} a
 * @param {string[]} b
 */
function align(a, b) {
  const width = b.length + 1;
  const lengths = new Uint16Array((a.length + 1) * width);
  for (let i = a.length - 1; i >= 0; i--) {
    for (let j = b.length - 1; j >= 0; j--) {
      lengths[i * width + j] = a[i] === b[j] ? lengths[(i + 1) * width + j + 1] + 1 : Math.max(lengths[(i + 1) * width + j], lengths[i * width + j + 1]);
    }
  }
  /** @type {DiffLine[]} */
  const found = [];
  let i = 0;
  let j = 0;
  while (i < a.length || j < b.length) {
    if (i < a.length && j < b.length && a[i] === b[j]) {
      found.push([" ", a[i++]]);
      j += 1;
    } else if (j >= b.length || (i < a.length && lengths[(i + 1) * width + j] >= lengths[i * width + j + 1])) found.push(["-", a[i++]]);
    else found.push(["+", b[j++]]);
  }
  return found;
}

/** @type {Record<string, string>} */
const KINDS = { "-": "removed", "+": "added", " ": "same", "@": "place" };

/**
 * Lines of a difference; far from a change, equal lines are left out.
 * @param {DiffLine[]} lines
 */
export function showLines(lines, { isWhole = false, context = 3 } = {}) {
  const near = new Set();
  lines.forEach(([kind], at) => {
    const reach = isWhole ? 0 : context;
    if (isWhole || kind !== " ") for (let each = at - reach; each <= at + reach; each++) near.add(each);
  });
  /** @type {DiffLine[]} */
  const rows = [];
  let skipped = 0;
  lines.forEach(([kind, text], at) => {
    if (!near.has(at)) {
      skipped += 1;
      return;
    }
    if (skipped) rows.push(["@", `… ${skipped} equal line${skipped === 1 ? "" : "s"}`]);
    skipped = 0;
    rows.push([kind, text]);
  });
  if (skipped && rows.length) rows.push(["@", `… ${skipped} equal line${skipped === 1 ? "" : "s"}`]);
  const block = h(".diff");
  const add = (/** @type {number} */ from) => {
    for (const [kind, text] of rows.slice(from, from + SHOWN_MAX)) block.append(h(`.line.${KINDS[kind]}`, {}, h("i", {}, kind === "@" ? "" : kind), h("span", {}, text || " ")));
    if (rows.length > from + SHOWN_MAX) {
      const showMore = () => {
        more.remove();
        add(from + SHOWN_MAX);
      };
      const more = button(`Show ${rows.length - from - SHOWN_MAX} more lines`, showMore, { class: "link more" });
      block.append(more);
    }
  };
  add(0);
  return rows.length ? block : h("p.muted", {}, "No difference.");
}

/** @type {(before: string, after: string) => HTMLElement} */
export const showDiff = (before, after) => showLines(diffLines(before, after));

/**
 * Lines of a unified diff, or null if the text is none.
 * @param {string} text
 */
export function readUnified(text) {
  if (!/^@@ -\d+(,\d+)? \+\d+(,\d+)? @@/m.test(text) && !/^--- .*\n\+\+\+ /m.test(text)) return null;
  return readDiff(text.replace(/\n$/, "").split("\n"));
}

/**
 * Lines of a unified diff with their kind.
 * @param {string[]} lines
 * @returns {DiffLine[]}
 */
export const readDiff = (lines) => lines.map((line) => (/^(@@|---|\+\+\+|diff |index )/.test(line) ? ["@", line] : /^[-+ ]/.test(line) ? [line[0], line.slice(1)] : [" ", line]));
