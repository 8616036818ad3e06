/** One model beside or under the photo: the painted boxes, filters, the table of objects, facts and downloads. */

import { find } from "./dom.js";
import { download } from "./downloads.js";
import { showFacts, showSpeed } from "./facts.js";
import { Filters } from "./filters.js";
import { showNotice } from "./notice.js";
import { boxAt, paint, Reduced } from "./paint.js";
import { isSameShape } from "./photo.js";
import { ObjectTable } from "./table.js";
import { localize, text } from "./texts.js";

/** @typedef {import("./types.js").Answer} Answer */
/** @typedef {import("./types.js").Detection} Detection */
/** @typedef {import("./types.js").Model} Model */
/** @typedef {import("./types.js").Outcome} Outcome */
/** @typedef {import("./service.js").ServiceError} ServiceError */

/**
 * @typedef {object} View what a pane shows
 * @property {string} name of the photo
 * @property {string} stem of its name
 * @property {string} kind of its file
 * @property {ImageBitmap | HTMLVideoElement | null} source the upright pixels, null if they cannot be shown
 * @property {number} width of the source; 0 if there is none
 * @property {number} height
 * @property {Outcome | undefined} outcome
 * @property {boolean} [moving] whether the source goes on, so that there is nothing to download
 */

export class Pane {
  /** @type {View | null} */
  #view = null;
  #highlighted = -1; // number among the shown detections
  #reduced = new Reduced();

