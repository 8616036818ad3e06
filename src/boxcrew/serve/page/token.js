/** The dialog that asks for the token of the service. */

import { find } from "./dom.js";

/**
 * Returns a function that asks the visitor for the token; null if none was given.
 * @returns {(wrong: boolean) => Promise<string | null>}
 */
export function tokenDialog() {
  const dialog = /** @type {HTMLDialogElement} */ (find(document, "#token"));
  const input = /** @type {HTMLInputElement} */ (find(dialog, "input"));
  find(dialog, "form").addEventListener("submit", (/** @type {SubmitEvent} */ event) => {
    event.preventDefault();
    dialog.close(input.value.trim());
  });
  find(dialog, ".cancel").addEventListener("click", () => dialog.close(""));
  return (wrong) => {
    find(dialog, ".wrong").hidden = !wrong;
    input.value = "";
    dialog.returnValue = "";
    dialog.showModal();
    input.focus();
    return new Promise((resolve) => {
      dialog.addEventListener("close", () => resolve(dialog.returnValue || null), { once: true });
    });
  };
}
