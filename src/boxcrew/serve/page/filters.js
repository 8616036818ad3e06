/** The filters of a pane: the lowest score and the classes. They work on the answer that is there already. */

import { children, find, make } from "./dom.js";
import { text } from "./texts.js";

/** @typedef {import("./types.js").Detection} Detection */
/** @typedef {import("./types.js").Model} Model */

const DEFAULT_THRESHOLD = 0.25; // of a model that suggests none
const BARS = 33; // of the small histogram of scores, from 0 to 1
const MANY = 30; // classes: of so many only those are listed that were found in the photo

export class Filters {
  threshold = DEFAULT_THRESHOLD;

  /**
   * @param {HTMLElement} root
   * @param {Set<string>} hidden names of the classes that are not shown; changed in place
   * @param {() => void} changed called after each change by the visitor
   */
  constructor(root, hidden, changed) {
    this.root = root;
    this.hidden = hidden;
    this.changed = changed;
    this.slider = find(root, "input[type=range]");
    this.slider.addEventListener("input", () => this.#choose(Number(this.slider.value)));
    find(root, ".suggested").addEventListener("click", () => this.#choose(this.suggested));
    find(root, ".every").addEventListener("click", () => this.#hide([]));
    find(root, ".no").addEventListener("click", () => this.#hide(this.names));
    /** @type {string[]} the listed classes */
    this.names = [];
    this.suggested = DEFAULT_THRESHOLD;
  }

  /**
   * Begins with what a model suggests.
   * @param {Model} model
   */
  reset(model) {
    const suggested = model.suggested_threshold ?? DEFAULT_THRESHOLD;
    this.suggested = Math.min(0.99, Math.max(0.01, Math.round(suggested * 100) / 100));
    this.threshold = this.suggested;
  }

  /**
   * Returns the detections that pass.
   * @param {Detection[]} detections
   */
  select(detections) {
    return this.#passing(detections).filter(({ name }) => !this.hidden.has(name));
  }

  /**
   * Shows the filters with the numbers of a photo.
   * @param {Model} model
   * @param {Detection[]} detections
   */
  show(model, detections) {
    const value = this.threshold.toFixed(2);
    this.slider.value = value;
    find(this.root, ".value").textContent = value;
    const suggested = find(this.root, ".suggested");
    suggested.textContent = text("threshold.suggested", { value: this.suggested.toFixed(2) });
    suggested.disabled = this.threshold === this.suggested;
    this.#showScores(detections);
    this.#showClasses(model, detections);
  }

  /** @param {Detection[]} detections */
  #passing(detections) {
    return detections.filter(({ score }) => score >= this.threshold);
  }

  /**
   * Shows how many detections have which score, so that one sees where a threshold divides them.
   * @param {Detection[]} detections
   */
  #showScores(detections) {
    const counts = new Array(BARS).fill(0);
    for (const { score } of detections) counts[Math.min(BARS - 1, Math.floor(score * BARS))] += 1;
    const most = Math.log2(1 + Math.max(1, ...counts));
    const bars = children(find(this.root, ".scores"), BARS, () =>
      document.createElementNS("http://www.w3.org/2000/svg", "rect"),
    );
    bars.forEach((bar, number) => {
      const share = Math.log2(1 + counts[number]) / most; // one strong box beside many weak ones stays visible
      const height = 24 * share;
      const place = { x: (number * 100) / BARS + 0.4, y: 24 - height, width: 100 / BARS - 0.8, height };
      for (const [name, size] of Object.entries(place)) bar.setAttribute(name, size.toFixed(2));
      bar.classList.toggle("passes", (number + 1) / BARS > this.threshold);
    });
  }

  /**
   * @param {Model} model
   * @param {Detection[]} detections
   */
  #showClasses(model, detections) {
    const found = new Set(detections.map(({ label }) => label));
    const labels = model.classes.map((_, label) => label);
    const listed = model.classes.length > MANY ? labels.filter((label) => found.has(label)) : labels;
    this.names = listed.map((label) => model.classes[label]);
    const passing = this.#passing(detections);
    const items = children(find(this.root, ".classes"), listed.length, () => this.#classItem());
    items.forEach((item, number) => {
      const name = this.names[number];
      const count = passing.filter(({ label }) => label === listed[number]).length;
      const button = item.firstElementChild;
      button.value = name;
      button.setAttribute("aria-pressed", String(!this.hidden.has(name)));
      button.setAttribute("aria-label", text("class.count", { name, count }));
      button.classList.toggle("absent", count === 0);
      const [dot, label, counter] = button.children;
      dot.style.backgroundColor = model.colors[listed[number]];
      label.textContent = name;
      counter.textContent = String(count);
    });
  }

  #classItem() {
    const parts = [make("i", { class: "dot" }), make("span"), make("b")];
    const button = make("button", { class: "class", type: "button" }, ...parts);
    button.addEventListener("click", () => {
      if (!this.hidden.delete(button.value)) this.hidden.add(button.value);
      this.changed();
    });
    return make("li", {}, button);
  }

  /** @param {number} threshold */
  #choose(threshold) {
    this.threshold = threshold;
    this.slider.setAttribute("aria-valuetext", threshold.toFixed(2));
    this.changed();
  }

  /** @param {string[]} names */
  #hide(names) {
    for (const name of this.names) this.hidden.delete(name);
    for (const name of names) this.hidden.add(name);
    this.changed();
  }
}
