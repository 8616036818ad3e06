"""The page in a real browser, against the real service."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from PIL import Image
from playwright.sync_api import Browser, Page, Route, expect

from boxcrew.runtime.model_file import read_model, with_description
from tests.helpers.pages import (
    chromium,
    detect_requests,
    downloaded,
    drop,
    opened,
    rows,
    set_threshold,
    weak_contrasts,
)
from tests.helpers.served import Served, served

Visit = Callable[..., Page]
TOKEN = "correct-horse"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as running:
        yield running


@pytest.fixture(scope="module")
def files(exported_run: Path, photo: bytes, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two models; the first has sample photos."""
    folder = tmp_path_factory.mktemp("models")
    paths = [folder / "first.onnx", folder / "second.onnx"]
    for path in paths:
        path.write_bytes(spread_scores(exported_run / "model.onnx"))
    samples = folder / "first.samples"
    samples.mkdir()
    for number in range(2):
        (samples / f"{number}.jpg").write_bytes(photo)
    return paths


def spread_scores(path: Path) -> bytes:
    """Return a model whose scores go from 0 to 1 in every photo: those of an untrained one are all alike."""
    file = read_model(path)
    model = onnx.load_from_string(file.onnx)
    (last,) = (node for node in model.graph.node if "scores" in node.output)
    last.output[:] = ["alike"]
    steps = [
        ("ReduceMin", ["alike"], "least"),
        ("ReduceMax", ["alike"], "most"),
        ("Sub", ["alike", "least"], "above"),
        ("Sub", ["most", "least"], "range"),
        ("Div", ["above", "range"], "scores"),
    ]
    model.graph.node.extend(onnx.helper.make_node(kind, sources, [name]) for kind, sources, name in steps)
    del model.metadata_props[:]
    return with_description(model.SerializeToString(), file.info)


@pytest.fixture(scope="module")
def service(browser: Browser, files: list[Path]) -> Iterator[Served]:
    """A service of both. Without a browser nothing is started."""
    with served(f"runs={','.join(map(str, files))}", "timeout=20") as running:
        yield running


@pytest.fixture
def visit(browser: Browser, service: Served) -> Iterator[Visit]:
    """Open the page: `visit(locale="zh-CN", …)`, with the options of a browser's context."""
    with ExitStack() as pages:
        yield lambda **options: pages.enter_context(opened(browser, service.url, **options))


@pytest.fixture(scope="module")
def found(service: Served, photo: bytes) -> list[dict[str, Any]]:
    """What the service finds in the photo, from the lowest score up."""
    result = service.ask("/v1/detect?model=first&score=0.01", photo).json["results"][0]
    detections: list[dict[str, Any]] = result["detections"]
    assert len(detections) > 3
    return detections


