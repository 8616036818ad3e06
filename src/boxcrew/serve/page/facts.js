/** What is known of a model, and where the time of an answer went. */

import { children, find, make } from "./dom.js";
import { text } from "./texts.js";

/** @typedef {import("./types.js").Answer} Answer */
/** @typedef {import("./types.js").Model} Model */

const STAGES = ["decode", "queue", "network", "post"];
const DIGITS = 12; // of a digest; enough to tell weights apart

/**
 * Shows which weights these are, and how good.
 * @param {Element} list
 * @param {Model} model
 */
export function showFacts(list, model) {
  /** @type {[string, string, string?][]} */
  const facts = [];
  if (typeof model.AP === "number") facts.push(["AP", model.AP.toFixed(3)]);
  if (typeof model.AP50 === "number") facts.push(["AP50", model.AP50.toFixed(3)]);
  facts.push([text("input"), sizeText(model.size)]);
  facts.push([text("engine"), [model.engine, model.precision].filter(Boolean).join(", ")]);
  facts.push([text("weights"), model.digest.replace(/^sha256:/, "").slice(0, DIGITS), model.digest]);
  const items = children(list, facts.length, () => make("div", {}, make("dt"), make("dd")));
  items.forEach((item, number) => {
    const [name, value, whole = ""] = facts[number];
    const [term, description] = item.children;
    term.textContent = name;
    description.textContent = value;
    description.title = whole;
  });
}

/**
 * Shows where the time of an answer went.
 * @param {Element} card
 * @param {Answer | undefined} answer
 */
export function showSpeed(card, answer) {
  /** @type {HTMLElement} */ (card).hidden = answer === undefined;
  if (answer === undefined) return;
  const stages = STAGES.filter((name) => name in answer.milliseconds);
  const times = stages.map((name) => answer.milliseconds[name]);
  const total = times.reduce((sum, time) => sum + time, 0);
  const parts = children(find(card, ".strip"), stages.length, () => make("i"));
  parts.forEach((part, number) => {
    part.className = stages[number];
    part.style.flexGrow = String(Math.max(times[number], total / 200));
  });
  const items = children(find(card, ".stages"), stages.length, () =>
    make("li", {}, make("i", { class: "dot" }), make("span"), make("b")),
  );
  items.forEach((item, number) => {
    const [dot, name, value] = item.children;
    dot.className = `dot ${stages[number]}`;
    name.textContent = text(`speed.${stages[number]}`);
    value.textContent = `${times[number].toFixed(1)} ms`;
  });
  const values = { total: total.toFixed(0), trip: answer.trip.toFixed(0) };
  find(card, ".trip").textContent = text("speed.trip", values);
}

/** @param {Model["size"]} size */
function sizeText(size) {
  if (Array.isArray(size)) return size.join(" × ");
  return typeof size === "number" ? `${size} × ${size}` : String(size);
}
