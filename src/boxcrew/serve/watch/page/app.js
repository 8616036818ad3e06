// The page: asks the server again and again, and shows what has changed.

import { getJson } from "./api.js";
import { Chart } from "./chart.js";
import { Curves, chartNames, isShownAtFirst, smoothed } from "./curves.js";
import { showHead, showSections } from "./details.js";
import { el, refresh, remembered } from "./dom.js";
import { LIVE, showList } from "./list.js";
import { chooseLanguage, duration, number, otherLanguage, t } from "./text.js";

const EVERY = 1500; // milliseconds
const EVERY_HIDDEN = 20000;
const MOST = 8; // runs that are drawn at once
const byId = (id) => document.getElementById(id);

const page = {
  runs: [],
  chosen: remembered.get("chosen", null), // keys of the runs whose curves are drawn
  focus: remembered.get("focus", null), // key of the run that is shown in detail
  details: {},
  detailsOf: null, // key and time of the details
  curves: new Map(),
  charts: new Map(),
  shown: remembered.get("charts", {}), // charts that the reader has switched on or off
  language: remembered.get("language", null),
  theme: remembered.get("theme", "auto"),
  axis: remembered.get("axis", "step"),
  smoothing: remembered.get("smoothing", 0.6),
  log: remembered.get("log", false),
};

async function update() {
  page.runs = withDepth((await getJson("/api/runs")).runs);
  chooseAtFirst();
  const drawn = page.runs.filter((run) => page.chosen.includes(run.key));
  await Promise.all(drawn.map((run) => curvesOf(run.key).update(run)));
  const run = focused();
  if (run) await updateDetails(run);
  show();
}

async function updateDetails(run) {
  if (run.kind !== "comparison" && !page.chosen.includes(run.key)) await curvesOf(run.key).update(run);
  const mark = JSON.stringify([run.key, run.updated, run.state, run.parts_finished]);
  if (page.detailsOf === mark) return;
  const details = await getJson("/api/run", { run: run.key });
  if (page.focus === run.key) [page.details, page.detailsOf] = [details, mark];
}

function withDepth(runs) {
  const depth = new Map();
  for (const run of runs) depth.set(run.key, (run.depth = run.parent === null ? 0 : (depth.get(run.parent) ?? 0) + 1));
  const newest = new Map();
  for (const run of runs) newest.set(top(runs, run), Math.max(newest.get(top(runs, run)) ?? 0, run.updated ?? 0, LIVE.has(run.state) ? 1e12 : 0));
  return runs
    .map((run, i) => [run, i])
    .sort(([a, i], [b, j]) => newest.get(top(runs, b)) - newest.get(top(runs, a)) || i - j)
    .map(([run]) => run);
}

function top(runs, run) {
  const parents = new Map(runs.map((each) => [each.key, each.parent]));
  let key = run.key;
  while (parents.get(key)) key = parents.get(key);
  return key;
}

const focused = () => page.runs.find((run) => run.key === page.focus) ?? null;
const isLeaf = (run) => run.kind === "run" || run.kind === "stage";

// At first the runs that are going on are drawn, or else the newest one.
function chooseAtFirst() {
  const keys = new Set(page.runs.map((run) => run.key));
  const leaves = page.runs.filter((run) => isLeaf(run) && run.state !== "waiting");
  const kept = (page.chosen ?? []).filter((key) => keys.has(key));
  if (!kept.length && (page.chosen === null || page.chosen.length)) {
    const live = leaves.filter((run) => LIVE.has(run.state));
    kept.push(...(live.length ? live : leaves.slice(0, 1)).slice(0, MOST).map((run) => run.key));
  }
  page.chosen = kept;
  if (!keys.has(page.focus)) page.focus = (leaves[0] ?? page.runs[0])?.key ?? null;
}

function curvesOf(key) {
  if (!page.curves.has(key)) page.curves.set(key, new Curves());
  return page.curves.get(key);
}

function show() {
  const { runs, chosen, focus, language } = page;
  const wanted = byId("filter").value.trim().toLowerCase();
  byId("filter").hidden = runs.length < 12;
  const listed = runs.filter((run) => run.key.toLowerCase().includes(wanted));
  showList(byId("run-list"), { runs: listed, chosen, focus, language }, { onChoose: choose, onFocus: focusOn });
  byId("no-runs").hidden = runs.length > 0;
  showCharts();
  const run = focused();
  byId("head").hidden = byId("sections").hidden = !run;
  if (!run) return;
  showHead(byId("head"), run, language);
  const share = run.fraction !== null && LIVE.has(run.state) ? `${Math.round(run.fraction * 100)} % · ` : "";
  document.title = `${share}${run.name} · boxcrew watch`;
  if (page.details.key !== run.key) return;
  showSections(byId("sections"), {
    run,
    language,
    details: page.details,
    parts: runs.filter((each) => each.parent === run.key),
    byClass: curvesOf(run.key).classes(),
    onFocus: focusOn,
    onChooseAll: () => chooseAll(run),
  });
}

function choose(key, isOn) {
  const others = page.chosen.filter((each) => each !== key);
  if (isOn && others.length >= MOST) announce(t("many", MOST));
  page.chosen = isOn && others.length < MOST ? [...others, key] : others;
  remembered.set("chosen", page.chosen);
  soon();
}

function partsOf(run) {
  const inside = page.runs.filter((each) => isLeaf(each) && each.key.startsWith(`${run.key}/`) && each.state !== "waiting");
  return inside.slice(0, MOST).map((each) => each.key);
}

function chooseAll(run) {
  page.chosen = partsOf(run);
  remembered.set("chosen", page.chosen);
  soon();
}

