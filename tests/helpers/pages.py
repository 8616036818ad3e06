"""A browser, and what people do in it."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

CHROMIUM = Path("/usr/bin/chromium")
_CAMERAS = "--use-fake-device-for-media-stream=device-count=2"
_FLAGS = ("--no-sandbox", _CAMERAS, "--use-fake-ui-for-media-stream")
_WAIT = 15_000.0  # milliseconds that anything may take, at most

_REFUSED = "Failed to load resource: "  # the browser's line about an answer with an error, or none at all
# Every object URL that is not released yet.
_COUNT_URLS = """
window.objectUrls = new Set();
const create = URL.createObjectURL.bind(URL), revoke = URL.revokeObjectURL.bind(URL);
URL.createObjectURL = (blob) => { const url = create(blob); window.objectUrls.add(url); return url; };
URL.revokeObjectURL = (url) => { window.objectUrls.delete(url); revoke(url); };
"""
_DROP = """
([kind, files]) => {
  const transfer = new DataTransfer();
  for (const [name, type, content] of files) {
    const bytes = Uint8Array.from(atob(content), (letter) => letter.charCodeAt(0));
    transfer.items.add(new File([bytes], name, { type }));
  }
  for (const step of ["dragenter", "dragover", "drop"]) {
    const options = { dataTransfer: transfer, bubbles: true, cancelable: true };
    document.body.dispatchEvent(new DragEvent(step, options));
  }
}
"""

# Texts with less contrast than WCAG 2 wants of small ones, 4.5.
_WEAK = """
() => {
  const numbers = (color) => color.match(/[\\d.]+/g).map(Number);
  const light = (color) => {
    const [red, green, blue] = numbers(color).slice(0, 3).map((value) => value / 255)
      .map((value) => (value <= 0.03928 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4));
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
  };
  const ground = (element) => {
    const color = element ? getComputedStyle(element).backgroundColor : "rgb(255, 255, 255)";
    return (numbers(color)[3] ?? 1) === 1 ? color : ground(element.parentElement);
  };
  const hasText = (node) => node.nodeType === Node.TEXT_NODE && node.textContent.trim() !== "";
  const weak = [];
  for (const element of document.querySelectorAll("body *")) {
    if (![...element.childNodes].some(hasText) || !element.checkVisibility() || element.disabled) continue;
    const both = [getComputedStyle(element).color, ground(element)].map(light).sort((a, b) => b - a);
    if ((both[0] + 0.05) / (both[1] + 0.05) < 4.5) weak.push(element.textContent.trim());
  }
  return weak;
}
"""


@contextmanager
def chromium() -> Iterator[Browser]:
    """Run the browser of the system, with two cameras that show a test picture; skip where there is none."""
    if not CHROMIUM.exists():
        pytest.skip(f"needs a browser: {CHROMIUM}")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=list(_FLAGS))
        yield browser
        browser.close()


@contextmanager
def opened(browser: Browser, url: str, **options: Any) -> Iterator[Page]:
    """Open a page like a person who was never there. It must ask no other host and report no error, unless
    an answer of the service says so.
    """
    context = browser.new_context(
        **{"locale": "en-GB", "viewport": {"width": 1280, "height": 900}, **options}
    )
    context.add_init_script(_COUNT_URLS)
    page = context.new_page()
    page.set_default_timeout(_WAIT)
    problems: list[str] = []
    hosts: set[str] = set()
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("console", lambda line: problems.append(line.text) if line.type in ("error", "warning") else None)
    page.on("request", lambda request: hosts.add(urlsplit(request.url).netloc))
    page.goto(url)
    yield page
    context.close()
    problems = [line for line in problems if not line.startswith(_REFUSED)]
    assert problems == [], problems
    assert hosts - {""} == {urlsplit(url).netloc}, hosts  # blob: and data: have none


def weak_contrasts(page: Page) -> list[str]:
    """Return the visible texts that are hard to read."""
    texts: list[str] = page.evaluate(_WEAK)
    return texts


def drop(page: Page, files: Mapping[str, bytes], *, kind: str = "image/jpeg") -> None:
    """Drop files on the page."""
    contents = [[name, kind, base64.b64encode(content).decode()] for name, content in files.items()]
    page.evaluate(_DROP, [kind, contents])


def detect_requests(page: Page) -> list[str]:
    """Return a list that grows with each photo that the page sends."""
    sent: list[str] = []
    page.on("request", lambda request: sent.append(request.url) if "/v1/detect" in request.url else None)
    return sent


def downloaded(page: Page, format: str) -> tuple[str, bytes]:
    """Return the name and content of what a download button gives."""
    with page.expect_download() as waiting:
        page.locator(f"button[value={format}]").first.click()
    download = waiting.value
    return download.suggested_filename, Path(download.path()).read_bytes()


def rows(page: Page, pane: int = 0) -> list[list[str]]:
    """Return the texts of the table of objects: class, score, box."""
    table = page.locator(".pane").nth(pane).locator("tbody tr")
    texts = table.evaluate_all("rows => rows.map(row => [...row.cells].map(cell => cell.textContent))")
    return json.loads(json.dumps(texts))  # type: ignore[no-any-return]


def set_threshold(page: Page, value: float, pane: int = 0) -> None:
    """Move the slider, as a hand does it: through the events of the browser."""
    slider = page.locator("input[type=range]").nth(pane)
    slider.fill(f"{value:.2f}")
