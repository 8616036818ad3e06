/**
 * The texts of the page in English and Chinese.
 *
 * `text(key, values)` returns one in the chosen language; `localize(root)` writes those that the markup
 * names: `data-text` for the content, `data-label` for `aria-label`, `data-title` for `title`.
 */

import { recall, remember } from "./memory.js";
import { CHINESE } from "./texts_zh.js";

const ENGLISH = {
  tagline: "object detection",
  skip: "Skip to the result",
  language: "Language",
  theme: "Colors",
  "theme.auto": "Auto",
  "theme.light": "Light",
  "theme.dark": "Dark",
  api: "API",
  "drop.title": "Drop a photo here",
  "drop.more": "or paste it, choose it, or use your camera",
  "drop.anywhere": "or drop and paste more anywhere",
  "drop.release": "Release to detect objects",
  choose: "Choose photos",
  camera: "Camera",
  add: "Add photos",
  samples: "No photo at hand? Try one of these",
  "samples.short": "Samples",
  sample: "Sample {number}",
  compare: "Compare two models",
  model: "Model",
  input: "Input",
  weights: "Weights",
  engine: "Engine",
  speed: "Time of this photo",
  "speed.trip": "{trip} ms including the network",
  "speed.decode": "decode",
  "speed.queue": "wait",
  "speed.network": "network",
  "speed.post": "boxes",
  threshold: "Lowest score",
  "threshold.suggested": "Suggested: {value}",
  "threshold.hint": "Moving it asks nothing of the service.",
  classes: "Classes",
  all: "All",
  none: "None",
  "class.count": "{name}, {count} shown",
  objects: "Objects",
  "objects.none": "Nothing here with this score or more.",
  "objects.filtered": "{shown} of {all} candidates shown",
  "column.class": "Class",
  "column.score": "Score",
  "column.box": "Box (pixels)",
  "column.box.title": "Left, top, width, height",
  download: "Download what is shown",
  "download.json": "JSON",
  "download.coco": "COCO",
  "download.yolo": "YOLO",
  "download.picture": "Picture",
  history: "Photos of this tab",
  "history.hint": "They are forgotten when you close it.",
  "download.large": "This photo is too large for a picture by your browser.",
  "download.large.advice": "Ask the service for it: POST v1/detect?format=image",
  clear: "Forget all",
  remove: "Forget {name}",
  "photo.done": "{name}: {count} objects",
  "photo.one": "{name}: 1 object",
  "photo.waiting": "{name}: waiting",
  "photo.failed": "{name}: {error}",
  "canvas.label": "{name} with {count} boxes; a table lists them",
  working: "Looking for objects…",
  retry: "The service is busy. Next try in {seconds} s.",
  again: "Try again",
  request: "Request {id}",
  announce: "{name}: {count} objects. {classes}",
  "announce.none": "{name}: no object with this score or more.",
  hidden: "Your browser cannot show {kind} files. The boxes are drawn on an empty sheet; the list is complete.",
  turned: "Your browser turns this photo otherwise than the service. The boxes are drawn on an empty sheet; the list is complete.",
  "camera.choose": "Which camera",
  "camera.number": "Camera {number}",
  "camera.snap": "Take a photo",
  "camera.live": "Boxes on the live picture",
  "camera.stop": "Close the camera",
  "camera.frame": "Camera",
  "camera.insecure": "The browser allows a camera only on this machine or over https.",
  "camera.insecure.advice": "Open the page by https, or choose a photo instead.",
  "camera.denied": "The browser did not allow the camera.",
  "camera.denied.advice": "Allow it in the address bar, or choose a photo instead.",
  "camera.missing": "There is no camera that can be used.",
  "camera.missing.advice": "Another program may be using it. You can choose a photo instead.",
  "camera.slow": "{rate} pictures a second",
  "token.title": "This service asks for a token",
  "token.text": "The person who started it has it. It is kept until you close this tab.",
  "token.label": "Token",
  "token.wrong": "That token was not accepted.",
  "token.send": "Continue",
  "token.cancel": "Cancel",
  "error.title": "This did not work",
  "error.network": "The service does not answer.",
  "error.network.advice": "It may have been stopped, or the network is down. Try again in a moment.",
  "error.kind": "{name} is not a photo.",
  "error.kind.advice": "Choose a JPEG, PNG, WebP, HEIC or TIFF file.",
  "error.video": "{name} is a video; this page looks at photos.",
  "error.video.advice": "For videos there is: boxcrew predict run=… source=VIDEO",
  "error.empty": "{name} is empty.",
  "error.empty.advice": "Choose another file; this one may not have been copied completely.",
  "error.answer": "The answer of the service cannot be read.",
  "error.answer.advice": "Reload the page; the service may have been updated.",
  "error.token": "The service needs a token.",
  "error.token.advice": "Try again and enter it.",
  "error.several": "{count} files were left out.",
  close: "Close",
  privacy: "Photos go to this service and nowhere else; it does not keep them.",
  noscript: "This page needs JavaScript.",
};

/** @type {Record<string, Record<string, string>>} */
export const LANGUAGES = { en: ENGLISH, zh: CHINESE };

let language = firstLanguage();

/** Returns the code of the chosen language. */
export function currentLanguage() {
  return language;
}

/**
 * Chooses the language of all texts, and remembers it.
 * @param {string} code
 */
export function chooseLanguage(code) {
  language = code in LANGUAGES ? code : "en";
  remember("language", language);
}

/**
 * Returns a text in the chosen language, with `{name}` replaced by the value of that name.
 * @param {string} key
 * @param {Record<string, string | number>} [values]
 * @returns {string}
 */
export function text(key, values = {}) {
  const pattern = LANGUAGES[language][key] ?? LANGUAGES.en[key] ?? key;
  return pattern.replace(/\{(\w+)\}/g, (whole, name) => String(values[name] ?? whole));
}

/**
 * Writes the texts that the markup names, in `root` and below.
 * @param {ParentNode} root
 */
export function localize(root) {
  for (const element of root.querySelectorAll("[data-text]")) {
    element.textContent = text(/** @type {HTMLElement} */ (element).dataset.text ?? "");
  }
  for (const element of root.querySelectorAll("[data-label]")) {
    element.setAttribute("aria-label", text(/** @type {HTMLElement} */ (element).dataset.label ?? ""));
  }
  for (const element of root.querySelectorAll("[data-title]")) {
    element.setAttribute("title", text(/** @type {HTMLElement} */ (element).dataset.title ?? ""));
  }
}

function firstLanguage() {
  const remembered = recall("language");
  if (remembered !== null && remembered in LANGUAGES) return remembered;
  const known = navigator.languages.map((name) => name.slice(0, 2).toLowerCase());
  return known.find((name) => name in LANGUAGES) ?? "en";
}
