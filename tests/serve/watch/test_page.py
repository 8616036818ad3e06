"""The page in a real browser, over real runs and one that grows while it is looked at."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.helpers.copies import copied
from tests.helpers.served import Served, served

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
HOSTILE = "<img src=x onerror=document.title='taken'>"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    sync_api = pytest.importorskip("playwright.sync_api", reason="needs playwright")
    if CHROMIUM is None:
        pytest.skip("needs Chromium")
    with sync_api.sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield chromium
        chromium.close()


@pytest.fixture(scope="module")
def runs(tiny_run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run, one that grows, one that was killed, and two parts of a comparison."""
    folder = tmp_path_factory.mktemp("runs")
    copied(tiny_run, folder / "train")
    grows(folder / "growing", 1, 30, state="running")
    copied(tiny_run, folder / HOSTILE.replace("/", ""))
    with (folder / HOSTILE / "metrics.jsonl").open("a") as metrics:
        metrics.write(json.dumps({"step": 9, "AP": 0.5, f"AP/{HOSTILE}": 0.5}) + "\n")
    (folder / HOSTILE / "summary.json").write_text(
        json.dumps({"advice": [{"finding": HOSTILE}], "state": "failed"})
    )
    (folder / HOSTILE / "status.json").write_text(json.dumps({"state": "failed", "reason": HOSTILE}))
    (folder / "six").mkdir()
    (folder / "six" / "comparison.json").write_text("{}")
    grows(folder / "six" / "yolo", 1, 20, state="finished")
    grows(folder / "six" / "rcnn", 1, 20, state="finished")
    return folder


def grows(run: Path, first: int, last: int, *, state: str) -> None:
    """Write rows as a training does, and its status."""
    run.mkdir(exist_ok=True)
    rows = [
        {"step": step, "epoch": step / 10, "time": step, "loss": 5 / step, "rate": 0.1}
        for step in range(first, last)
    ]
    rows.append(
        {"step": last - 1, "epoch": last / 10, "time": last, "AP": last / 100, "AP/cup": 0.25, "AP/bowl": 0.5}
    )
    with (run / "metrics.jsonl").open("a") as metrics:
        metrics.write("".join(f"{json.dumps(row)}\n" for row in rows))
    status = {
        "state": state,
        "step": last,
        "epoch": last / 10,
        "fraction": last / 100,
        "train_seconds": last,
        "pid": 1,
    }
    (run / "status.json").write_text(json.dumps({**status, "reason": None}))


@pytest.fixture(scope="module")
def server(runs: Path) -> Iterator[Served]:
    with served(f"run={runs}", command="watch", ready=False) as running:
        yield running


@pytest.fixture
def page(browser: Browser, server: Served) -> Iterator[Page]:
    yield from opened(browser, server.url)


def opened(browser: Browser, url: str, *, width: int = 1280, locale: str = "en-GB") -> Iterator[Page]:
    """Open the page; it must not complain, and ask nobody else."""
    context = browser.new_context(viewport={"width": width, "height": 900}, locale=locale)
    page = context.new_page()
    problems: list[str] = []
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on(
        "request",
        lambda request: None if request.url.startswith((url, "blob:")) else problems.append(request.url),
    )
    page.on("console", lambda message: problems.append(message.text) if "Policy" in message.text else None)
    page.goto(url)
    page.wait_for_selector("#run-list li")
    yield page
    assert page.title() != "taken"
    assert problems == []
    context.close()


def eventually(page: Page, expression: str, arg: str | None = None) -> None:
    """Wait until an expression is true. The browser's own way to wait is forbidden by the page's policy."""
    end = time.monotonic() + 20
    while not page.evaluate(expression, arg):
        assert time.monotonic() < end, (expression, page.inner_text("body"))
        page.wait_for_timeout(50)


def focus(page: Page, key: str) -> None:
    page.get_by_role("navigation").get_by_role("button").filter(has_text=key).first.click()
    eventually(page, "key => document.querySelector('#head h2')?.textContent === key", key)


def tick(page: Page, label: str) -> None:
    """Tick a box, which is drawn anew then."""
    box = page.get_by_label(label, exact=True)
    if not box.is_checked():
        box.click()
    assert page.get_by_label(label, exact=True).is_checked()


def test_a_finished_run(page: Page) -> None:
    focus(page, "train")
    page.wait_for_selector("[data-section=plan] table")
    assert "finished" in page.inner_text("#head")
    assert "single on cpu, batch 4" in page.inner_text("[data-section=plan]")
    page.get_by_text("Why", exact=True).click()
    assert "no accelerator found" in page.inner_text("[data-section=plan]")
    assert "seconds of a step" in page.inner_text("[data-section=plan]")
    assert "of the objects fit none of the default boxes" in page.inner_text("[data-section=advice]")
    assert "training: " in page.inner_text("[data-section=log]")
    assert "books" in page.inner_text("[data-section=classes]")
    images = (
        "[...document.querySelectorAll('.gallery img')].filter(each => each.naturalWidth > 0).length >= 2"
    )
    eventually(page, images)
    page.click(".gallery button")
    assert page.is_visible("#large img")
    page.keyboard.press("Escape")
    assert page.is_hidden("#large img")