function focusOn(key) {
  const before = page.focus;
  page.focus = key;
  remembered.set("focus", key);
  const run = focused();
  // Whoever looks at one run alone sees its curves, too, or those of its parts.
  const isAlone = page.chosen.length === 0 || (page.chosen.length === 1 && page.chosen[0] === before);
  if (run && isAlone) page.chosen = isLeaf(run) ? [key] : partsOf(run);
  soon();
  if (matchMedia("(max-width: 860px)").matches) byId("main").scrollIntoView(); // which is below the list there
}

const axes = { step: number, epoch: number, time: duration };

function showCharts() {
  const runs = page.chosen.map((key) => [key, page.curves.get(key)]).filter(([, curves]) => curves);
  const names = chartNames(runs.map(([, curves]) => curves));
  showChoices(names);
  const shown = names.filter((name) => page.shown[name] ?? isShownAtFirst(name));
  byId("no-curves").hidden = shown.length > 0;
  for (const name of shown) if (!page.charts.has(name)) page.charts.set(name, new Chart(() => t("chart_keys")));
  refresh(byId("charts"), shown, () => shown.map((name) => page.charts.get(name).element));
  for (const name of shown) drawChart(name, runs);
}

function drawChart(name, runs) {
  const series = runs.map(([key, curves], place) => {
    const points = curves.points(name, page.axis);
    const isNoisy = curves.training.names.includes(name) && name !== "rate";
    const score = page.runs.find((run) => run.key === key)?.score;
    const best = score?.name === name && page.axis === "step" ? score.step : null;
    return { label: key, place, points, line: isNoisy ? smoothed(points, page.smoothing) : null, best };
  });
  const chart = page.charts.get(name);
  const end = Math.max(...runs.map(([, curves]) => curves.end(page.axis)));
  const state = JSON.stringify([page.language, page.axis, page.log, page.smoothing, end, runs.map(([key]) => key), series.map(({ points, best }) => [points.length, points.at(-1), best])]);
  if (chart.state === state) return;
  chart.state = state;
  const log = page.log && (name.startsWith("loss") || ["val_loss", "perplexity", "frechet", "rate", "gradient_norm"].includes(name));
  chart.draw({ title: titleOf(name), axis: t(page.axis), end, series, log, formatX: axes[page.axis], formatY: number });
}

const titleOf = (name) => (name.startsWith("loss/") ? `${t("loss")}: ${name.slice(5)}` : t(name));

function showChoices(names) {
  refresh(byId("choices"), [page.language, names, page.shown], () =>
    names.map((name) => {
      const box = el("input", {
        type: "checkbox",
        "data-focus": name,
        onchange: () => {
          page.shown = { ...page.shown, [name]: box.checked };
          remembered.set("charts", page.shown);
          show();
        },
      });
      box.checked = page.shown[name] ?? isShownAtFirst(name);
      return el("label", {}, box, ` ${titleOf(name)}`);
    }),
  );
}

function announce(text, isBad = false) {
  if (byId("connection").textContent !== text) byId("connection").textContent = text; // said aloud each time
  byId("connection").classList.toggle("bad", isBad);
}

// One question at a time; the next comes after a while, or at once if the reader has chosen something.
let timer = null;
let isAsking = false;
let isWanted = false;

function soon() {
  show();
  isWanted = true;
  if (!isAsking) ask();
}

async function ask() {
  clearTimeout(timer);
  isAsking = true;
  isWanted = false;
  let wait = document.hidden ? EVERY_HIDDEN : EVERY;
  try {
    await update();
    announce(t("live"));
    if (page.chosen.some((key) => page.curves.get(key)?.isBehind)) wait = 0;
  } catch (error) {
    // A run may be gone between two questions; anything else is a server that does not answer.
    if (error.status !== 404) announce(t("offline"), true);
    if (!(error instanceof TypeError || error.name === "TimeoutError" || error.status)) console.error(error);
  }
  isAsking = false;
  timer = setTimeout(ask, isWanted ? 0 : wait);
}

function setUp() {
  chooseLanguage(page.language);
  byId("language").textContent = t("language");
  byId("language").lang = otherLanguage() === "zh" ? "zh-CN" : "en";
  byId("theme").textContent = `${t("theme")}: ${t(page.theme)}`;
  byId("filter").placeholder = t("filter");
  byId("filter").setAttribute("aria-label", t("filter"));
  document.documentElement.dataset.theme = page.theme;
  byId("axis").replaceChildren(...Object.keys(axes).map((name) => el("option", { value: name, selected: name === page.axis }, t(name))));
}

function listen() {
  const change = (id, event, act) => byId(id).addEventListener(event, act);
  const keep = (name, value) => {
    page[name] = value;
    remembered.set(name, value);
    setUp();
    show();
  };
  change("language", "click", () => keep("language", otherLanguage()));
  change("theme", "click", () => keep("theme", { auto: "light", light: "dark", dark: "auto" }[page.theme] ?? "auto"));
  change("axis", "change", (event) => keep("axis", event.target.value));
  change("smoothing", "input", (event) => keep("smoothing", Number(event.target.value)));
  change("log", "change", (event) => keep("log", event.target.checked));
  change("filter", "input", show);
  change("large", "click", (event) => event.target === event.currentTarget && event.currentTarget.close());
  // The list of charts closes as menus do.
  document.addEventListener("click", (event) => byId("picker").contains(event.target) || (byId("picker").open = false));
  change("picker", "keydown", (event) => {
    if (event.key !== "Escape") return;
    byId("picker").open = false;
    byId("picker").querySelector("summary").focus();
  });
  document.addEventListener("visibilitychange", () => !document.hidden && soon());
  byId("smoothing").value = page.smoothing;
  byId("log").checked = page.log;
}

setUp();
listen();
ask();
