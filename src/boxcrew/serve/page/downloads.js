/** Files of what is shown: JSON, COCO, YOLO, and the picture. */

import { paint } from "./paint.js";
import { canvasBlob } from "./photo.js";

/** @typedef {import("./types.js").Answer} Answer */
/** @typedef {import("./types.js").Detection} Detection */
/** @typedef {import("./types.js").Model} Model */

/**
 * @typedef {object} Shown
 * @property {string} name of the photo
 * @property {string} stem of the photo
 * @property {Answer} answer
 * @property {Model} model
 * @property {number} threshold
 * @property {Detection[]} detections that passed the threshold and the classes
 * @property {CanvasImageSource | null} source the upright photo, if the browser can show it
 */

/** @type {Record<string, (shown: Shown) => Promise<{name: string, blob: Blob}>>} */
const FORMATS = {
  json: async (shown) => file(`${shown.stem}.json`, jsonText(shown), "application/json"),
  coco: async (shown) => file(`${shown.stem}-coco.json`, cocoText(shown), "application/json"),
  yolo: async (shown) => file(`${shown.stem}.txt`, yoloText(shown), "text/plain"),
  picture: async (shown) => ({ name: `${shown.stem}-boxes.jpg`, blob: await picture(shown) }),
};

/**
 * Gives the visitor a file.
 * @param {string} format
 * @param {Shown} shown
 */
export async function download(format, shown) {
  const { name, blob } = await FORMATS[format](shown);
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  // The browser takes the file when the click is handled, which is before this.
  window.setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

/** @param {Shown} shown */
function jsonText({ name, answer, threshold, detections }) {
  const { width, height, model } = answer;
  return `${JSON.stringify({ image: name, width, height, model, threshold, detections }, null, 1)}\n`;
}

/**
 * Returns a COCO file whose annotations have scores.
 * @param {Shown} shown
 */
function cocoText({ name, answer, model, detections }) {
  const annotations = detections.map(({ box: [left, top, right, bottom], score, label }, number) => ({
    id: number + 1,
    image_id: 0,
    category_id: label,
    bbox: [left, top, rounded(right - left), rounded(bottom - top)],
    area: rounded((right - left) * (bottom - top)),
    iscrowd: 0,
    score,
  }));
  const categories = model.classes.map((className, id) => ({ id, name: className }));
  const images = [{ id: 0, file_name: name, width: answer.width, height: answer.height }];
  return `${JSON.stringify({ categories, images, annotations }, null, 1)}\n`;
}

/**
 * Returns lines of `class x y w h score`; x, y, w and h are shares of the photo's size.
 * @param {Shown} shown
 */
function yoloText({ answer: { width, height }, detections }) {
  const lines = detections.map(({ box: [left, top, right, bottom], score, label }) => {
    const shares = [
      (left + right) / 2 / width,
      (top + bottom) / 2 / height,
      (right - left) / width,
      (bottom - top) / height,
    ];
    return `${label} ${shares.map((share) => share.toFixed(6)).join(" ")} ${score.toFixed(4)}\n`;
  });
  return lines.join("");
}

/**
 * Returns the photo in its own size with the boxes.
 * @param {Shown} shown
 * @returns {Promise<Blob>}
 */
function picture({ answer: { width, height }, model, detections, source }) {
  const canvas = document.createElement("canvas");
  canvas.width = width;
  canvas.height = height;
  const pen = Math.max(1.5, Math.sqrt(width * height) / 300);
  paint(canvas, { source, width, height, detections, colors: model.colors }, pen);
  return canvasBlob(canvas, "image/jpeg");
}

/**
 * @param {string} name
 * @param {string} content
 * @param {string} type
 */
function file(name, content, type) {
  return { name, blob: new Blob([content], { type }) };
}

/** @param {number} value */
function rounded(value) {
  return Math.round(value * 100) / 100;
}
