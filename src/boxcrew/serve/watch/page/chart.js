// A chart of curves, drawn as SVG, with a line that follows the pointer or the arrow keys.

import { el, svg } from "./dom.js";

const HEIGHT = 210;
const EDGE = { left: 54, right: 12, top: 10, bottom: 26 };
const DASHES = ["", "7 3", "2 3", "9 3 2 3", "4 4", "12 4", "1 4", "6 2 1 2"];

export class Chart {
  constructor(hint) {
    this.title = el("span");
    this.reading = el("output", { class: "reading", "aria-live": "polite" });
    this.picture = svg("svg", { class: "chart", role: "img", tabindex: "0" });
    this.hint = hint;
    this.element = el("figure", {}, el("figcaption", {}, this.title), this.picture, this.reading);
    this.picture.addEventListener("pointermove", (event) => this.pointAt(event));
    this.picture.addEventListener("pointerdown", (event) => this.pointAt(event));
    this.picture.addEventListener("pointerleave", () => this.select(null));
    this.picture.addEventListener("blur", () => this.select(null));
    this.picture.addEventListener("keydown", (event) => this.move(event));
    new ResizeObserver(() => this.drawn && this.draw(this.drawn)).observe(this.element);
  }

  // end: the end of the axis, which charts share; series: [{ label, place, points, line, best }]; `line` is a smoothed curve or null, `best` is marked
  draw(what) {
    this.drawn = what;
    const width = Math.max(220, this.element.clientWidth);
    const { series, log } = what;
    const usable = series.map((each) => ({ ...each, points: log ? each.points.filter(([, y]) => y > 0) : each.points }));
    this.series = usable.filter((each) => each.points.length);
    const xs = this.series.flatMap((each) => each.points.map(([x]) => x));
    this.xs = [...new Set(xs)].sort((a, b) => a - b);
    this.title.textContent = what.title;
    this.x = scale([Math.min(0, limits(this.xs)[0]), Math.max(what.end, limits(this.xs)[1])], EDGE.left, width - EDGE.right, false);
    this.y = scale(this.bounds(log), HEIGHT - EDGE.bottom, EDGE.top, log);
    this.picture.setAttribute("viewBox", `0 0 ${width} ${HEIGHT}`);
    this.picture.setAttribute("height", HEIGHT);
    this.picture.setAttribute("aria-label", this.summary());
    this.cursor = svg("g", { class: "cursor" });
    this.picture.replaceChildren(...this.axes(width, what), ...this.series.flatMap((each) => this.curve(each)), this.cursor);
    if (this.at !== null && this.at !== undefined) this.select(this.at);
  }

  bounds(log) {
    const [low, high] = limits(this.series.flatMap((each) => each.points.map(([, y]) => y)));
    if (log) return low === high ? [low / 2, high * 2] : [low, high];
    const room = (high - low || Math.abs(high) || 1) * 0.06;
    return [low >= 0 && (low === high || low < 0.7 * high) ? 0 : low - room, high + room];
  }

  axes(width, { formatX, formatY, axis }) {
    const lines = [];
    for (const value of this.y.ticks) {
      const at = this.y.of(value);
      lines.push(svg("line", { class: "grid", x1: EDGE.left, x2: width - EDGE.right, y1: at, y2: at }));
      lines.push(svg("text", { x: EDGE.left - 7, y: at + 4, "text-anchor": "end" }, formatY(value)));
    }
    for (const value of this.x.ticks) {
      const at = this.x.of(value);
      const isLast = at > width - EDGE.right - 24;
      lines.push(svg("text", { x: at, y: HEIGHT - 8, "text-anchor": isLast ? "end" : "middle" }, formatX(value)));
    }
    lines.push(svg("title", {}, `${this.title.textContent}, ${axis}`));
    return lines;
  }

  curve({ points, line, place, best }) {
    const path = (some) => some.map(([x, y], i) => `${i ? "L" : "M"}${this.x.of(x).toFixed(1)} ${this.y.of(y).toFixed(1)}`).join("");
    const dash = DASHES[place % DASHES.length];
    const drawn = [svg("path", { class: `line series-${place}${line ? " pale" : ""}`, d: path(points), "stroke-dasharray": dash })];
    if (line) drawn.push(svg("path", { class: `line series-${place}`, d: path(line), "stroke-dasharray": dash }));
    if (points.length < 30) {
      drawn.push(...points.map(([x, y]) => svg("circle", { class: `dot series-${place}`, cx: this.x.of(x), cy: this.y.of(y), r: 2.6 })));
    }
    const marked = points.find(([x]) => x === best);
    if (marked) {
      const [x, y] = marked;
      drawn.push(svg("circle", { class: `best series-${place}`, cx: this.x.of(x), cy: this.y.of(y), r: 5.5 }));
    }
    return drawn;
  }