  /**
   * @param {Model[]} models
   * @param {Model} model
   * @param {{hidden: Set<string>, onModel: () => void, onFilter: () => void, onAgain: () => void,
   *   onProblem: (error: ServiceError) => void}} options `hidden` are the classes that are not shown, in all panes
   */
  constructor(models, model, { hidden, onModel, onFilter, onAgain, onProblem }) {
    const template = find(document, "#pane");
    this.element = template.content.firstElementChild.cloneNode(true);
    this.models = models;
    this.model = model;
    this.canvas = /** @type {HTMLCanvasElement} */ (find(this.element, "canvas"));
    this.filters = new Filters(find(this.element, ".filters"), hidden, onFilter);
    this.table = new ObjectTable(find(this.element, "tbody"), (number) => this.#highlight(number));
    this.#offerModels(onModel);
    find(this.element, ".again").addEventListener("click", onAgain);
    for (const kind of ["pointermove", "pointerdown"]) {
      this.canvas.addEventListener(kind, (event) => this.#point(/** @type {PointerEvent} */ (event)));
    }
    this.canvas.addEventListener("pointerleave", () => this.#highlight(-1));
    for (const button of this.element.querySelectorAll(".formats button")) {
      button.addEventListener("click", () => this.#download(button.value).catch(onProblem));
    }
    new ResizeObserver(() => this.paint()).observe(find(this.element, ".stage"));
    this.filters.reset(model);
  }

  /** The answer that is shown, if there is one. */
  get answer() {
    return this.#view?.outcome?.answer;
  }

  /** The detections that pass the filters, best first. */
  get shown() {
    return this.answer ? this.filters.select(this.answer.detections) : [];
  }

  /**
   * Shows a photo with what is known of it.
   * @param {View} view
   */
  show(view) {
    this.#view = view;
    this.refresh();
  }

  /** Shows all again: after another language, filter, or answer. */
  refresh() {
    localize(this.element);
    this.element.setAttribute("aria-label", this.model.name);
    const { answer, shown } = this;
    const done = answer !== undefined;
    this.element.dataset.state = this.#view?.outcome?.state ?? "waiting";
    this.#highlighted = Math.min(this.#highlighted, shown.length - 1);
    this.filters.show(this.model, answer?.detections ?? []);
    this.table.show(shown, this.model.colors);
    find(this.element, ".counts").textContent = done
      ? text("objects.filtered", { shown: shown.length, all: answer.detections.length })
      : "";
    find(this.element, ".caption").textContent = this.#caption();
    find(this.element, ".empty").hidden = !done || shown.length > 0;
    find(this.element, "table").hidden = shown.length === 0;
    for (const button of this.element.querySelectorAll(".formats button")) button.disabled = !done || this.#view?.moving;
    showFacts(find(this.element, ".facts"), this.model);
    showSpeed(find(this.element, ".speed"), answer);
    showNotice(find(this.element, ".notice"), this.#view, answer);
    this.paint();
  }

  /** Paints the photo and its boxes as sharp as the screen is. */
  paint() {
    const view = this.#view;
    if (view === null || (view.source instanceof ImageBitmap && view.source.width === 0)) return; // or it is closed
    const { width, height, source } = this.#extent();
    if (!width || !height) {
      this.canvas.hidden = true;
      return;
    }
    this.canvas.hidden = false;
    this.#fit(width, height);
    const pen = 2.2 * window.devicePixelRatio;
    const detections = this.shown;
    const small = this.#reduced.of(source, this.canvas);
    const scene = { source: small, width, height, detections, colors: this.model.colors };
    paint(this.canvas, { ...scene, highlighted: this.#highlighted }, pen);
    const label = text("canvas.label", { name: view.name, count: detections.length });
    this.canvas.setAttribute("aria-label", label);
  }

  /** The source and size of what is painted: an empty sheet where the browser's photo is not the service's. */
  #extent() {
    const { source, width, height } = /** @type {View} */ (this.#view);
    const answer = this.answer;
    if (answer === undefined) return { source, width, height };
    const same = source !== null && isSameShape(answer, { width, height });
    return { source: same ? source : null, width: answer.width, height: answer.height };
  }

  #caption() {
    if (this.#view === null) return "";
    const { width, height } = this.#extent();
    return width ? `${this.#view.name} · ${width} × ${height}` : this.#view.name;
  }

  /**
   * @param {number} width
   * @param {number} height
   */
  #fit(width, height) {
    const stage = find(this.element, ".stage");
    const room = { width: stage.clientWidth, height: Math.max(220, window.innerHeight * 0.72) };
    const scale = Math.min(room.width / width, room.height / height, 4);
    const [wide, high] = [width * scale, height * scale].map((side) => Math.max(1, Math.round(side)));
    this.canvas.style.width = `${wide}px`;
    this.canvas.style.height = `${high}px`;
    const ratio = window.devicePixelRatio;
    const [pixelsWide, pixelsHigh] = [Math.round(wide * ratio), Math.round(high * ratio)];
    if (this.canvas.width !== pixelsWide) this.canvas.width = pixelsWide;
    if (this.canvas.height !== pixelsHigh) this.canvas.height = pixelsHigh;
  }

  /** @param {PointerEvent} event */
  #point(event) {
    if (this.answer === undefined) return;
    const bounds = this.canvas.getBoundingClientRect();
    const scale = this.answer.width / bounds.width;
    const [x, y] = [(event.clientX - bounds.left) * scale, (event.clientY - bounds.top) * scale];
    this.#highlight(boxAt(this.shown, x, y));
  }

  /** @param {number} number */
  #highlight(number) {
    if (number === this.#highlighted) return;
    this.#highlighted = number;
    this.table.highlight(number);
    this.paint();
  }

  /** @param {() => void} onModel */
  #offerModels(onModel) {
    const select = find(this.element, ".models");
    select.append(...this.models.map(({ name }) => new Option(name, name)));
    select.value = this.model.name;
    select.addEventListener("change", () => {
      this.model = this.models.find(({ name }) => name === select.value) ?? this.model;
      this.filters.reset(this.model);
      onModel();
    });
  }

  /** @param {string} format */
  async #download(format) {
    const { answer, model, shown: detections } = this;
    if (answer === undefined || this.#view === null) return;
    const { name, stem } = this.#view;
    const { source } = this.#extent();
    await download(format, { name, stem, answer, model, detections, source, threshold: this.filters.threshold });
  }
}
