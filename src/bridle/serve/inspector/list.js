// A list of any length that has DOM nodes only for the rows in view. Rows may have different heights.

import { h } from "./dom.js";

const MARGIN = 500;

/** @template Item */
export class VirtualList {
  /**
   * `render(item, index)` makes a row; `estimate` is the height of a row that was not seen yet.
   * @param {HTMLElement} scroller
   * @param {{ render: (item: Item, index: number) => HTMLElement, estimate: number, onOpen?: (item: Item, node: HTMLElement | undefined) => unknown, label?: string }} options
   */
  constructor(scroller, { render, estimate, onOpen = () => {}, label = "" }) {
    this.scroller = scroller;
    this.render = render;
    this.estimate = estimate;
    this.onOpen = onOpen;
    /** @type {Item[]} */
    this.items = [];
    /** @type {number[]} */
    this.heights = [];
    /** @type {Map<number, HTMLElement>} */
    this.nodes = new Map();
    this.selected = -1;
    this.first = 0;
    this.end = 0;
    this.top = h(".spacer");
    this.body = h(".rows", { role: "list", "aria-label": label });
    this.bottom = h(".spacer");
    this.node = h(".virtual", {}, this.top, this.body, this.bottom);
    this.observer = new ResizeObserver((entries) => this.measure(entries));
    this.onScroll = () => this.draw();
    scroller.addEventListener("scroll", this.onScroll, { passive: true });
    this.resizer = new ResizeObserver(() => this.draw());
    this.resizer.observe(scroller);
    /** @type {(first: number, end: number) => void} */
    this.onRange = () => {};
  }

  dispose() {
    this.scroller.removeEventListener("scroll", this.onScroll);
    this.observer.disconnect();
    this.resizer.disconnect();
  }

  /**
   * Show these items; the rows before the first difference are kept.
   * @param {Item[]} items
   */
  setItems(items) {
    let same = 0;
    while (same < items.length && items[same] === this.items[same]) same += 1;
    for (const [at, node] of this.nodes) {
      if (at < same) continue;
      this.observer.unobserve(node);
      this.nodes.delete(at);
      node.remove();
    }
    this.heights.length = Math.min(same, this.heights.length);
    while (this.heights.length < items.length) this.heights.push(0);
    this.items = items;
    this.selected = Math.min(this.selected, items.length - 1);
    this.draw();
  }

  /**
   * Make the row of an item again.
   * @param {Item} item
   */
  update(item) {
    const at = this.items.lastIndexOf(item);
    const node = this.nodes.get(at);
    if (!node) return;
    const made = this.make(at);
    // Folds that a person opened stay open.
    const open = [...node.querySelectorAll("details")].map((each) => each.open);
    made.querySelectorAll("details").forEach((each, index) => {
      each.open = open[index] ?? each.open;
    });
    node.replaceWith(made);
  }

  /** @param {number} at */
  heightOf(at) {
    return this.heights[at] || this.estimate;
  }

  /** @param {number} at */
  make(at) {
    const old = this.nodes.get(at);
    if (old) this.observer.unobserve(old);
    const node = this.render(this.items[at], at);
    node.dataset.index = `${at}`;
    node.classList.toggle("selected", at === this.selected);
    this.nodes.set(at, node);
    this.observer.observe(node);
    return node;
  }

  /** @param {ResizeObserverEntry[]} entries */
  measure(entries) {
    let changed = false;
    for (const entry of entries) {
      const at = Number(entry.target.getAttribute("data-index"));
      const height = entry.borderBoxSize[0].blockSize;
      if (this.nodes.get(at) !== entry.target || !height || Math.abs(this.heights[at] - height) < 0.5) continue;
      this.heights[at] = height;
      changed = true;
    }
    if (changed) this.draw();
  }

  draw() {
    if (!this.node.isConnected) return;
    const start = this.scroller.scrollTop - this.offset();
    const view = this.scroller.clientHeight;
    let at = 0;
    let above = 0;
    while (at < this.items.length && above + this.heightOf(at) < start - MARGIN) above += this.heightOf(at++);
    const first = at;
    let y = above;
    while (at < this.items.length && y < start + view + MARGIN) y += this.heightOf(at++);
    const end = at;
    let below = 0;
    for (; at < this.items.length; at++) below += this.heightOf(at);
    for (const [index, node] of this.nodes) {
      if (index >= first && index < end) continue;
      this.observer.unobserve(node);
      this.nodes.delete(index);
      node.remove();
    }
    let next = this.body.firstElementChild;
    for (let index = first; index < end; index++) {
      const node = this.nodes.get(index) ?? this.make(index);
      if (node === next) next = next.nextElementSibling;
      else this.body.insertBefore(node, next);
    }
    this.top.style.height = `${above}px`;
    this.bottom.style.height = `${below}px`;
    if (first !== this.first || end !== this.end) {
      [this.first, this.end] = [first, end];
      this.onRange(first, end);
    }
  }

  offset() {
    let y = 0;
    /** @type {Element | null} */
    let node = this.node;
    while (node instanceof HTMLElement && node !== this.scroller) {
      y += node.offsetTop;
      node = node.offsetParent;
    }
    return y;
  }

  get isAtEnd() {
    return this.scroller.scrollTop + this.scroller.clientHeight > this.scroller.scrollHeight - 80;
  }

  scrollToEnd() {
    this.scroller.scrollTop = this.scroller.scrollHeight;
    this.draw();
    this.scroller.scrollTop = this.scroller.scrollHeight;
  }

  /** @param {number} at */
  select(at) {
    if (!this.items.length) return;
    const index = Math.max(0, Math.min(at, this.items.length - 1));
    this.nodes.get(this.selected)?.classList.remove("selected");
    this.selected = index;
    let y = this.offset();
    for (let each = 0; each < index; each++) y += this.heightOf(each);
    const { scrollTop, clientHeight } = this.scroller;
    const height = this.heightOf(index);
    const bar = this.scroller.querySelector(".sticky");
    const sticky = bar instanceof HTMLElement ? bar.offsetHeight : 0;
    if (y - sticky < scrollTop) this.scroller.scrollTop = y - sticky - 8;
    else if (y + height > scrollTop + clientHeight) this.scroller.scrollTop = Math.min(y - sticky - 8, y + height - clientHeight + 24);
    this.draw();
    this.nodes.get(index)?.classList.add("selected");
  }

  /**
   * Keys of a list: j and k move, Enter opens, g and G go to the ends.
   * @param {string} key
   */
  handleKey(key) {
    if (key === "j" || key === "ArrowDown") this.select(this.selected + 1);
    else if (key === "k" || key === "ArrowUp") this.select(this.selected < 0 ? 0 : this.selected - 1);
    else if (key === "g") this.select(0);
    else if (key === "G") this.select(this.items.length - 1);
    else if (key === "Enter" && this.selected >= 0) this.onOpen(this.items[this.selected], this.nodes.get(this.selected));
    else return false;
    return true;
  }
}

/**
 * A table whose rows are few.
 * @param {{ name: string, class?: string }[]} columns
 * @param {{ cells: Child[], props?: Props }[]} rows
 * @param {Props} [props]
 */
export function table(columns, rows, props = {}) {
  const head = h("tr", {}, columns.map((column) => h("th", { class: column.class }, column.name)));
  const body = rows.map((row) => h("tr", row.props, columns.map((column, at) => h("td", { class: column.class, "data-name": column.name }, row.cells[at]))));
  return h("table", props, h("thead", {}, head), h("tbody", {}, body));
}
