/** The notice over a photo: that it is waited for, what went wrong, or what the browser cannot show. */

import { find } from "./dom.js";
import { isSameShape } from "./photo.js";
import { text } from "./texts.js";

/** @typedef {import("./types.js").Answer} Answer */
/** @typedef {import("./pane.js").View} View */

/**
 * Shows the notice that a view needs, if any.
 * @param {HTMLElement} notice
 * @param {View | null} view
 * @param {Answer | undefined} answer
 */
export function showNotice(notice, view, answer) {
  const { kind, title, body = "", more = "" } = view === null ? { kind: "", title: "" } : choose(view, answer);
  notice.hidden = title === "";
  notice.dataset.kind = kind;
  find(notice, ".title").textContent = title;
  find(notice, ".text").textContent = body;
  find(notice, ".more").textContent = more;
  find(notice, ".again").hidden = kind !== "failed";
}

/**
 * @param {View} view
 * @param {Answer | undefined} answer
 * @returns {{kind: string, title: string, body?: string, more?: string}}
 */
function choose({ source, width, height, kind, outcome }, answer) {
  const error = outcome?.error;
  if (error) {
    const more = error.request && text("request", { id: error.request });
    return { kind: "failed", title: error.message, body: error.advice, more };
  }
  if (outcome?.retryAt) {
    const seconds = Math.max(1, Math.ceil((outcome.retryAt - Date.now()) / 1000));
    return { kind: "busy", title: text("retry", { seconds }) };
  }
  if (outcome?.state === "waiting") return { kind: "working", title: text("working") };
  if (answer === undefined) return { kind: "", title: "" };
  if (source === null) return { kind: "hidden", title: text("hidden", { kind }) };
  if (!isSameShape(answer, { width, height })) return { kind: "hidden", title: text("turned") };
  return { kind: "", title: "" };
}
