// The numbers of runs as far as they were read, and the charts that are made from them.

import { getJson } from "./api.js";

const TABLES = ["training", "evaluations"];
const HIDDEN = new Set(["step", "epoch", "time"]);
const FIRST = ["loss", "AP", "AP50", "accuracy", "val_loss", "perplexity", "frechet"];
const OTHERS = ["rate", "gradient_norm", "images_per_second", "data_wait"];

class Table {
  generation = -1;
  names = [];
  rows = [];

  get cursor() {
    return `${Math.max(0, this.generation)}:${this.rows.length}`;
  }

  add(part) {
    if (part.generation !== this.generation || part.from !== this.rows.length) this.rows = [];
    if (part.from > this.rows.length) return; // asked again with a new cursor
    this.generation = part.generation;
    this.names = part.names;
    this.rows.push(...part.rows);
  }

  points(name, axis) {
    const y = this.names.indexOf(name);
    const x = this.names.indexOf(axis);
    if (y < 0) return [];
    return this.rows.map((row) => [row[x] ?? null, row[y] ?? null]).filter(([a, b]) => a !== null && b !== null);
  }
}

export class Curves {
  training = new Table();
  evaluations = new Table();
  isBehind = true;
  readAt = null; // the `updated` of the run when everything was read

  async update(run) {
    if (!this.isBehind && this.readAt === run.updated) return false;
    const part = await getJson("/api/curves", {
      run: run.key,
      training: this.training.cursor,
      evaluations: this.evaluations.cursor,
    });
    for (const name of TABLES) this[name].add(part[name]);
    this.isBehind = part.is_behind;
    this.readAt = run.updated;
    return true;
  }

  names() {
    const own = TABLES.flatMap((name) => this[name].names).filter((name) => !HIDDEN.has(name));
    return [...new Set(own)];
  }

  points(name, axis) {
    const table = this.training.names.includes(name) ? this.training : this.evaluations;
    return table.points(name, axis);
  }

  // The place of the last row on an axis.
  end(axis) {
    const ends = TABLES.map((name) => this[name].rows.at(-1)?.[this[name].names.indexOf(axis)] ?? 0);
    return Math.max(...ends);
  }

  // The numbers of each class in the last evaluation: [["AP", [["cat", 0.4], …]], …]
  classes() {
    const { names, rows } = this.evaluations;
    const last = rows.at(-1) ?? [];
    const found = new Map();
    names.forEach((name, i) => {
      const [metric, ...rest] = name.split("/");
      if (!rest.length || (last[i] ?? null) === null) return;
      if (!found.has(metric)) found.set(metric, []);
      found.get(metric).push([rest.join("/"), last[i]]);
    });
    return [...found];
  }
}

// All names that runs have, the important ones first; numbers of single classes are shown elsewhere.
export function chartNames(curves) {
  const all = new Set(curves.flatMap((each) => each.names()));
  const terms = [...all].filter((name) => name.startsWith("loss/")).sort();
  const rest = [...all].filter((name) => !FIRST.includes(name) && !OTHERS.includes(name) && !name.includes("/"));
  return [...FIRST.filter((name) => all.has(name)), ...terms, ...rest, ...OTHERS.filter((name) => all.has(name))];
}

export const isShownAtFirst = (name) => FIRST.includes(name);

// A mean of the neighbors, near ones first, as wide as the reader wants it.
export function smoothed(points, width) {
  const sigma = Math.min(40, (width * points.length) / 12);
  if (points.length < 8 || sigma < 0.3) return null;
  const reach = Math.ceil(3 * sigma);
  const weights = Array.from({ length: reach + 1 }, (_, i) => Math.exp(-(i * i) / (2 * sigma * sigma)));
  return points.map(([x], i) => {
    let sum = 0;
    let norm = 0;
    for (let j = Math.max(0, i - reach); j <= Math.min(points.length - 1, i + reach); j++) {
      const weight = weights[Math.abs(i - j)];
      sum += weight * points[j][1];
      norm += weight;
    }
    return [x, sum / norm];
  });
}
