/** The photos of this tab, the panes that show one of them, and the requests that answer them. */

import { find } from "./dom.js";
import { History } from "./history.js";
import { Pane } from "./pane.js";
import { Photo } from "./photo.js";
import { detect, ServiceError } from "./service.js";
import { text } from "./texts.js";

/** @typedef {import("./types.js").Model} Model */
/** @typedef {import("./types.js").Outcome} Outcome */

const AT_ONCE = 2; // requests; more would only wait in the service

export class Workspace {
  /** @type {Pane[]} none until the models are known */
  panes = [];
  /** @type {Photo | null} */
  current = null;
  /** @type {Set<string>} classes that are not shown */
  #hidden = new Set();
  /** Whether something else than a photo is in the panes: the camera. */
  paused = false;
  /** @type {Model[]} */
  #models = [];
  #inTurn = limited(AT_ONCE);

  /**
   * @param {{announce: (line: string) => void, outdated: () => void, changed: () => void,
   *   picked: () => void, failed: (error: ServiceError) => void}} options
   *   `announce` tells screen readers, `outdated` is called when an answer comes from other weights than known,
   *   `changed` when a photo was chosen or the last one forgotten, `picked` before the visitor's choice is shown
   */
  constructor({ announce, outdated, changed, picked, failed }) {
    this.announce = announce;
    this.outdated = outdated;
    this.changed = changed;
    this.failed = failed;
    this.root = find(document, "#panes");
    this.history = new History(find(document, "#history"), {
      choose: (photo) => {
        picked();
        void this.choose(photo);
      },
      forgotten: (photo) => this.#forgotten(photo),
    });
  }

  /**
   * Sets the models, at the start and after one was reloaded.
   * @param {Model[]} models
   */
  setModels(models) {
    this.#models = models;
    for (const pane of this.panes) {
      pane.models = models;
      pane.model = models.find(({ name }) => name === pane.model.name) ?? pane.model;
    }
    if (this.panes.length === 0 && models.length > 0) this.#addPane(models[0]);
  }

  /**
   * Shows one model, or two beside each other.
   * @param {boolean} two
   */
  compare(two) {
    const other = this.#models.find((model) => model !== this.panes[0].model);
    if (two && other !== undefined && this.panes.length === 1) this.#addPane(other);
    while (!two && this.panes.length > 1) this.panes.pop()?.element.remove();
    find(document, "#work").dataset.panes = String(this.panes.length);
    this.showAgain();
  }

  /**
   * Adds photos, shows the first, and asks the models for the objects of all.
   * @param {File[]} files at least one
   */
  async add(files) {
    const photos = files.map((file) => new Photo(file, file.name || "photo"));
    for (const photo of [...photos].reverse()) this.history.add(photo); // the strip begins with the last one
    await this.choose(photos[0]);
    for (const photo of photos) {
      this.#askAll(photo);
      await photo.makeThumbnail(); // one at a time: large photos need much memory while they are decoded
      this.#showHistory();
    }
  }

  /**
   * Shows a photo, and asks those models that were not asked before.
   * @param {Photo} photo
   */
  async choose(photo) {
    const before = this.current;
    this.current = photo;
    this.#askAll(photo);
    this.changed();
    this.#showHistory();
    await this.#show(photo);
    if (before !== null && before !== this.current) before.close();
  }

  /** Shows the chosen photo again, for other models or after the camera. */
  showAgain() {
    if (this.current !== null && !this.paused) void this.choose(this.current);
  }

  /** Shows all again, in another language for example. */
  refresh() {
    this.panes.forEach((pane) => pane.refresh());
    this.#showHistory();
  }

