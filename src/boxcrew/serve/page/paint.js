/** Painting of a photo with its boxes, on the screen and for a picture to download. */

/** @typedef {import("./types.js").Detection} Detection */
/** @typedef {import("./types.js").Box} Box */

const FONT = 'system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", "Noto Sans CJK SC", sans-serif';
const EMPTY_SHEET = "#8a94a0";

/**
 * @typedef {object} Scene
 * @property {CanvasImageSource | null} source the upright photo; null paints an empty sheet
 * @property {number} width of the photo in pixels, as its boxes mean it
 * @property {number} height
 * @property {Detection[]} detections best first
 * @property {string[]} colors of the classes
 * @property {number} [highlighted] number of the detection that stands out; others are pale
 */

/** @typedef {{text: string, x: number, y: number, width: number, height: number, color: string}} Tag */

/**
 * Paints a scene on a whole canvas.
 * @param {HTMLCanvasElement} canvas
 * @param {Scene} scene
 * @param {number} pen width of lines in pixels of the canvas; letters grow with it
 */
export function paint(canvas, scene, pen) {
  const context = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
  const scale = canvas.width / scene.width;
  paintPhoto(context, scene);
  const { detections, highlighted = -1 } = scene;
  context.lineJoin = "round";
  // The best boxes are painted last, and the highlighted one over them.
  const order = detections.map((_, number) => number).reverse();
  if (highlighted >= 0) order.push(highlighted);
  for (const number of order) {
    const pale = highlighted >= 0 && number !== highlighted;
    const color = scene.colors[detections[number].label] ?? "#0072b2";
    paintFrame(context, scaled(detections[number].box, scale), { color, pen, pale, filled: number === highlighted });
  }
  paintTags(context, scene, scale, pen);
}

/** The copy of a large photo in the size that is painted, made once: each move of a slider paints again. */
export class Reduced {
  #copy = document.createElement("canvas");
  /** @type {ImageBitmap | null} */
  #original = null;