  summary() {
    const { title, formatX, formatY, axis } = this.drawn;
    const ends = this.series.map(({ label, points }) => {
      const [x, y] = points.at(-1);
      return `${label} ${formatY(y)} (${axis} ${formatX(x)})`;
    });
    return `${title}: ${ends.join("; ")}. ${this.hint()}`;
  }

  pointAt(event) {
    if (!this.xs?.length) return;
    const box = this.picture.getBoundingClientRect();
    const x = this.x.back(((event.clientX - box.left) / box.width) * this.picture.viewBox.baseVal.width);
    this.select(nearest(this.xs, x));
  }

  move(event) {
    const steps = { ArrowLeft: -1, ArrowRight: 1, PageUp: -10, PageDown: 10, Home: -Infinity, End: Infinity };
    if (event.key === "Escape") this.select(null);
    if (!(event.key in steps) || !this.xs?.length) return;
    event.preventDefault();
    const now = this.at === null || this.at === undefined ? this.xs.length - 1 : this.xs.indexOf(nearest(this.xs, this.at));
    this.select(this.xs[Math.min(this.xs.length - 1, Math.max(0, now + steps[event.key]))]);
  }

  // Shows the values of all curves beside one place on the axis; none for null.
  select(x) {
    this.at = x;
    this.cursor?.replaceChildren();
    this.reading.replaceChildren();
    if (x === null || !this.series?.length) return;
    const { formatX, formatY, axis } = this.drawn;
    const at = this.x.of(x);
    this.cursor.append(svg("line", { x1: at, x2: at, y1: EDGE.top, y2: HEIGHT - EDGE.bottom }));
    this.reading.append(el("span", { class: "quiet" }, `${axis} ${formatX(x)}`));
    for (const { label, points, place } of this.series) {
      const [, y] = points[indexNear(points, x)];
      this.cursor.append(svg("circle", { class: `dot series-${place}`, cx: this.x.of(points[indexNear(points, x)][0]), cy: this.y.of(y), r: 4 }));
      this.reading.append(el("span", { class: `key series-${place}` }, el("b", {}, formatY(y)), this.series.length > 1 ? ` ${label}` : ""));
    }
  }
}

function scale([low, high], from, to, log) {
  const of = log ? Math.log10 : (value) => value;
  const [a, b] = low === high ? [of(low) - 1, of(high) + 1] : [of(low), of(high)];
  return {
    ticks: log ? logTicks(low, high) : ticks(a, b, Math.abs(to - from) > 260 ? 6 : 5),
    of: (value) => from + ((of(value) - a) / (b - a)) * (to - from),
    back: (place) => a + ((place - from) / (to - from)) * (b - a),
  };
}

export function ticks(low, high, about) {
  const raw = (high - low) / about;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].find((factor) => factor * power >= raw) * power;
  const found = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + step * 1e-9; i++) found.push(Number((i * step).toPrecision(12)));
  return found;
}

export function logTicks(low, high) {
  const found = [];
  const factors = high / low > 1000 ? [1] : [1, 2, 5];
  for (let power = Math.floor(Math.log10(low)); power <= Math.ceil(Math.log10(high)); power++) {
    for (const factor of factors) found.push(Number((factor * 10 ** power).toPrecision(3)));
  }
  return found.filter((value) => value >= low * 0.999 && value <= high * 1.001);
}

function limits(values) {
  let [low, high] = [Infinity, -Infinity];
  for (const value of values) [low, high] = [Math.min(low, value), Math.max(high, value)];
  return low > high ? [0, 1] : [low, high];
}

const nearest = (sorted, x) => sorted.reduce((best, each) => (Math.abs(each - x) < Math.abs(best - x) ? each : best), sorted[0]);

function indexNear(points, x) {
  let best = 0;
  points.forEach(([at], i) => {
    if (Math.abs(at - x) < Math.abs(points[best][0] - x)) best = i;
  });
  return best;
}
