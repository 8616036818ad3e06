/** Short ways to find, make and reuse elements. Texts are never markup: names come from files of strangers. */

/**
 * Returns the element that a selector names; the page has it.
 * @param {ParentNode} root
 * @param {string} selector
 * @returns {any}
 */
export function find(root, selector) {
  const element = root.querySelector(selector);
  if (element === null) throw new Error(`no element ${selector}`);
  return element;
}

/**
 * Returns a new element.
 * @param {string} name
 * @param {{class?: string, text?: string, type?: string}} [options]
 * @param {...Node} children
 * @returns {any}
 */
export function make(name, options = {}, ...children) {
  const element = document.createElement(name);
  if (options.class) element.className = options.class;
  if (options.text !== undefined) element.textContent = options.text;
  if (options.type) element.setAttribute("type", options.type);
  element.append(...children);
  return element;
}

/**
 * Returns as many children of a list as there are items: those there are stay, so that focus does.
 * @param {Element} list
 * @param {number} count
 * @param {() => Element} create
 * @returns {any[]}
 */
export function children(list, count, create) {
  while (list.children.length > count) list.lastElementChild?.remove();
  while (list.children.length < count) list.append(create());
  return [...list.children];
}
