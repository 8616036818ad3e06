/** What the browser remembers for the page. Where it may remember nothing, the page works without. */

/**
 * Returns what was remembered under a name, or null.
 * @param {string} name
 * @param {"localStorage" | "sessionStorage"} [place] the second forgets when the tab is closed
 * @returns {string | null}
 */
export function recall(name, place = "localStorage") {
  try {
    return window[place].getItem(`boxcrew.${name}`);
  } catch {
    return null;
  }
}

/**
 * Remembers a value under a name.
 * @param {string} name
 * @param {string} value
 * @param {"localStorage" | "sessionStorage"} [place]
 */
export function remember(name, value, place = "localStorage") {
  try {
    window[place].setItem(`boxcrew.${name}`, value);
  } catch {
    // Then it holds until the page is left.
  }
}
