/** The photos of this tab: a strip of thumbnails. What is forgotten frees its memory. */

import { children, find, make } from "./dom.js";
import { text } from "./texts.js";

/** @typedef {import("./photo.js").Photo} Photo */

const MOST = 60; // photos; the oldest are forgotten first

export class History {
  /** @type {Photo[]} oldest first */
  photos = [];

  /**
   * @param {HTMLElement} root
   * @param {{choose: (photo: Photo) => void, forgotten: (photo: Photo) => void}} options
   */
  constructor(root, { choose, forgotten }) {
    this.root = root;
    this.choose = choose;
    this.forgotten = forgotten;
    find(root, "#clear").addEventListener("click", () => this.forget(this.photos));
    window.addEventListener("pagehide", (event) => {
      if (!event.persisted) this.photos.forEach((photo) => photo.forget());
    });
  }

  /** @param {Photo} photo */
  add(photo) {
    this.photos.push(photo);
    this.forget(this.photos.slice(0, -MOST));
  }

  /** @param {Photo[]} photos */
  forget(photos) {
    const gone = [...photos];
    this.photos = this.photos.filter((photo) => !gone.includes(photo));
    for (const photo of gone) {
      photo.forget();
      this.forgotten(photo);
    }
  }

  /**
   * Shows the strip, newest first.
   * @param {Photo | null} current
   * @param {(photo: Photo) => string} describe returns what is known of a photo in one line
   */
  show(current, describe) {
    this.root.hidden = this.photos.length === 0;
    const newest = [...this.photos].reverse();
    const items = children(find(this.root, "ul"), newest.length, () => this.#item());
    items.forEach((item, number) => showItem(item, newest[number], newest[number] === current, describe));
  }

  #item() {
    const cross = /** @type {Element} */ (find(document, "#problem .icon svg").cloneNode(true));
    const [photo, remove] = [
      make("button", { class: "thumbnail", type: "button" }, make("img"), make("span"), make("b")),
      make("button", { class: "quiet icon", type: "button" }, cross),
    ];
    const item = make("li", {}, photo, remove);
    const own = () => this.photos[this.photos.length - 1 - [...item.parentElement.children].indexOf(item)];
    photo.addEventListener("click", () => this.choose(own()));
    remove.addEventListener("click", () => this.forget([own()]));
    return item;
  }
}

/**
 * @param {HTMLElement} item
 * @param {Photo} photo
 * @param {boolean} current
 * @param {(photo: Photo) => string} describe
 */
function showItem(item, photo, current, describe) {
  const [button, remove] = item.children;
  const [image, kind, mark] = /** @type {any} */ (button.children);
  if (image.getAttribute("src") !== photo.thumbnail) image.setAttribute("src", photo.thumbnail);
  image.alt = "";
  image.hidden = photo.thumbnail === "";
  kind.textContent = photo.thumbnail === "" ? photo.kind : "";
  const states = [...photo.outcomes.values()].map(({ state }) => state);
  item.dataset.state = states.includes("failed") ? "failed" : states.includes("waiting") ? "waiting" : "done";
  mark.textContent = item.dataset.state === "failed" ? "!" : "";
  button.setAttribute("aria-current", String(current));
  button.setAttribute("aria-label", describe(photo));
  button.setAttribute("title", describe(photo));
  remove.setAttribute("aria-label", text("remove", { name: photo.name }));
}
