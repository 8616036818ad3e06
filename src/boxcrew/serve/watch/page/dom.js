// Elements made from values. Text is always text: names of files and classes may hold anything.

const SVG = "http://www.w3.org/2000/svg";

export function el(name, attributes = {}, ...children) {
  return fill(document.createElement(name), attributes, children);
}

export function svg(name, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, name), attributes, children);
}

function fill(element, attributes, children) {
  for (const [key, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else element.setAttribute(key, value === true ? "" : value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

// Calls `make` for the children of an element only if what they are made from has changed, so that selections
// and scroll positions stay. The focus stays on the element with the same `data-focus`.
const seen = new WeakMap();
export function refresh(parent, state, make) {
  const text = JSON.stringify(state);
  if (seen.get(parent) === text) return;
  seen.set(parent, text);
  const active = parent.contains(document.activeElement) ? document.activeElement.dataset.focus : undefined;
  parent.replaceChildren(...make().filter((child) => child !== null));
  if (active === undefined) return;
  const again = [...parent.querySelectorAll("[data-focus]")].find((each) => each.dataset.focus === active);
  again?.focus({ preventScroll: true });
}

export const remembered = {
  get(key, otherwise) {
    try {
      const text = localStorage.getItem(`boxcrew.watch.${key}`);
      return text === null ? otherwise : JSON.parse(text);
    } catch {
      return otherwise;
    }
  },
  set(key, value) {
    try {
      localStorage.setItem(`boxcrew.watch.${key}`, JSON.stringify(value));
    } catch {
      // A browser that keeps nothing: the choice lasts as long as the page.
    }
  },
};