  /**
   * Returns the copy of a photo for a canvas. What is small, or moves, is returned itself.
   * @param {ImageBitmap | HTMLVideoElement | null} source
   * @param {HTMLCanvasElement} canvas
   */
  of(source, { width, height }) {
    if (!(source instanceof ImageBitmap) || source.width <= width) return source;
    const copy = this.#copy;
    if (this.#original !== source || copy.width !== width || copy.height !== height) {
      [copy.width, copy.height, this.#original] = [width, height, source];
      const context = /** @type {CanvasRenderingContext2D} */ (copy.getContext("2d"));
      context.imageSmoothingQuality = "high";
      context.drawImage(source, 0, 0, width, height);
    }
    return copy;
  }
}

/**
 * Returns the number of the smallest box around a point in pixels of the photo, or -1.
 * @param {Detection[]} detections
 * @param {number} x
 * @param {number} y
 */
export function boxAt(detections, x, y) {
  let best = -1;
  let smallest = Infinity;
  detections.forEach(({ box: [left, top, right, bottom] }, number) => {
    const area = (right - left) * (bottom - top);
    if (x >= left && x <= right && y >= top && y <= bottom && area < smallest) [best, smallest] = [number, area];
  });
  return best;
}

/**
 * @param {CanvasRenderingContext2D} context
 * @param {Scene} scene
 */
function paintPhoto(context, { source }) {
  const { width, height } = context.canvas;
  if (source === null) {
    context.fillStyle = EMPTY_SHEET;
    context.fillRect(0, 0, width, height);
    return;
  }
  context.fillStyle = "#ffffff"; // under what is transparent
  context.fillRect(0, 0, width, height);
  context.imageSmoothingQuality = "high";
  context.drawImage(source, 0, 0, width, height);
}

/**
 * @param {CanvasRenderingContext2D} context
 * @param {Box} box
 * @param {{color: string, pen: number, pale: boolean, filled: boolean}} style
 */
function paintFrame(context, [left, top, right, bottom], { color, pen, pale, filled }) {
  const inset = pen / 2;
  const [x, y] = [left + inset, top + inset];
  const [width, height] = [Math.max(1, right - left - pen), Math.max(1, bottom - top - pen)];
  context.globalAlpha = pale ? 0.3 : 1;
  if (filled) {
    context.globalAlpha = 0.22;
    context.fillStyle = color;
    context.fillRect(left, top, right - left, bottom - top);
    context.globalAlpha = 1;
  }
  // A dark line under the colored one keeps it visible on a background of its own color.
  context.strokeStyle = "rgb(0 0 0 / 45%)";
  context.lineWidth = pen * 1.7;
  context.strokeRect(x, y, width, height);
  context.strokeStyle = color;
  context.lineWidth = filled ? pen * 1.5 : pen;
  context.strokeRect(x, y, width, height);
  context.globalAlpha = 1;
}

/**
 * Paints the names after all frames, so that no line crosses one. Of tags without room the weaker is left out.
 * @param {CanvasRenderingContext2D} context
 * @param {Scene} scene
 * @param {number} scale
 * @param {number} pen
 */
function paintTags(context, { detections, colors, highlighted = -1 }, scale, pen) {
  const size = Math.round(pen * 6);
  context.font = `600 ${size}px ${FONT}`;
  context.textBaseline = "middle";
  /** @type {Tag[]} */
  const painted = [];
  const numbers = detections.map((_, number) => number).filter((number) => number !== highlighted);
  if (highlighted >= 0) numbers.unshift(highlighted);
  for (const number of numbers) {
    const detection = detections[number];
    const tag = findRoom(context, detection, scaled(detection.box, scale), size, painted);
    if (tag === null) continue;
    tag.color = colors[detection.label] ?? "#0072b2";
    painted.push(tag);
    context.globalAlpha = highlighted >= 0 && number !== highlighted ? 0.3 : 1;
    paintTag(context, tag, size);
  }
  context.globalAlpha = 1;
}

/**
 * @param {CanvasRenderingContext2D} context
 * @param {Tag} tag
 * @param {number} size of the letters
 */
function paintTag(context, tag, size) {
  context.fillStyle = tag.color;
  context.beginPath();
  context.roundRect(tag.x, tag.y, tag.width, tag.height, size * 0.25);
  context.fill();
  context.fillStyle = inkOn(tag.color);
  context.fillText(tag.text, tag.x + size * 0.4, tag.y + tag.height / 2 + size * 0.06);
}

/**
 * Returns the tag of a box above it, below it or inside, where it covers no other; null if there is no room.
 * @param {CanvasRenderingContext2D} context
 * @param {Detection} detection
 * @param {Box} box
 * @param {number} size of the letters
 * @param {Tag[]} others
 * @returns {Tag | null}
 */
function findRoom(context, detection, [left, top, right, bottom], size, others) {
  const words = `${detection.name} ${detection.score.toFixed(2)}`;
  const width = context.measureText(words).width + size * 0.8;
  const height = size * 1.45;
  const columns = [left, right - width].map((x) => clamp(x, 0, context.canvas.width - width));
  const rows = [top - height, top, bottom, bottom - height].filter(
    (y) => y >= 0 && y + height <= context.canvas.height,
  );
  for (const y of rows) {
    for (const x of columns) {
      const tag = { text: words, x, y, width, height, color: "" };
      if (!others.some((other) => overlap(tag, other))) return tag;
    }
  }
  return null;
}

/**
 * @param {Tag} one
 * @param {Tag} other
 */
function overlap(one, other) {
  const across = one.x < other.x + other.width && other.x < one.x + one.width;
  return across && one.y < other.y + other.height && other.y < one.y + one.height;
}

/**
 * Returns black or white, whichever has more contrast on a color `#rrggbb` (WCAG 2).
 * @param {string} color
 */
export function inkOn(color) {
  const [red, green, blue] = [1, 3, 5].map((start) => (parseInt(color.slice(start, start + 2), 16) / 255) ** 2.2);
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue > 0.18 ? "#000000" : "#ffffff";
}

/**
 * @param {Box} box
 * @param {number} scale
 * @returns {Box}
 */
function scaled([left, top, right, bottom], scale) {
  return [left * scale, top * scale, right * scale, bottom * scale];
}

/**
 * @param {number} value
 * @param {number} low
 * @param {number} high
 */
function clamp(value, low, high) {
  return Math.max(low, Math.min(value, Math.max(low, high)));
}
