/** The ways in: drop, paste, the file chooser, and the sample photos. */

import { find, make } from "./dom.js";
import { fetchSample } from "./service.js";
import { text } from "./texts.js";

/** @typedef {import("./types.js").Model} Model */

const MOST_SAMPLES = 8;

/**
 * Takes files that are dropped anywhere on the page, pasted, or chosen.
 * @param {(files: File[]) => void} take
 */
export function takeFiles(take) {
  takeDropped(take);
  window.addEventListener("paste", (event) => {
    const files = [...(event.clipboardData?.files ?? [])];
    if (files.length === 0) return;
    event.preventDefault();
    take(files);
  });
  for (const id of ["#files", "#capture"]) {
    const input = /** @type {HTMLInputElement} */ (find(document, id));
    input.addEventListener("change", () => {
      take([...(input.files ?? [])]);
      input.value = ""; // so that the same file can be chosen again
    });
  }
  find(document, "#choose").addEventListener("click", () => find(document, "#files").click());
}

/** @param {(files: File[]) => void} take */
function takeDropped(take) {
  const curtain = find(document, "#curtain");
  const hasFiles = (/** @type {DragEvent} */ event) => event.dataTransfer?.types.includes("Files") ?? false;
  window.addEventListener("dragover", (event) => {
    if (!hasFiles(event)) return;
    event.preventDefault();
    curtain.hidden = false;
  });
  window.addEventListener("dragleave", (event) => {
    if (event.relatedTarget === null) curtain.hidden = true; // the pointer left the window
  });
  window.addEventListener("drop", (event) => {
    curtain.hidden = true;
    if (!hasFiles(event)) return;
    event.preventDefault();
    take([...(event.dataTransfer?.files ?? [])]);
  });
}

/** The sample photos of a model, so that a visitor can try at once. */
export class Samples {
  /** @type {string[]} object URLs */
  #urls = [];
  #shown = "";

  /**
   * @param {HTMLElement} root
   * @param {(photo: Blob, name: string) => void} choose
   */
  constructor(root, choose) {
    this.root = root;
    this.choose = choose;
  }

  /**
   * Shows the samples of a model, once for each of its weights.
   * @param {Model} model
   */
  async show(model) {
    const wanted = `${model.name}@${model.digest}`;
    if (this.#shown === wanted) return;
    this.#shown = wanted;
    const numbers = [...Array(Math.min(MOST_SAMPLES, model.samples ?? 0)).keys()];
    const photos = await Promise.all(numbers.map((number) => fetchSample(model.name, number).catch(() => null)));
    if (this.#shown !== wanted) return; // another model was chosen meanwhile
    this.#urls.forEach((url) => URL.revokeObjectURL(url));
    this.#urls = [];
    const items = photos.flatMap((photo, number) => (photo === null ? [] : [this.#item(photo, number + 1)]));
    find(this.root, "ul").replaceChildren(...items);
    this.root.hidden = items.length === 0;
    this.localize();
  }

  /** Writes the names of the samples in the chosen language. */
  localize() {
    for (const button of this.root.querySelectorAll("button")) {
      button.setAttribute("aria-label", text("sample", { number: button.value }));
    }
  }

  /**
   * @param {Blob} photo
   * @param {number} number
   */
  #item(photo, number) {
    const url = URL.createObjectURL(photo);
    this.#urls.push(url);
    const image = make("img");
    image.src = url;
    image.alt = "";
    const button = make("button", { class: "thumbnail", type: "button" }, image);
    button.value = String(number);
    button.addEventListener("click", () => this.choose(photo, `sample-${number}.jpg`));
    return make("li", {}, button);
  }
}