def middle(found: list[dict[str, Any]]) -> float:
    """Return a threshold with two decimals that some detections pass and others do not."""
    scores: list[float] = sorted({round(detection["score"], 2) for detection in found})
    assert len(scores) > 1
    return scores[len(scores) // 2]


def check_rows(page: Page, expected: list[dict[str, Any]], pane: int = 0) -> None:
    table = page.locator(".pane").nth(pane).locator("tbody tr")
    expect(table).to_have_count(len(expected))
    for (name, score, box), detection in zip(rows(page, pane), expected, strict=True):
        left, top, right, bottom = detection["box"]
        assert name == detection["name"]
        assert float(score) == pytest.approx(detection["score"], abs=0.00501)
        numbers = [int(number) for number in box.split(", ")]
        assert numbers == pytest.approx([left, top, right - left, bottom - top], abs=0.5001)


def test_dropped_photo(visit: Visit, photo: bytes, found: list[dict[str, Any]]) -> None:
    page = visit()
    drop(page, {"street.jpg": photo})
    set_threshold(page, 0.01)
    check_rows(page, found)
    expect(page.locator(".caption")).to_have_text("street.jpg · 480 × 360")
    canvas = page.locator("canvas")
    expect(canvas).to_have_attribute("aria-label", re.compile(rf"street\.jpg with {len(found)} boxes"))
    # The best box is painted over the others: in the middle of its left edge there is its color.
    left, top, _, bottom = found[0]["box"]
    pixel = canvas.evaluate(
        """(canvas, [x, y, width]) => {
          const scale = canvas.width / width;
          return [...canvas.getContext("2d").getImageData(x * scale + 1, y * scale, 1, 1).data.slice(0, 3)];
        }""",
        [max(0, left), (top + bottom) / 2, 480],
    )
    color = page.locator(".class .dot").nth(found[0]["label"]).evaluate("dot => dot.style.backgroundColor")
    assert pixel == pytest.approx([int(part) for part in re.findall(r"\d+", color)], abs=12)
    canvas.hover()
    expect(page.locator("tr.highlighted")).to_have_count(1)
    page.mouse.move(0, 0)
    expect(page.locator("tr.highlighted")).to_have_count(0)


def test_filters_ask_nothing_of_the_service(visit: Visit, photo: bytes, found: list[dict[str, Any]]) -> None:
    page = visit()
    sent = detect_requests(page)
    drop(page, {"a.jpg": photo})
    threshold = middle(found)
    set_threshold(page, threshold)
    passing = [detection for detection in found if detection["score"] >= threshold]
    assert 0 < len(passing) < len(found)
    check_rows(page, passing)
    name = passing[0]["name"]
    page.get_by_role("button", name=f"{name}, ").click()
    check_rows(page, [detection for detection in passing if detection["name"] != name])
    page.get_by_role("button", name="None", exact=True).click()
    check_rows(page, [])
    expect(page.get_by_text("Nothing here with this score or more.")).to_be_visible()
    page.get_by_role("button", name="All", exact=True).click()
    page.get_by_role("button", name="Suggested: 0.25").click()
    check_rows(page, [detection for detection in found if detection["score"] >= 0.25])
    assert len(sent) == 1
    assert "score=0.01" in sent[0]


def test_pasted_photo(visit: Visit) -> None:
    page = visit(permissions=["clipboard-read", "clipboard-write"])
    page.evaluate("""async () => {
      const canvas = new OffscreenCanvas(90, 60);
      canvas.getContext("2d").fillRect(0, 0, 50, 50);
      const blob = await canvas.convertToBlob({ type: "image/png" });
      await navigator.clipboard.write([new ClipboardItem({ "image/png": blob })]);
    }""")
    page.keyboard.press("Control+V")
    expect(page.locator(".counts")).to_contain_text("candidates")
    expect(page.locator(".history li")).to_have_count(1)


def test_several_chosen_photos(visit: Visit, photo: bytes, tmp_path: Path) -> None:
    page = visit()
    for name in ("one.jpg", "two.jpg"):
        (tmp_path / name).write_bytes(photo)
    page.set_input_files("#files", [tmp_path / "one.jpg", tmp_path / "two.jpg"])
    strip = page.locator(".history .thumbnail")
    expect(strip).to_have_count(2)
    expect(strip.first).to_have_attribute("aria-label", re.compile(r"one\.jpg: \d+ objects?"))
    expect(page.locator("canvas")).to_have_attribute("aria-label", re.compile(r"^one\.jpg"))
    page.get_by_role("button", name=re.compile(r"^two\.jpg: \d+ object")).click()
    expect(page.locator("canvas")).to_have_attribute("aria-label", re.compile(r"^two\.jpg"))
    expect(strip.nth(1)).to_have_attribute("aria-current", "true")


def test_sample_photo(visit: Visit, found: list[dict[str, Any]]) -> None:
    page = visit()
    expect(page.get_by_text("No photo at hand?")).to_be_visible()
    page.get_by_role("button", name="Sample 2").click()
    set_threshold(page, 0.01)
    check_rows(page, found)


def test_two_models(visit: Visit, photo: bytes, found: list[dict[str, Any]]) -> None:
    page = visit()
    sent = detect_requests(page)
    drop(page, {"a.jpg": photo})
    set_threshold(page, 0.01)
    check_rows(page, found)
    page.get_by_role("button", name="Compare two models").click()
    set_threshold(page, middle(found), pane=1)
    check_rows(page, [detection for detection in found if detection["score"] >= middle(found)], pane=1)
    check_rows(page, found)
    assert [re.findall(r"model=(\w+)", url) for url in sent] == [["first"], ["second"]]
    page.locator(".class").first.click()  # a class that is hidden is so in both
    assert page.locator(".pane .class:first-child").count() >= 2
    for pane in (0, 1):
        chip = page.locator(".pane").nth(pane).locator(".class").first
        expect(chip).to_have_attribute("aria-pressed", "false")
    page.get_by_role("button", name="Compare two models").click()
    expect(page.locator(".pane")).to_have_count(1)


def test_camera(visit: Visit) -> None:
    page = visit(permissions=["camera"])
    sent = detect_requests(page)
    page.get_by_role("button", name="Camera", exact=True).click()
    expect(page.get_by_label("Which camera")).to_contain_text("fake_device_0")
    expect(page.locator("#rate")).to_contain_text("pictures a second")
    expect(page.locator(".counts")).to_contain_text("candidates")
    page.get_by_label("Boxes on the live picture").uncheck()
    expect(page.locator("#rate")).to_be_empty()
    expect(page.locator(".counts")).to_be_empty()
    page.get_by_label("Which camera").select_option("fake_device_1")
    page.get_by_label("Boxes on the live picture").check()
    expect(page.locator("#rate")).to_contain_text("pictures a second")
    assert page.get_by_label("Which camera").locator("option:checked").inner_text() == "fake_device_1"
    page.get_by_role("button", name="Take a photo").click()
    expect(page.locator("#live")).to_be_hidden()
    expect(page.locator(".history .thumbnail")).to_have_attribute(
        "aria-label", re.compile(r"camera-.*\.jpg: \d+ obj")
    )
    assert len(sent) >= 2


def test_refused_camera(visit: Visit) -> None:
    page = visit()
    page.evaluate("""navigator.mediaDevices.getUserMedia = async () => {
      throw new DOMException("", "NotAllowedError");
    }; 0""")
    page.get_by_role("button", name="Camera", exact=True).click()
    expect(page.get_by_role("alert")).to_contain_text("did not allow the camera")
    expect(page.locator("#live")).to_be_hidden()


def test_chinese(visit: Visit, photo: bytes) -> None:
    page = visit(locale="zh-CN")
    expect(page.get_by_text("把照片拖到这里")).to_be_visible()
    assert page.locator("html").get_attribute("lang") == "zh-CN"
    drop(page, {"a.jpg": photo})
    expect(page.locator(".counts")).to_contain_text("候选框")
    page.get_by_label("语言").select_option("en")
    expect(page.locator(".counts")).to_contain_text("candidates shown")
    page.reload()
    expect(page.get_by_text("Drop a photo here")).to_be_visible()  # the choice is remembered


def test_every_text_is_in_both_languages(visit: Visit) -> None:
    page = visit()
    texts = page.evaluate("""async () => {
      const { LANGUAGES } = await import("/static/texts.js");
      return LANGUAGES;
    }""")
    assert texts["en"].keys() == texts["zh"].keys()
    for key, english in texts["en"].items():
        assert sorted(re.findall(r"{\w+}", english)) == sorted(re.findall(r"{\w+}", texts["zh"][key])), key
    named = page.evaluate("""() => [...document.querySelectorAll("template")]
      .map((template) => template.content).concat(document)
      .flatMap((root) => [...root.querySelectorAll("[data-text], [data-label], [data-title]")])
      .flatMap((element) => Object.entries(element.dataset))
      .filter(([name]) => ["text", "label", "title"].includes(name)).map(([, key]) => key)""")
    assert set(named) <= texts["en"].keys()


def test_keyboard_alone(visit: Visit, found: list[dict[str, Any]]) -> None:
    page = visit()
    expect(page.locator(".samples li")).to_have_count(2)

    def tab_to(selector: str) -> None:
        for _ in range(60):
            page.keyboard.press("Tab")
            if page.evaluate("selector => document.activeElement.matches(selector)", selector):
                return
        raise AssertionError(f"Tab never comes to {selector}")

    tab_to(".samples button")
    page.keyboard.press("Enter")
    expect(page.locator(".counts")).to_contain_text("candidates")
    tab_to("input[type=range]")
    page.keyboard.press("Home")
    expect(page.locator(".threshold .value")).to_have_text("0.01")
    check_rows(page, found)
    tab_to("tbody tr")
    page.keyboard.press("ArrowDown")
    expect(page.locator("tbody tr").nth(1)).to_be_focused()
    expect(page.locator("tbody tr").nth(1)).to_have_class("highlighted")
    expect(page.get_by_role("status")).to_contain_text(f"{len(found)} objects")
    tab_to("button[value=picture]")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_readable_by_eyes_and_by_machines(visit: Visit, photo: bytes, scheme: str) -> None:
    page = visit(color_scheme=scheme)
    assert weak_contrasts(page) == []
    page.get_by_role("button", name="Compare two models").click()
    drop(page, {"a.jpg": photo})
    expect(page.locator(".counts").nth(1)).to_contain_text("candidates")
    assert weak_contrasts(page) == []
    tree = page.locator("body").aria_snapshot()
    assert '- region "first"' in tree
    assert '- region "second"' in tree
    nameless = r"^\s*- (button|combobox|slider|checkbox|textbox|link|region|dialog|table)( \[.*\])?:?$"
    assert re.findall(nameless, tree, re.MULTILINE) == []


def test_phone(visit: Visit, photo: bytes) -> None:
    page = visit(
        viewport={"width": 360, "height": 740}, device_scale_factor=2, is_mobile=True, has_touch=True
    )

    def check_width() -> None:
        assert page.evaluate("document.documentElement.scrollWidth") == 360

    expect(page.locator(".samples li")).to_have_count(2)
    check_width()
    drop(page, {f"{'long' * 30}.jpg": photo})
    expect(page.locator(".counts")).to_contain_text("candidates")
    set_threshold(page, 0.01)
    check_width()
    page.get_by_role("button", name="Compare two models").click()
    expect(page.locator(".counts").nth(1)).to_contain_text("candidates")
    check_width()
    sharp = page.locator("canvas").first.evaluate("canvas => canvas.width / canvas.clientWidth")
    assert sharp == pytest.approx(2, abs=0.02)


def test_dark_and_light(visit: Visit) -> None:
    page = visit(color_scheme="dark")

    def brightness() -> int:
        color = page.evaluate("getComputedStyle(document.body).backgroundColor")
        return int(np.mean([int(part) for part in re.findall(r"\d+", color)[:3]]))

    assert brightness() < 40
    page.get_by_label("Colors").select_option("light")
    assert brightness() > 220
    page.reload()
    assert brightness() > 220
    page.get_by_label("Colors").select_option("auto")
    assert brightness() < 40


def test_downloads(visit: Visit, photo: bytes, found: list[dict[str, Any]]) -> None:
    page = visit()
    drop(page, {"street.v2.jpg": photo})
    threshold = middle(found)
    set_threshold(page, threshold)
    shown = [detection for detection in found if detection["score"] >= threshold]
    check_rows(page, shown)
    name, content = downloaded(page, "json")
    document = json.loads(content)
    assert (name, document["image"], document["threshold"]) == ("street.v2.json", "street.v2.jpg", threshold)
    assert (document["width"], document["height"], document["detections"]) == (480, 360, shown)
    assert document["model"]["name"] == "first"
    name, content = downloaded(page, "coco")
    coco = json.loads(content)
    assert name == "street.v2-coco.json"
    assert coco["images"] == [{"id": 0, "file_name": "street.v2.jpg", "width": 480, "height": 360}]
    names = {category["id"]: category["name"] for category in coco["categories"]}
    assert [names[one["category_id"]] for one in coco["annotations"]] == [one["name"] for one in shown]
    left, top, right, bottom = shown[0]["box"]
    assert coco["annotations"][0]["bbox"] == pytest.approx([left, top, right - left, bottom - top], abs=0.006)
    name, content = downloaded(page, "yolo")
    numbers = np.loadtxt(io.BytesIO(content), ndmin=2)
    assert name == "street.v2.txt"
    assert numbers[:, 0].tolist() == [detection["label"] for detection in shown]
    expected = [(left + right) / 960, (top + bottom) / 720, (right - left) / 480, (bottom - top) / 360]
    assert numbers[0, 1:5] == pytest.approx(expected, abs=1e-6)
    name, content = downloaded(page, "picture")
    assert name == "street.v2-boxes.jpg"
    picture, plain = (np.asarray(Image.open(io.BytesIO(data)), np.int64) for data in (content, photo))
    assert picture.shape == (360, 480, 3)
    assert np.abs(picture - plain).max() > 60  # the boxes


def test_large_photo_is_painted_upright(visit: Visit, photo: bytes) -> None:
    turned = io.BytesIO()
    exif = Image.Exif()
    exif[0x0112] = 6  # upright after a quarter turn
    large = Image.open(io.BytesIO(photo)).resize((2400, 1800), Image.Resampling.NEAREST)
    large.save(turned, "JPEG", exif=exif)
    page = visit()
    drop(page, {"phone.jpg": turned.getvalue()})
    expect(page.locator(".counts")).to_contain_text("candidates")
    expect(page.locator(".notice")).to_be_hidden()
    page.get_by_role("button", name="None", exact=True).click()  # the photo alone is painted
    painted = page.locator("canvas").evaluate("""canvas => {
      const { width, height } = canvas;
      const { data } = canvas.getContext("2d").getImageData(0, 0, width, height);
      const numbers = [];
      for (let y = 0; y < 8; y += 1) for (let x = 0; x < 6; x += 1) {
        const start = 4 * (Math.floor((y + 0.5) * height / 8) * width + Math.floor((x + 0.5) * width / 6));
        numbers.push([...data.slice(start, start + 3)]);
      }
      return numbers;
    }""")
    upright = np.rot90(np.asarray(large), k=-1)[150::300, 150::300].reshape(-1, 3)
    assert np.abs(np.array(painted) - upright).max() < 40


def test_photo_that_the_browser_cannot_show(visit: Visit, photo: bytes) -> None:
    tiff = io.BytesIO()
    Image.open(io.BytesIO(photo)).save(tiff, "TIFF")
    page = visit()
    drop(page, {"scan.tiff": tiff.getvalue()}, kind="image/tiff")
    expect(page.locator(".notice")).to_contain_text("cannot show TIFF files")
    set_threshold(page, 0.01)
    assert len(rows(page)) > 3
    expect(page.locator(".history .thumbnail span")).to_have_text("TIFF")


def test_files_that_are_no_photos(visit: Visit, photo: bytes) -> None:
    page = visit()
    sent = detect_requests(page)
    drop(page, {"notes.txt": b"milk"}, kind="text/plain")
    expect(page.get_by_role("alert")).to_contain_text("notes.txt is not a photo")
    drop(page, {"film.mp4": b"..."}, kind="video/mp4")
    expect(page.get_by_role("alert")).to_contain_text("film.mp4 is a video")
    assert sent == []
    drop(page, {"<img src=x onerror=alert(1)>.jpg": photo[: len(photo) // 2]})
    notice = page.locator(".notice")
    expect(notice.locator(".more")).to_contain_text("Request ")
    expect(notice.locator(".text")).to_contain_text("send the photo whole")
    expect(page.locator(".history .thumbnail b")).to_have_text("!")
    page.get_by_role("button", name="Try again").click()
    expect(notice.locator(".text")).to_contain_text("send the photo whole")
    assert len(sent) == 2


def test_busy_service(visit: Visit, photo: bytes) -> None:
    page = visit()
    refusals = iter([429, 503])

    def answer(route: Route) -> None:
        status = next(refusals, None)
        if status is None:
            route.continue_()
        else:
            route.fulfill(status=status, headers={"Retry-After": "1"}, json={"error": "full"})

    page.route("**/v1/detect*", answer)
    drop(page, {"a.jpg": photo})
    expect(page.locator(".notice")).to_contain_text("The service is busy. Next try in 1 s.")
    expect(page.locator(".counts")).to_contain_text("candidates")
    expect(page.locator(".notice")).to_be_hidden()


def test_history_frees_its_memory(visit: Visit, photo: bytes) -> None:
    page = visit()
    expect(page.locator(".samples li")).to_have_count(2)
    before = page.evaluate("window.objectUrls.size")
    drop(page, {"a.jpg": photo, "b.jpg": photo, "c.jpg": photo})
    strip = page.locator(".history li")
    expect(strip).to_have_count(3)
    expect(page.locator(".history img[src^=blob]")).to_have_count(3)
    strip.nth(0).hover()
    page.get_by_role("button", name="Forget a.jpg").click()
    expect(strip).to_have_count(2)
    expect(page.locator("canvas")).to_have_attribute("aria-label", re.compile(r"^b\.jpg"))
    page.get_by_role("button", name="Forget all").click()
    expect(page.get_by_text("Drop a photo here")).to_be_visible()
    assert page.evaluate("window.objectUrls.size") == before


def test_new_weights_are_noticed(visit: Visit, service: Served, photo: bytes) -> None:
    page = visit()
    described = service.ask("/v1/models").json
    for model in described:
        model["digest"] = "0" * 64
    page.route("**/v1/models", lambda route: route.fulfill(json=described))
    page.reload()
    expect(page.locator(".samples li")).to_have_count(2)
    page.unroute("**/v1/models")
    drop(page, {"a.jpg": photo})
    digest = service.ask("/v1/models/first").json["digest"]
    expect(page.locator(".facts")).to_contain_text(digest.removeprefix("sha256:")[:12])


def test_token(browser: Browser, files: list[Path], photo: bytes) -> None:
    with served(f"run={files[0]}", f"token={TOKEN}", ready=False) as guarded:
        guarded.wait_until_ready()
        with opened(browser, guarded.url) as page:
            dialog = page.get_by_role("dialog")
            dialog.get_by_label("Token").fill("guessed-it")
            dialog.get_by_role("button", name="Continue").click()
            expect(dialog.get_by_role("alert")).to_contain_text("not accepted")
            dialog.get_by_label("Token").fill(TOKEN)
            page.keyboard.press("Enter")
            expect(dialog).to_be_hidden()
            expect(page.locator(".samples li img").first).to_be_visible()
            drop(page, {"a.jpg": photo})
            expect(page.locator(".counts")).to_contain_text("candidates")
            page.reload()  # this tab keeps it
            expect(page.locator(".samples li")).to_have_count(2)
            assert page.evaluate("[localStorage.length, sessionStorage.length]") == [0, 1]
            page.evaluate("sessionStorage.clear()")
            page.reload()
            page.get_by_role("button", name="Cancel").click()
            expect(page.get_by_role("alert").first).to_contain_text("needs a token")


def test_service_that_is_gone(browser: Browser, files: list[Path], photo: bytes) -> None:
    with served(f"run={files[0]}") as ending, opened(browser, ending.url) as page:
        expect(page.locator(".samples li")).to_have_count(2)
        page.route("**/v1/detect*", lambda route: route.abort())
        drop(page, {"a.jpg": photo})
        expect(page.locator(".notice")).to_contain_text("The service does not answer.")
        page.unroute("**/v1/detect*")
        page.get_by_role("button", name="Try again").click()
        expect(page.locator(".counts")).to_contain_text("candidates")
