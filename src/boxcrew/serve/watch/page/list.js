// The list of runs: which are drawn, and which one is shown below.

import { el, refresh } from "./dom.js";
import { duration, number, t } from "./text.js";

export const LIVE = new Set(["running", "preparing"]);

export function badge(state) {
  return el("span", { class: `badge ${state}` }, t(state));
}

export function bar(run) {
  const share = Math.min(1, Math.max(0, run.fraction ?? 0));
  const inner = el("i");
  inner.style.width = `${(share * 100).toFixed(1)}%`;
  return el(
    "div",
    { class: "bar", role: "progressbar", "aria-valuemin": 0, "aria-valuemax": 100, "aria-valuenow": Math.round(share * 100), "aria-label": run.name },
    inner,
  );
}

export function score(run) {
  return run.score ? `${t(run.score.name)} ${number(run.score.value)}` : "";
}

export function showList(list, { runs, chosen, focus, language }, { onChoose, onFocus }) {
  const state = [language, focus, [...chosen], runs.map((run) => [run.key, run.state, run.fraction, run.score, run.parts_finished, run.task])];
  refresh(list, state, () => runs.map((run) => item(run, chosen, focus, onChoose, onFocus)));
}

function item(run, chosen, focus, onChoose, onFocus) {
  const place = chosen.indexOf(run.key);
  const isWhole = run.kind === "staged" || run.kind === "comparison";
  const box = isWhole
    ? null
    : el("input", {
        type: "checkbox",
        "data-focus": `box ${run.key}`,
        "aria-label": t("overlay", run.key),
        class: place < 0 ? "" : `series-${place}`,
        onchange: (event) => onChoose(run.key, event.target.checked),
      });
  if (box) box.checked = place >= 0;
  const parts = isWhole ? t("part_of", run.parts_finished ?? 0, run.parts ?? 0) : "";
  const facts = [parts || score(run), run.state === "running" && run.remaining ? t("remaining", duration(run.remaining)) : ""];
  return el(
    "li",
    { class: `${run.key === focus ? "focus" : ""} depth-${Math.min(2, run.depth)}` },
    box,
    el(
      "button",
      { type: "button", "data-focus": run.key, "aria-current": run.key === focus ? "true" : null, onclick: () => onFocus(run.key) },
      el("span", { class: "name" }, run.name),
      badge(run.state),
      el("small", {}, [run.task ?? "", ...facts].filter(Boolean).join(" · ")),
      LIVE.has(run.state) && run.fraction !== null ? bar(run) : null,
    ),
  );
}
