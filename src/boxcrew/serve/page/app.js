/** The page: puts its parts together. */

import { Camera } from "./camera.js";
import { find } from "./dom.js";
import { Samples, takeFiles } from "./inputs.js";
import { Live } from "./live.js";
import { recall, remember } from "./memory.js";
import { refusal } from "./photo.js";
import { fetchModels, onTokenNeeded, ServiceError } from "./service.js";
import { chooseLanguage, currentLanguage, localize, text } from "./texts.js";
import { tokenDialog } from "./token.js";
import { Workspace } from "./workspace.js";

const samples = new Samples(find(document, "#samples"), (photo, name) => void take(asFile(photo, name)));
const workspace = new Workspace({
  announce,
  outdated: () => void loadModels(),
  changed: showPlace,
  picked: () => live.close(),
  failed: showProblem,
});
const live = new Live({
  panes: () => workspace.panes,
  taken: (photo) => void take(asFile(photo, `camera-${timeStamp()}.jpg`)),
  changed: () => {
    workspace.paused = live.on;
    showPlace();
    workspace.showAgain();
  },
  failed: showProblem,
});

/** @type {Promise<boolean> | null} */
let loading = null;

/** Loads the models unless that is going on; returns whether there are any. */
function loadModels() {
  loading ??= readModels().finally(() => (loading = null));
  return loading;
}

async function readModels() {
  try {
    const models = await fetchModels();
    workspace.setModels(models);
    find(document, "#compare").hidden = models.length < 2;
    document.title = `${models.map(({ name }) => name).join(", ")} – boxcrew`;
    showSamples();
    workspace.refresh();
    return models.length > 0;
  } catch (error) {
    showProblem(asProblem(error));
    return false;
  }
}

/**
 * Takes files in: shows what is wrong with some, and looks for objects in the others.
 * @param {...File} files
 */
async function take(...files) {
  const refused = files.flatMap((file) => refusal(file) ?? []);
  const accepted = files.filter((file) => refusal(file) === null);
  if (refused.length > 0) showProblem(refused[0], refused.length);
  else hideProblem();
  if (accepted.length === 0) return;
  if (workspace.panes.length === 0 && !(await loadModels())) return;
  if (live.on) live.close();
  await workspace.add(accepted);
}

/** Shows the panes when there is something in them, and the place to drop photos large when there is not. */
function showPlace() {
  const empty = workspace.current === null && !live.on;
  document.body.dataset.place = live.on ? "camera" : empty ? "empty" : "photo";
  find(document, "#panes").hidden = empty;
  find(document, "#live").hidden = !live.on;
  showSamples();
}

/** Shows the samples of the first pane's model; where it has none, those of the model before. */
function showSamples() {
  const model = workspace.panes[0]?.model;
  if (model !== undefined && model.samples > 0) void samples.show(model);
}

/**
 * @param {ServiceError} error
 * @param {number} [count] of files, if several were refused
 */
function showProblem(error, count = 1) {
  const problem = find(document, "#problem");
  problem.hidden = false;
  const several = count > 1 ? `${text("error.several", { count })} ` : "";
  find(problem, "strong").textContent = several + error.message;
  find(problem, "span").textContent = error.advice;
}

function hideProblem() {
  find(document, "#problem").hidden = true;
}

/** @param {unknown} error */
function asProblem(error) {
  return error instanceof ServiceError ? error : new ServiceError({ message: String(error) });
}

let announcement = 0;

/**
 * Tells screen readers, once nothing has changed for a moment.
 * @param {string} line
 */
function announce(line) {
  window.clearTimeout(announcement);
  announcement = window.setTimeout(() => (find(document, "#status").textContent = line), 300);
}

/**
 * @param {Blob} photo
 * @param {string} name
 */
function asFile(photo, name) {
  return new File([photo], name, { type: photo.type });
}

function timeStamp() {
  return new Date().toISOString().slice(0, 19).replaceAll(":", "-");
}

function showTexts() {
  document.documentElement.lang = currentLanguage() === "zh" ? "zh-CN" : "en";
  localize(document);
  samples.localize();
  workspace.refresh();
}

function connectSettings() {
  const language = find(document, "#language");
  language.value = currentLanguage();
  language.addEventListener("change", () => {
    chooseLanguage(language.value);
    showTexts();
  });
  const theme = find(document, "#theme");
  theme.value = recall("theme") ?? "auto";
  theme.addEventListener("change", () => {
    remember("theme", theme.value);
    document.documentElement.dataset.theme = theme.value;
    workspace.refresh();
  });
}

function connectButtons() {
  find(document, "#camera").addEventListener("click", async () => {
    hideProblem();
    if (!Camera.allowed && navigator.maxTouchPoints > 0) find(document, "#capture").click();
    else if (workspace.panes.length > 0 || (await loadModels())) await live.open();
  });
  const compare = find(document, "#compare");
  compare.addEventListener("click", () => {
    const two = compare.getAttribute("aria-pressed") !== "true";
    compare.setAttribute("aria-pressed", String(two));
    workspace.compare(two);
  });
  find(document, "#problem button").addEventListener("click", hideProblem);
}

onTokenNeeded(tokenDialog());
connectSettings();
connectButtons();
takeFiles((files) => void take(...files));
showTexts();
showPlace();
await loadModels();
