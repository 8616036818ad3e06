/** A photo of this tab: its bytes, its thumbnail, what the models found, and, while it is looked at, its pixels. */

import { ServiceError } from "./service.js";
import { text } from "./texts.js";

/** @typedef {import("./types.js").Answer} Answer */
/** @typedef {import("./types.js").Outcome} Outcome */

const THUMBNAIL = 160; // pixels of the longer side
const PHOTO_NAMES = /\.(jpe?g|png|webp|heic|heif|hif|tiff?|bmp|avif|jfif|jp2|ppm|pgm)$/i;

export class Photo {
  /** @type {Map<string, Outcome>} by the name of the model */
  outcomes = new Map();
  /** @type {string} an object URL; empty if the browser cannot show the photo */
  thumbnail = "";
  /** Ends the requests of this photo when it is forgotten. */
  life = new AbortController();
  /** @type {Promise<ImageBitmap | null> | null} */
  #pixels = null;

  /**
   * @param {Blob} blob
   * @param {string} name
   */
  constructor(blob, name) {
    this.blob = blob;
    this.name = name;
  }

  /** The name without folder and suffix, for the names of downloads. */
  get stem() {
    return this.name.replace(/\.[^.]*$/, "") || "photo";
  }

  /** The kind of the file in a few capitals, such as TIFF. */
  get kind() {
    const suffix = /\.([^.]+)$/.exec(this.name)?.[1] ?? this.blob.type.split("/")[1] ?? "";
    return suffix.toUpperCase() || "?";
  }

  /**
   * Returns the upright pixels, or null if the browser cannot show this kind of photo. They are kept until
   * `close`.
   * @returns {Promise<ImageBitmap | null>}
   */
  open() {
    this.#pixels ??= createImageBitmap(this.blob).catch(() => null);
    return this.#pixels;
  }

  /** Frees the pixels; the photo can be opened again. */
  close() {
    void this.#pixels?.then((pixels) => pixels?.close());
    this.#pixels = null;
  }

  /** Makes the thumbnail. */
  async makeThumbnail() {
    const pixels = await createImageBitmap(this.blob).catch(() => null);
    if (pixels === null) return;
    const shrink = Math.min(1, THUMBNAIL / Math.max(pixels.width, pixels.height));
    const canvas = document.createElement("canvas");
    canvas.width = Math.max(1, Math.round(pixels.width * shrink));
    canvas.height = Math.max(1, Math.round(pixels.height * shrink));
    const context = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
    context.imageSmoothingQuality = "high";
    context.drawImage(pixels, 0, 0, canvas.width, canvas.height);
    pixels.close();
    const small = await canvasBlob(canvas, "image/jpeg");
    if (!this.life.signal.aborted) this.thumbnail = URL.createObjectURL(small);
  }

  /** Frees all that the photo holds, and ends its requests. */
  forget() {
    this.life.abort();
    this.close();
    if (this.thumbnail) URL.revokeObjectURL(this.thumbnail);
    this.thumbnail = "";
  }
}

/**
 * Returns why a file is no photo, or null if it may be one: the service looks at its bytes.
 * @param {File} file
 * @returns {ServiceError | null}
 */
export function refusal(file) {
  const name = file.name;
  const explain = (/** @type {string} */ key) =>
    new ServiceError({ message: text(key, { name }), advice: text(`${key}.advice`) });
  if (file.type.startsWith("video/")) return explain("error.video");
  if (file.type !== "" && !file.type.startsWith("image/") && !PHOTO_NAMES.test(name)) return explain("error.kind");
  if (file.type === "image/svg+xml") return explain("error.kind");
  if (file.size === 0) return explain("error.empty");
  return null;
}

function tooLarge() {
  return new ServiceError({ message: text("download.large"), advice: text("download.large.advice") });
}

/**
 * Returns the content of a canvas as a file.
 * @param {HTMLCanvasElement} canvas
 * @param {string} type
 * @returns {Promise<Blob>}
 */
export function canvasBlob(canvas, type) {
  return new Promise((resolve, reject) => {
    const done = (/** @type {Blob | null} */ blob) =>
      blob === null ? reject(tooLarge()) : resolve(blob);
    canvas.toBlob(done, type, 0.92);
  });
}

/**
 * Whether a photo of the browser has the shape that the service saw, up to the rounding of a smaller copy.
 * @param {Answer} answer
 * @param {{width: number, height: number}} photo
 */
export function isSameShape(answer, { width, height }) {
  return Math.abs(answer.width * height - answer.height * width) <= 2 * Math.max(width, height);
}