def test_curves_grow_while_one_looks(page: Page, runs: Path) -> None:
    focus(page, "growing")
    tick(page, "Show the curves of growing")
    label = "document.querySelector('#charts svg')?.getAttribute('aria-label') ?? ''"
    eventually(page, f"({label}).includes('growing 0.1724')")
    grows(runs / "growing", 30, 61, state="running")
    eventually(page, f"({label}).includes('steps 60')")
    (runs / "growing" / "metrics.jsonl").unlink()
    grows(runs / "growing", 1, 12, state="running")
    eventually(page, f"({label}).includes('steps 11')")
    assert "killed" in page.inner_text("#head")
    assert f"boxcrew resume run={runs / 'growing'}" in page.inner_text("#head")


def test_several_runs_are_laid_over_each_other(page: Page) -> None:
    focus(page, "six")
    page.get_by_role("button", name="Show the curves of all parts").click()
    eventually(page, "document.querySelectorAll('#charts figure')[1]?.querySelectorAll('path').length === 2")
    label = page.locator("#charts svg").first.get_attribute("aria-label") or ""
    assert "six/rcnn" in label
    assert "six/yolo" in label
    page.locator("#charts svg").first.hover()
    eventually(page, "document.querySelector('.reading').textContent.includes('six/yolo')")


def test_charts_are_chosen(page: Page) -> None:
    focus(page, "train")
    tick(page, "Show the curves of train")
    page.locator("#picker summary").click()
    tick(page, "AP75")
    eventually(
        page, "() => [...document.querySelectorAll('figcaption')].some(each => each.textContent === 'AP75')"
    )
    page.get_by_label("AP75", exact=True).press("Escape")
    assert page.is_hidden("#choices")
    page.select_option("#axis", "time")
    eventually(
        page,
        "() => document.querySelector('#charts svg').getAttribute('aria-label').includes('training time')",
    )


def test_with_keys_alone(page: Page) -> None:
    focus(page, "six")
    box = page.get_by_label("Show the curves of six/yolo")
    box.focus()
    if not box.is_checked():
        page.keyboard.press("Space")
    page.wait_for_selector("#charts svg")
    chart = page.locator("#charts svg").first
    chart.focus()
    page.keyboard.press("Home")
    eventually(page, "document.querySelector('.reading').textContent.startsWith('steps 1')")
    page.keyboard.press("ArrowRight")
    eventually(page, "document.querySelector('.reading').textContent.startsWith('steps 2')")
    page.keyboard.press("Escape")
    eventually(page, "document.querySelector('.reading').textContent === ''")


def test_what_files_say_is_text(page: Page) -> None:
    focus(page, HOSTILE)
    eventually(page, "name => document.body.textContent.split(name).length > 5", HOSTILE)
    assert HOSTILE in page.inner_text("[data-section=advice]")
    assert HOSTILE in page.inner_text("[data-section=classes]")
    assert page.locator("img[src=x]").count() == 0


def test_on_a_phone_in_chinese_and_dark(browser: Browser, server: Served) -> None:
    for page in opened(browser, server.url, width=360, locale="zh-CN"):
        focus(page, "train")
        page.wait_for_selector("[data-section=plan] table")
        assert page.get_attribute("html", "lang") == "zh-CN"
        assert "已完成" in page.inner_text("#head")
        assert page.evaluate("document.documentElement.scrollWidth") <= 360
        light = page.evaluate("getComputedStyle(document.body).backgroundColor")
        page.click("#theme")
        page.click("#theme")
        assert page.evaluate("getComputedStyle(document.body).backgroundColor") != light
        page.click("#language")
        assert "finished" in page.inner_text("#head")
        page.reload()
        page.wait_for_selector("#run-list li")
        assert page.get_attribute("html", "lang") == "en"  # what was chosen stays
        assert page.get_attribute("html", "data-theme") == "dark"


def test_it_comes_back_after_the_server_was_away(browser: Browser, tiny_run: Path) -> None:
    with served(f"run={tiny_run}", command="watch", ready=False) as first:
        port, url = first.port, first.url
        pages = opened(browser, url)
        page = next(pages)
        assert first.end() == 0
    eventually(page, "document.getElementById('connection').textContent.includes('no connection')")
    assert "finished" in page.inner_text("#head")
    with served(f"run={tiny_run}", f"port={port}", command="watch", ready=False):
        eventually(page, "document.getElementById('connection').textContent === 'live'")
    assert list(pages) == []


def test_the_token_is_asked_for_and_kept(browser: Browser, tiny_run: Path) -> None:
    with served(f"run={tiny_run}", "token=a-long-secret", command="watch", ready=False) as server:
        context = browser.new_context()
        page = context.new_page()
        page.goto(server.url)
        page.fill("#token", "wrong-secret")
        page.keyboard.press("Enter")
        page.wait_for_selector("#ask-wrong:not([hidden])")
        page.fill("#token", "a-long-secret")
        page.keyboard.press("Enter")
        page.wait_for_selector("#run-list li")
        eventually(page, "document.querySelector('.gallery img')?.naturalWidth > 0")
        page.reload()
        page.wait_for_selector("#run-list li")
        assert page.is_hidden("#ask")
        context.close()
