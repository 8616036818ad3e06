// Everything about one run but its curves.

import { getPicture } from "./api.js";
import { el, refresh } from "./dom.js";
import { LIVE, badge, bar, score } from "./list.js";
import { bytes, clock, duration, number, t } from "./text.js";

const SILENT = 90; // seconds without a written file that are worth a word
const SECTIONS = { parts, plan, advice, pictures, classes, facts, log, settings };

// Shows the head of a run, from its line in the list.
export function showHead(head, run, language) {
  const silent = LIVE.has(run.state) && run.silent > SILENT ? Math.round(run.silent / 10) * 10 : null;
  const now = run.remaining ? Math.round(Date.now() / 60000) : 0;
  refresh(head, [language, run.name, run.state, run.reason, run.step, run.fraction, run.score, silent, run.part, now], () => [
    el("div", { class: "row" }, el("h2", {}, run.key), badge(run.state)),
    LIVE.has(run.state) || (run.fraction !== null && run.fraction < 1) ? bar(run) : null,
    el("p", { class: "facts" }, ...headFacts(run).map((text) => el("span", {}, text))),
    ...sentences(run, silent).map((text) => el("p", { class: "note" }, text)),
  ]);
}

function headFacts(run) {
  const facts = [run.task, run.parts ? t("part_of", run.parts_finished, run.parts) : null];
  if (run.part) facts.push(t("now_at", run.part));
  if (run.fraction !== null && run.state !== "finished") facts.push(`${Math.round(run.fraction * 100)} %`);
  if (run.remaining && run.state === "running") {
    facts.push(t("remaining", duration(run.remaining)), t("ends_at", clock(Date.now() / 1000 + run.remaining)));
  }
  if (run.step !== null) facts.push(`${t("step")} ${number(run.step)}`, `${t("epoch")} ${run.epoch === null ? "–" : Number(run.epoch.toFixed(2))}`);
  if (run.seconds) facts.push(t("trained", duration(run.seconds)));
  if (run.score) facts.push(t("best", score(run)) + (run.score.step === null ? "" : ` ${t("at_step", number(run.score.step))}`));
  if (run.host && run.state === "running") facts.push(t("host", run.host));
  return facts.filter(Boolean);
}

function sentences(run, silent) {
  const found = [`why_${run.state}`].filter((key) => t(key) !== key).map((key) => t(key));
  if (run.reason) found.push(run.reason);
  if (["killed", "interrupted", "failed"].includes(run.state) && run.kind !== "stage") found.push(t("resume", run.folder));
  if (silent !== null) found.push(t("silent", duration(silent)));
  return found;
}

// Shows the sections of a run. `parts` are those of a whole, `byClass` its curves' numbers of classes.
export function showSections(parent, context) {
  for (const [name, make] of Object.entries(SECTIONS)) {
    let section = parent.querySelector(`[data-section="${name}"]`);
    if (!section) parent.append((section = el("section", { "data-section": name })));
    make(section, context);
    section.hidden = !section.childElementCount;
  }
}

const heading = (key, ...values) => el("h2", {}, t(key, ...values));

function table(columns, rows, kind = "") {
  const head = el("tr", {}, ...columns.map((text, i) => el("th", { scope: "col", class: i ? "number" : "" }, text)));
  const body = rows.map((cells) =>
    el("tr", {}, ...cells.map((cell, i) => el(i ? "td" : "th", { class: i ? "number" : "", scope: i ? null : "row" }, cell))),
  );
  return el("div", { class: "scroll", tabindex: "0" }, el("table", { class: kind }, el("thead", {}, head), el("tbody", {}, ...body)));
}

function parts(section, { run, parts: own, language, onFocus, onChooseAll }) {
  refresh(section, [language, run.key, own.map((part) => [part.key, part.state, part.score, part.seconds])], () => {
    if (!own.length) return [];
    const rows = own.map((part) => [
      el("button", { class: "link", type: "button", "data-focus": part.key, onclick: () => onFocus(part.key) }, part.name),
      badge(part.state),
      score(part) || "–",
      duration(part.seconds),
    ]);
    return [
      el("div", { class: "row" }, heading(run.kind === "staged" ? "stages" : "parts"),
        el("button", { type: "button", "data-focus": "all", onclick: onChooseAll }, t("select_parts"))),
      table([t("name"), t("state"), t("score"), t("time")], rows),
    ];
  });
}

const SHOWN = { step_seconds: duration, epoch_seconds: duration, run_seconds: duration, peak_bytes: bytes, images_per_second: number, data_wait: (share) => `${Math.round(share * 100)} %` };

function plan(section, { details, language }) {
  const { plan: lines = [], plan_rows: rows = [], rejected = [], comparison } = details;
  refresh(section, [language, lines, rows, rejected, comparison], () => {
    if (!lines.length) return [];
    return [
      heading("plan"),
      rows.length ? table(["", t("predicted"), t("range"), t("measured"), t("difference")], rows.map(planRow), "ranged") : null,
      el("p", { class: "note" }, lines[0]),
      comparison ? el("p", { class: "quiet" }, `${t("first_steps")}: ${comparison}`) : null,
      foldedList("reasons", lines.slice(1)),
      foldedList("rejected", rejected),
    ];
  });
}

function foldedList(key, lines) {
  if (!lines.length) return null;
  return el("details", {}, el("summary", {}, t(key)), el("ul", {}, ...lines.map((line) => el("li", {}, line))));
}

