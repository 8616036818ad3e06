"""Everything that `boxcrew predict source=` takes, and what it leaves behind."""

from __future__ import annotations

import io
import json
import os
import signal
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest

from boxcrew.cli import predict_sources
from boxcrew.cli.document import Document
from boxcrew.cli.output import Output
from boxcrew.cli.predict_files import write_results
from boxcrew.data.images.reading import read_image
from boxcrew.data.images.video import VideoFile, open_video
from boxcrew.report.predictions import ClassResult
from boxcrew.report.predictions_folder import ClassFile
from boxcrew.runtime.engine_facts import EngineFacts
from tests.helpers.made_examples import write_classes
from tests.helpers.untrained import untrained_run

Call = Callable[..., Any]


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="module")
def photos(tiny_set: Path) -> list[Path]:
    return sorted((tiny_set / "JPEGImages").iterdir())


@pytest.fixture(scope="module")
def clip(photos: list[Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Ten frames, one of each photo, at 5 frames a second."""
    file = VideoFile(tmp_path_factory.mktemp("video") / "clip", (160, 120), 5.0)
    for photo in photos[:10]:
        file.add(cv2.resize(read_image(photo), (160, 120)))
    file.close()
    return file.path


@pytest.fixture(scope="module")
def classifier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("classifier")
    write_classes(folder / "photos", {"bowl": 4, "cup": 4})
    task = {"name": "classification", "net": {"name": "fc", "widths": [8]}}
    return untrained_run(folder / "run", {"task": task, "data": str(folder / "photos")})


def give_stdin(monkeypatch: pytest.MonkeyPatch, data: bytes) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))


def refused(boxcrew: Call, code: int, message: str, *words: str) -> None:
    """Nothing may be left behind."""
    before = set(Path.cwd().rglob("*"))
    result = boxcrew("predict", *words)
    assert result.code == code, result
    if "--json" in words:
        assert json.loads(result.out)["exit"] == code
    assert message in result.err, result.err
    assert "results:" not in result.out + result.err
    assert set(Path.cwd().rglob("*")) == before


def test_a_video_has_a_line_for_each_frame_and_a_copy_with_boxes(
    boxcrew: Call, tiny_run: Path, clip: Path
) -> None:
    result = boxcrew("predict", f"run={tiny_run}", f"source={clip}", "score=0.05", "stride=3", "--json")
    assert result.code == 0, result.err
    document = json.loads(result.out)
    out = Path(document["out"])
    assert "results: runs/detect/predict (clip.mp4 of 4 frames, predictions.jsonl)" in result.err
    assert sorted(path.name for path in out.iterdir()) == ["clip.mp4", "predictions.jsonl"]
    lines = [json.loads(line) for line in (out / "predictions.jsonl").read_text().splitlines()]
    assert lines == document["results"]
    assert [(line["frame"], line["seconds"]) for line in lines] == [(0, 0), (3, 0.6), (6, 1.2), (9, 1.8)]
    assert all(line["detections"] for line in lines)
    drawn = list(open_video(out / "clip.mp4").frames(pytest.fail))
    plain = list(open_video(clip, stride=3).frames(pytest.fail))
    assert drawn[-1].seconds == pytest.approx(1.8, abs=1e-3)
    for with_boxes, without in zip(drawn, plain, strict=True):
        assert np.abs(with_boxes.image.astype(int) - without.image).max() > 80


def test_a_video_and_its_frames_as_images_give_the_same(boxcrew: Call, tiny_run: Path, clip: Path) -> None:
    from boxcrew import Detector

    detector = Detector.load(tiny_run)
    results = list(detector.predict_many(clip, score=0.05, batch=1))
    assert [result.frame.number for result in results if result.frame] == list(range(10))
    for result in results:
        np.testing.assert_array_equal(result.boxes, detector.predict(result.image, score=0.05).boxes)


def test_a_video_can_be_cut_short(boxcrew: Call, tiny_run: Path, clip: Path) -> None:
    result = boxcrew("predict", f"run={tiny_run}", f"source={clip}", "frames=2", "--json")
    assert [frame["frame"] for frame in json.loads(result.out)["results"]] == [0, 1]


def test_a_camera_is_read_until_enough(
    boxcrew: Call, tiny_run: Path, clip: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused(boxcrew, 3, "source=63: there is no camera 63", f"run={tiny_run}", "source=63", "--json")
    real = cv2.VideoCapture
    monkeypatch.setattr(cv2, "VideoCapture", lambda index: real(str(clip)))  # no machine has one
    result = boxcrew("predict", f"run={tiny_run}", "source=0", "frames=4", "score=0.05")
    assert result.code == 0, result.err
    assert "frame 0: " in result.out
    assert "(camera 0.mp4 of 4 frames, predictions.jsonl)" in result.out
    result = boxcrew("predict", f"run={tiny_run}", "source=0")
    assert (result.code, "camera 0: no more frames can be read" in result.err) == (3, True)


def test_a_folder_with_the_name_of_a_camera_is_a_folder(
    boxcrew: Call, tiny_run: Path, photos: list[Path], tmp_path: Path
) -> None:
    (tmp_path / "0").mkdir()
    (tmp_path / "0" / "a.png").write_bytes(photos[0].read_bytes())
    assert "0/a.png: " in boxcrew("predict", f"run={tiny_run}", "source=0").out


def test_an_image_comes_from_stdin(
    boxcrew: Call, tiny_run: Path, photos: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = boxcrew("predict", f"run={tiny_run}", f"source={photos[0]}", "score=0.05", "--json")
    give_stdin(monkeypatch, photos[0].read_bytes())
    result = boxcrew("predict", f"run={tiny_run}", "source=-", "score=0.05", "--json")
    (image,) = json.loads(result.out)["results"]
    assert image["image"] == "stdin"
    assert image["detections"] == json.loads(expected.out)["results"][0]["detections"] != []
    assert Path("runs/detect/predict-2/labels/stdin.txt").is_file()
    for data, message in ((b"", "nothing came from stdin"), (b"hello", "source=-: not an image of a known")):
        give_stdin(monkeypatch, data)
        refused(boxcrew, 3, message, f"run={tiny_run}", "source=-", "--json")
    give_stdin(monkeypatch, bytes(2000))
    monkeypatch.setattr(predict_sources, "MAX_BYTES", 1000)
    refused(boxcrew, 3, "source=-: more than 1000 B", f"run={tiny_run}", "source=-")


def test_a_list_of_paths_is_followed(
    boxcrew: Call, tiny_run: Path, photos: list[Path], tmp_path: Path
) -> None:
    lists = tmp_path / "lists"
    lists.mkdir()
    (lists / "a.png").write_bytes(photos[0].read_bytes())
    (lists / "mine.txt").write_text(f"# two\n{photos[1]}\n\na.png\nmissing.png\n")
    result = boxcrew("predict", f"run={tiny_run}", "source=lists/mine.txt", "--json")
    names = [image["image"] for image in json.loads(result.out)["results"]]
    assert names == [str(photos[1]), "lists/a.png"]
    assert "left out: lists/missing.png: no such image file" in result.err


class Handler(BaseHTTPRequestHandler):
    """A server of one photo, and of trouble."""

    photo: bytes

    def do_GET(self) -> None:
        moved = {"/moved.png": "/photo.png", "/local": "file:///etc/hostname", "/round": "/round"}
        if self.path in moved:
            self.send_response(302)
            self.send_header("Location", moved[self.path])
            self.end_headers()
        elif self.path == "/page":
            self._answer(b"<html>")
        elif self.path == "/short.png":
            self._answer(self.photo, length=2 * len(self.photo))
        elif self.path.startswith("/photo.png"):
            self._answer(self.photo)
        else:
            self.send_error(404)

    def _answer(self, data: bytes, length: int | None = None) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(length or len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def url(photos: list[Path], monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setenv("no_proxy", "*")
    Handler.photo = photos[0].read_bytes()
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def test_an_image_is_downloaded_only_if_asked_for(boxcrew: Call, tiny_run: Path, url: str) -> None:
    source = f"source={url}/photo.png?size=1"
    message = f"error: {source}: a URL, and nothing is downloaded unless you say so\n  add download=true"
    refused(boxcrew, 2, message, f"run={tiny_run}", source)
    for place in ("photo.png?size=1", "moved.png"):
        words = (f"source={url}/{place}", "download=true", "score=0.05", "--json")
        result = boxcrew("predict", f"run={tiny_run}", *words)
        assert result.code == 0, result.err
        (image,) = json.loads(result.out)["results"]
        assert image["image"] == f"{url}/{place}"
        assert image["detections"]
    names = sorted(path.name for path in Path("runs/detect").rglob("*.jpg"))
    assert names == ["moved.jpg", "photo.jpg"]


@pytest.mark.parametrize(
    ("place", "message"),
    [
        ("/gone.png", "the server answers 404 Not Found"),
        ("/local", "the server answers 302"),
        ("/round", "the server answers 302"),
        ("/page", "not an image of a known kind"),
        ("/short.png", "the connection ended "),
    ],
)
def test_trouble_with_a_download_is_told(
    boxcrew: Call, tiny_run: Path, url: str, place: str, message: str
) -> None:
    source = f"source={url}{place}"
    refused(boxcrew, 3, f"{source}: {message}", f"run={tiny_run}", source, "download=true", "--json")


def test_a_download_has_limits(
    boxcrew: Call, tiny_run: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = (f"run={tiny_run}", f"source={url}/photo.png", "download=true")
    with monkeypatch.context() as patch:
        patch.setattr(predict_sources, "MAX_BYTES", 1000)
        refused(boxcrew, 3, "photo.png: more than 1000 B", *words)
    with monkeypatch.context() as patch:
        patch.setattr(predict_sources, "DOWNLOAD_SECONDS", -1.0)
        refused(boxcrew, 3, "photo.png: not complete after", *words)
    silent = threading.Event()
    monkeypatch.setattr(Handler, "do_GET", lambda _: silent.wait(10))
    monkeypatch.setattr(predict_sources, "SILENCE_SECONDS", 0.1)
    refused(boxcrew, 3, "photo.png: timed out", *words)
    silent.set()
    refused(
        boxcrew, 3, "Connection refused", f"run={tiny_run}", "source=http://127.0.0.1:9/", "download=true"
    )


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (
            ("source=rtsp://10.0.0.1/door",),
            2,
            "rtsp is not understood\n  give an image, a folder, a 'glob*.jpg'",
        ),
        (("source=file:///etc/hostname", "download=true"), 2, "file is not understood"),
        (("source=nothing",), 3, "source=nothing: no image found\n  give an image, a folder, a 'glob*.jpg'"),
        (("source=none.mp4",), 3, "none.mp4: no such video file"),
        (("source=*.mp4",), 3, "*.mp4: no such video file"),
        (("source=x.jpg", "stride=2"), 2, "stride= is for videos and cameras, which source=x.jpg is not"),
        (("source=x.jpg", "frames=2"), 2, "frames= is for videos and cameras"),
        (("source=x.mp4", "stride=0"), 2, "stride: input should be greater than or equal to 1"),
    ],
)
def test_other_sources_are_refused_in_words(
    boxcrew: Call, tiny_run: Path, words: tuple[str, ...], code: int, message: str
) -> None:
    refused(boxcrew, code, message, f"run={tiny_run}", *words, "--json")


def test_files_that_are_no_images_leave_nothing_behind(boxcrew: Call, tiny_run: Path) -> None:
    Path("notes.pdf").write_bytes(b"%PDF")
    refused(
        boxcrew,
        3,
        "source=notes.pdf: nothing in it could be read\n  give",
        f"run={tiny_run}",
        "source=notes.pdf",
    )
    Path("bad.mp4").write_bytes(b"no video")
    refused(boxcrew, 3, "bad.mp4: cannot be read as a video", f"run={tiny_run}", "source=bad.mp4")


def test_a_place_that_cannot_be_written_to_is_told_before_anything_is_computed(
    boxcrew: Call, tiny_run: Path, classifier: Path, photos: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file in the way stands in for a read-only directory, which root could write to."""
    Path("runs").write_text("in the way")
    monkeypatch.setattr("boxcrew.api.detector.Detector._detect", pytest.fail)
    monkeypatch.setattr("boxcrew.api.classifier.Classifier._classify", pytest.fail)
    for run, folder in ((tiny_run, "detect"), (classifier, "classify")):
        message = (
            f"error: out=runs/{folder}/predict: cannot be written to: Not a directory\n  give a directory"
        )
        refused(boxcrew, 2, message, f"run={run}", f"source={photos[0]}")
    refused(
        boxcrew, 2, "out=runs/x: cannot be written to", f"run={tiny_run}", f"source={photos[0]}", "out=runs/x"
    )
    refused(boxcrew, 2, "not empty", f"run={tiny_run}", f"source={photos[0]}", f"out={tiny_run}")


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupted_command_leaves_valid_files(
    boxcrew: Call,
    tiny_run: Path,
    photos: list[Path],
    monkeypatch: pytest.MonkeyPatch,
    number: signal.Signals,
    code: int,
) -> None:
    num_shown = iter(range(len(photos)))
    real = Output.info

    def info(self: Output, text: str, **options: Any) -> None:
        real(self, text, **options)
        if next(num_shown) == 2:
            os.kill(os.getpid(), number)

    monkeypatch.setattr(Output, "info", info)
    result = boxcrew("predict", f"run={tiny_run}", f"source={photos[0].parent}", "score=0.05", "--json")
    assert result.code == code, result.err
    assert "results: runs/detect/predict" in result.err
    document = json.loads(result.out)
    names = [image["image"] for image in document["results"]]
    assert names == [str(photo) for photo in photos[: len(names)]]
    assert 3 <= len(names) < len(photos)
    out = Path("runs/detect/predict")
    assert json.loads((out / "predictions.json").read_text()) == document["results"]
    coco = json.loads((out / "coco.json").read_text())
    assert [image["file_name"] for image in coco["images"]] == names
    num_found = sum(len(image["detections"]) for image in document["results"])
    assert len(coco["annotations"]) == num_found > 0
    assert sorted(path.name for path in out.iterdir()) == [
        "coco.json",
        "images",
        "labels",
        "predictions.json",
    ]


def test_results_are_written_and_forgotten(tmp_path: Path) -> None:
    """A million of them need no more memory than one."""
    alive = weakref.WeakSet[ClassResult]()
    most = 0

    def results() -> Iterator[ClassResult]:
        nonlocal most
        for number in range(50):
            result = ClassResult(source=str(number), probabilities=np.ones(1, np.float32), classes=("a",))
            alive.add(result)
            yield result
            most = max(most, len(alive))

    num = write_results(
        results(),
        tmp_path,
        lambda: ClassFile(tmp_path),
        Output(Document(is_wanted=False)),
        lambda _: None,
        EngineFacts(name="torch", precision="fp32", device="cpu", threads=1),
    )
    assert (num, most) == (50, 1)
    assert len(json.loads((tmp_path / "predictions.json").read_text())) == 50


def test_a_full_disk_is_no_bug_of_ours(
    boxcrew: Call, tiny_run: Path, photos: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("boxcrew.report.predictions.write_image", full)
    result = boxcrew("predict", f"run={tiny_run}", f"source={photos[0]}")
    assert result.code == 1
    assert (
        "error: runs/detect/predict: cannot be written to: No space left on device\n  free some" in result.err
    )


def test_a_classifier_takes_images_but_no_video(
    boxcrew: Call, classifier: Path, clip: Path, photos: list[Path], url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for frames in (clip, 0):
        message = f"source={frames}: a video or camera, which only a detector takes"
        refused(boxcrew, 2, message, f"run={classifier}", f"source={frames}", "--json")
    Path("mine.txt").write_text(f"{photos[0]}\n")
    give_stdin(monkeypatch, photos[0].read_bytes())
    classes = []
    for source, name in (
        (photos[0], str(photos[0])),
        ("mine.txt", str(photos[0])),
        ("-", "stdin"),
        (f"{url}/photo.png", f"{url}/photo.png"),
    ):
        result = boxcrew("predict", f"run={classifier}", f"source={source}", "download=true", "--json")
        assert result.code == 0, result.err
        (sample,) = json.loads(result.out)["results"]
        assert sample["source"] == name
        classes.append(sample["classes"])
    assert classes[0] == classes[1] == classes[2] == classes[3]
    refused(boxcrew, 2, "add download=true", f"run={classifier}", f"source={url}/photo.png")
