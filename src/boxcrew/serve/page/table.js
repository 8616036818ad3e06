/** The table of objects: what the painted boxes say, for eyes, keyboard and screen reader. */

import { children, make } from "./dom.js";
import { text } from "./texts.js";

/** @typedef {import("./types.js").Detection} Detection */

const STEPS = { ArrowDown: 1, ArrowUp: -1, PageDown: 10, PageUp: -10, Home: -Infinity, End: Infinity };

export class ObjectTable {
  /**
   * @param {HTMLTableSectionElement} body
   * @param {(number: number) => void} highlight called with the number of the object that is looked at, or -1
   */
  constructor(body, highlight) {
    this.body = body;
    body.addEventListener("pointerover", (event) => highlight(this.#rowOf(event)));
    body.addEventListener("pointerleave", () => highlight(-1));
    body.addEventListener("focusin", (event) => highlight(this.#rowOf(event)));
    body.addEventListener("focusout", () => highlight(-1));
    body.addEventListener("keydown", (event) => this.#move(event));
  }

  /**
   * Shows detections, one in each row.
   * @param {Detection[]} detections
   * @param {string[]} colors of the classes
   */
  show(detections, colors) {
    const rows = children(this.body, detections.length, newRow);
    rows.forEach((row, number) => {
      const { name, score, label, box } = detections[number];
      const [left, top, right, bottom] = box;
      const [named, scored, boxed] = row.children;
      row.tabIndex = number === 0 ? 0 : -1; // one stop for Tab; the arrows go from row to row
      named.firstElementChild.style.backgroundColor = colors[label];
      named.lastElementChild.textContent = name;
      named.title = name;
      scored.firstElementChild.textContent = score.toFixed(2);
      scored.lastElementChild.firstElementChild.style.width = `${100 * score}%`;
      boxed.textContent = [left, top, right - left, bottom - top].map(Math.round).join(", ");
    });
    this.body.parentElement?.setAttribute("aria-label", text("objects"));
  }

  /**
   * Marks the row of the box that is pointed at.
   * @param {number} number
   */
  highlight(number) {
    [...this.body.rows].forEach((row, index) => row.classList.toggle("highlighted", index === number));
    const row = this.body.rows[number];
    const scroll = this.body.closest(".scroll");
    if (row === undefined || scroll === null || row.matches(":hover, :focus")) return;
    // Only the table scrolls to it, never the page under the pointer.
    const [above, below] = [row.offsetTop - scroll.scrollTop, row.offsetTop + row.offsetHeight - scroll.scrollTop];
    if (above < 0 || below > scroll.clientHeight) scroll.scrollTop = row.offsetTop - scroll.clientHeight / 2;
  }

  /** @param {Event} event */
  #rowOf(event) {
    const row = /** @type {HTMLElement} */ (event.target).closest("tr");
    return row === null ? -1 : [...this.body.rows].indexOf(row);
  }

  /** @param {KeyboardEvent} event */
  #move(event) {
    const step = STEPS[/** @type {keyof typeof STEPS} */ (event.key)];
    const number = this.#rowOf(event);
    if (step === undefined || number < 0) return;
    event.preventDefault();
    const next = Math.max(0, Math.min(this.body.rows.length - 1, number + step));
    this.body.rows[number].tabIndex = -1;
    this.body.rows[next].tabIndex = 0;
    this.body.rows[next].focus();
  }
}

function newRow() {
  const bar = make("span", { class: "bar" }, make("i"));
  const named = make("td", { class: "named" }, make("i", { class: "dot" }), make("span"));
  const scored = make("td", { class: "score" }, make("span"), bar);
  return make("tr", {}, named, scored, make("td", { class: "number" }));
}