function planRow({ name, likely, low, high, measured, is_projected: isProjected }) {
  const show = SHOWN[name] ?? number;
  const text = (value) => (value === null ? "–" : show(value));
  let range = "–";
  if (high !== null) range = low === null ? t("at_most", text(high)) : low === high ? text(high) : `${text(low)} – ${text(high)}`;
  const isLimit = name === "run_seconds" && low === high;
  const isOutside = measured !== null && high !== null && !isLimit && measured > high;
  const off = likely && measured !== null ? measured / likely - 1 : null;
  return [
    t(name),
    text(likely),
    range,
    text(measured) + (isProjected && measured !== null ? ` (${t("projected")})` : ""),
    off === null ? "–" : el("span", { class: isOutside ? "bad" : "" }, `${off >= 0 ? "+" : "−"}${Math.round(Math.abs(off) * 100)} %`),
  ];
}

function advice(section, { details, language }) {
  const { advice: own = [], notices = [], damaged = [] } = details;
  const known = own.map((each) => `advice: ${each.finding}`);
  const others = notices.filter((line) => !known.some((start) => line.startsWith(start)));
  refresh(section, [language, own, others, damaged], () => {
    if (!own.length && !others.length && !damaged.length) return [];
    const items = own.map((each) => el("li", {}, el("b", {}, each.finding ?? ""), each.remedy ? `: ${each.remedy}` : ""));
    return [
      heading("advice"),
      el("ul", { class: "advice" }, ...items, ...others.map((line) => el("li", {}, line.replace(/^advice: /, "")))),
      damaged.length ? el("p", { class: "bad" }, t("damaged", damaged.join(", "))) : null,
    ];
  });
}

// The pictures of runs as addresses that an image can show; those of old versions are given back.
const addresses = new Map();

function pictures(section, { run, details, language }) {
  const { pictures: own = [] } = details;
  refresh(section, [language, run.key, own], () =>
    own.length ? [heading("pictures"), el("div", { class: "gallery" }, ...own.map((picture) => thumbnail(run.key, picture)))] : [],
  );
}

function thumbnail(key, picture) {
  const name = t(picture.name) === picture.name ? picture.name.replace(/\.\w+$/, "").replaceAll("_", " ") : t(picture.name);
  const image = el("img", { alt: name });
  const show = () => {
    const dialog = document.getElementById("large");
    dialog.querySelector("img").src = image.src;
    dialog.querySelector("img").alt = name;
    dialog.setAttribute("aria-label", name);
    dialog.showModal();
  };
  address(key, picture).then((url) => (image.src = url), () => image.closest("figure")?.remove());
  return el("figure", {}, el("button", { type: "button", onclick: show }, image), el("figcaption", {}, name));
}

async function address(key, picture) {
  const place = JSON.stringify([key, picture.name]);
  const known = addresses.get(place);
  if (known?.version === picture.version) return known.url;
  const url = await getPicture(key, picture);
  if (known) setTimeout(() => URL.revokeObjectURL(known.url), 5000);
  addresses.set(place, { version: picture.version, url });
  return url;
}

function classes(section, { byClass, language }) {
  refresh(section, [language, byClass], () => {
    if (!byClass.length) return [];
    const [metric, values] = byClass[0];
    const most = Math.max(1e-9, ...values.map(([, value]) => value));
    const sorted = [...values].sort((a, b) => b[1] - a[1]);
    const rows = sorted.map(([name, value]) => {
      const inner = el("i");
      inner.style.width = `${(Math.max(0, value) / most) * 100}%`;
      return el("tr", {}, el("th", { scope: "row" }, name), el("td", { class: "number" }, number(value)), el("td", { class: "wide" }, el("div", { class: "bar" }, inner)));
    });
    return [heading("class_metric", t(metric)), el("div", { class: "scroll short", tabindex: "0" }, el("table", { class: "classes" }, el("tbody", {}, ...rows)))];
  });
}

function facts(section, { details, language }) {
  const { data = {}, machine, scores = {}, milliseconds = {} } = details;
  refresh(section, [language, data, machine, milliseconds, scores.AP], () => {
    const splits = Object.entries(data.splits ?? {}).map(([name, count]) => `${name} ${number(count)}`);
    const ofData = [data.root, data.format, data.classes ? t("num_classes", data.classes) : null, ...splits].filter(Boolean);
    const times = Object.entries(milliseconds).map(([name, value]) => `${name} ${t("milliseconds", number(Number(value.toPrecision(2))))}`);
    const rows = [[t("data"), ofData.join(" · ")], [t("machine"), machine ?? ""], [t("speed"), times.join(" · ")]].filter(([, text]) => text);
    return rows.length ? [el("dl", {}, ...rows.flatMap(([name, text]) => [el("dt", {}, name), el("dd", {}, text)]))] : [];
  });
}

function log(section, { details, language }) {
  const lines = details.log ?? [];
  refresh(section, [language, lines], () => {
    if (!lines.length) return [];
    const text = el("pre", { tabindex: "0" }, ...lines.map((line) => el("span", { class: kindOf(line) }, `${line}\n`)));
    requestAnimationFrame(() => (text.scrollTop = text.scrollHeight));
    return [heading("log"), text];
  });
}

const kindOf = (line) => (/ (warning|failed): /.test(line) ? "bad" : / advice: /.test(line) ? "good" : "");

function settings(section, { details, language }) {
  refresh(section, [language, details.settings], () =>
    details.settings ? [el("details", {}, el("summary", {}, t("settings")), el("pre", { tabindex: "0" }, details.settings))] : [],
  );
}