  /** @param {Model} model */
  #addPane(model) {
    const pane = new Pane(this.#models, model, {
      hidden: this.#hidden,
      onModel: () => this.showAgain(),
      onFilter: () => this.#filtered(),
      onProblem: this.failed,
      onAgain: () => this.current && void this.#ask(this.current, pane.model),
    });
    this.panes.push(pane);
    this.root.append(pane.element);
  }

  /** @param {Photo} photo */
  async #show(photo) {
    const source = await photo.open();
    if (photo !== this.current || this.paused) return;
    const { width, height } = source ?? { width: 0, height: 0 };
    const { name, stem, kind } = photo;
    for (const pane of this.panes) {
      pane.show({ name, stem, kind, source, width, height, outcome: photo.outcomes.get(pane.model.name) });
    }
  }

  /**
   * Asks the models of the panes, unless they were asked before.
   * @param {Photo} photo
   */
  #askAll(photo) {
    if (photo.life.signal.aborted) return;
    for (const { model } of this.panes) {
      if (!photo.outcomes.has(model.name)) void this.#ask(photo, model);
    }
  }

  /**
   * @param {Photo} photo
   * @param {Model} model
   */
  async #ask(photo, model) {
    /** @param {Outcome} outcome */
    const set = (outcome) => {
      photo.outcomes.set(model.name, outcome);
      this.#answered(photo);
    };
    set({ state: "waiting" });
    const onWait = (/** @type {number} */ retryAt) => set({ state: "waiting", retryAt });
    const { signal } = photo.life;
    try {
      const answer = await this.#inTurn(() => detect(photo.blob, model.name, { signal, onWait }));
      set({ state: "done", answer });
      if (answer.model.digest !== model.digest) this.outdated();
      if (photo === this.current) this.#announceObjects();
    } catch (error) {
      if (signal.aborted) return;
      set({ state: "failed", error: asServiceError(error) });
      if (photo === this.current) this.announce(this.#describe(photo));
    }
  }

  /** @param {Photo} photo */
  #answered(photo) {
    this.#showHistory();
    if (photo !== this.current || this.paused) return;
    void this.#show(photo);
    const waits = [...photo.outcomes.values()].some(({ retryAt }) => retryAt !== undefined && retryAt > Date.now());
    if (waits) window.setTimeout(() => this.#answered(photo), 500); // counts the seconds down
  }

  #filtered() {
    this.refresh();
    this.#announceObjects();
  }

  #announceObjects() {
    const photo = this.current;
    const pane = this.panes[0];
    if (photo === null || pane.answer === undefined) return;
    const counts = new Map();
    for (const { name } of pane.shown) counts.set(name, (counts.get(name) ?? 0) + 1);
    const classes = [...counts].map(([name, count]) => `${count} ${name}`).join(", ");
    const key = counts.size ? "announce" : "announce.none";
    this.announce(text(key, { name: photo.name, count: pane.shown.length, classes }));
  }

  #showHistory() {
    this.history.show(this.current, (photo) => this.#describe(photo));
  }

  /** @param {Photo} photo */
  #describe(photo) {
    const pane = this.panes[0];
    const outcome = pane && photo.outcomes.get(pane.model.name);
    if (outcome?.error) return text("photo.failed", { name: photo.name, error: outcome.error.message });
    if (outcome?.answer === undefined) return text("photo.waiting", { name: photo.name });
    const count = pane.filters.select(outcome.answer.detections).length;
    return text(count === 1 ? "photo.one" : "photo.done", { name: photo.name, count });
  }

  /** @param {Photo} photo */
  #forgotten(photo) {
    if (photo === this.current) {
      this.current = null;
      const next = this.history.photos.at(-1);
      if (next !== undefined && !this.paused) void this.choose(next);
    }
    this.changed();
    this.#showHistory();
  }
}

/**
 * Returns a function that runs tasks, at most so many at once; others wait their turn.
 * @param {number} most
 */
function limited(most) {
  let running = 0;
  /** @type {(() => void)[]} */
  const waiting = [];
  return async (/** @type {() => Promise<any>} */ task) => {
    while (running >= most) await new Promise((resolve) => waiting.push(() => resolve(undefined)));
    running += 1;
    try {
      return await task();
    } finally {
      running -= 1;
      waiting.shift()?.();
    }
  };
}

/** @param {unknown} error */
function asServiceError(error) {
  return error instanceof ServiceError ? error : new ServiceError({ message: String(error) });
}
