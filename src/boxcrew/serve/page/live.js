/** The live picture of a camera with boxes, and photos taken from it. */

import { Camera, problem } from "./camera.js";
import { find } from "./dom.js";
import { detect, ServiceError } from "./service.js";
import { text } from "./texts.js";

/** @typedef {import("./types.js").Answer} Answer */
/** @typedef {import("./pane.js").Pane} Pane */

export class Live {
  #camera = new Camera(() => this.#lost());
  #life = new AbortController();
  #rate = 0; // answers a second, smoothed

  /**
   * @param {{panes: () => Pane[], taken: (photo: Blob) => void, changed: () => void,
   *   failed: (error: ServiceError) => void}} options
   *   `taken` gets a photo, `changed` is called when the camera goes on or off
   */
  constructor({ panes, taken, changed, failed }) {
    this.panes = panes;
    this.taken = taken;
    this.changed = changed;
    this.failed = failed;
    this.root = find(document, "#live");
    this.cameras = /** @type {HTMLSelectElement} */ (find(this.root, "#cameras"));
    this.cameras.addEventListener("change", () => void this.open(this.cameras.value));
    find(this.root, "#stop").addEventListener("click", () => this.close());
    find(this.root, "#snap").addEventListener("click", () => void this.#snap());
    window.addEventListener("pagehide", () => this.close());
  }

  /** Whether a camera is on. */
  get on() {
    return this.#camera.on;
  }

  /**
   * Turns a camera on.
   * @param {string} [id]
   */
  async open(id) {
    this.#life.abort();
    const life = (this.#life = new AbortController());
    try {
      await this.#camera.start(id);
    } catch (error) {
      this.changed();
      this.failed(/** @type {ServiceError} */ (error));
      return;
    }
    const cameras = await this.#camera.list();
    this.cameras.replaceChildren(...cameras.map((camera) => new Option(camera.name, camera.id)));
    this.cameras.value = this.#camera.id;
    this.changed();
    this.#show(new Map());
    this.#paint(life.signal);
    void this.#look(life.signal);
  }

  /** Turns the camera off. */
  close() {
    if (!this.on) return;
    this.#life.abort();
    this.#camera.stop();
    this.changed();
  }

  #lost() {
    this.close();
    this.failed(problem("camera.missing"));
  }

  async #snap() {
    const photo = await this.#camera.frame();
    this.close();
    this.taken(photo);
  }

  /**
   * Paints the picture as often as the screen does, with the newest boxes.
   * @param {AbortSignal} signal
   */
  #paint(signal) {
    if (signal.aborted) return;
    this.panes().forEach((pane) => pane.paint());
    window.requestAnimationFrame(() => this.#paint(signal));
  }

  /**
   * Asks for the boxes of one frame after the other: never more than one at a time for each model.
   * @param {AbortSignal} signal
   */
  async #look(signal) {
    try {
      while (!signal.aborted) {
        await new Promise((resolve) => window.requestAnimationFrame(resolve)); // none while the tab is hidden
        if (!find(this.root, "#boxes-live").checked) {
          this.#show(new Map());
          continue;
        }
        const begun = performance.now();
        const frame = await this.#camera.frame();
        const names = this.panes().map(({ model }) => model.name);
        const answers = await Promise.all(names.map((name) => detect(frame, name, { signal })));
        if (signal.aborted) return;
        this.#show(new Map(answers.map((answer, number) => [names[number], answer])));
        this.#showRate(1000 / (performance.now() - begun));
      }
    } catch (error) {
      if (signal.aborted) return;
      this.close();
      this.failed(error instanceof ServiceError ? error : new ServiceError({ message: String(error) }));
    }
  }

  /** @param {Map<string, Answer>} answers by the name of the model */
  #show(answers) {
    const source = this.#camera.video;
    const size = { width: source.videoWidth, height: source.videoHeight };
    for (const pane of this.panes()) {
      const answer = answers.get(pane.model.name);
      const outcome = answer && { state: /** @type {const} */ ("done"), answer };
      const name = text("camera.frame");
      pane.show({ name, stem: "camera", kind: "", source, ...size, outcome, moving: true });
    }
    if (answers.size > 0) return;
    this.#rate = 0;
    find(this.root, "#rate").textContent = "";
  }

  /** @param {number} rate */
  #showRate(rate) {
    this.#rate = this.#rate === 0 ? rate : 0.9 * this.#rate + 0.1 * rate;
    find(this.root, "#rate").textContent = text("camera.slow", { rate: this.#rate.toFixed(1) });
  }
}
