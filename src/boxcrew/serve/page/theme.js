// Sets the remembered colors before the page is painted, so that it does not flash in the others.
// It is no module: modules run after the first paint.
"use strict";

try {
  document.documentElement.dataset.theme = window.localStorage.getItem("boxcrew.theme") ?? "auto";
} catch {
  document.documentElement.dataset.theme = "auto"; // a browser that remembers nothing
}
