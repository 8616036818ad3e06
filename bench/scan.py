"""The speed of scanning a data set: real photos against Ultralytics, and many annotations of tiny images.

`python -m bench.scan FOLDER` is one measurement in a separate process; `rows` makes it and the peer take
turns.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

import cv2
import numpy as np

from bench.child import in_child
from bench.peers import is_installed, missing, run_peer
from bench.real_data import real_data
from bench.row import Row, alternate_figures, skipped
from bench.yolo_copy import copy_yolo
from boxcrew.data.checks.scan import scan
from boxcrew.data.detection.source import SOURCES, open_source

COPIES, REPEATS = 16, 5
PHOTOS, PHOTO_SIZE, PHOTO_BOXES = 5_000, (640, 480), 7
TINY, TINY_SIZE, TINY_BOXES = 10_000, (48, 48), 10
COMMAND = "python -m bench scan"


def rows() -> list[Row]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        return [_against_ultralytics(folder), *_of_drawn_sets(folder)]


def measure(root: Path, cache: Path) -> dict[str, float]:
    """Return the seconds to open and scan a data set for the first time. Imports are not counted."""
    for name in SOURCES.names():
        SOURCES.get(name)
    wall, cpu = time.perf_counter(), time.process_time()
    source = open_source(root)
    opened = time.perf_counter()
    scan(source, workers=os.cpu_count() or 1, cache=cache)
    end = time.perf_counter()
    return {
        "seconds": end - wall,
        "opening": opened - wall,
        "scanning": end - opened,
        "cpu_seconds": time.process_time() - cpu,
    }


def _against_ultralytics(folder: Path) -> Row:
    what = f"first look at `coco128_yolo`, {COPIES} times over, against Ultralytics' check"
    original = real_data("coco128_yolo")
    if original is None:
        return skipped(what=what, reason="no coco128_yolo", command=COMMAND)
    root = folder / "coco"
    num_images = copy_yolo(original, root, copies=COPIES)
    if not is_installed("ultralytics"):
        (ours,) = alternate_figures([partial(in_child, "scan", str(root))], repeats=REPEATS)
        speed = _speed(num_images, ours)
        return skipped(what=what, reason=missing("ultralytics"), ours=speed, command=COMMAND)
    version = ""

    def peer() -> dict[str, float]:
        nonlocal version
        result = run_peer("ultralytics", "ultralytics_scan", str(root / "data.yaml"))
        assert result["images"] == num_images, result
        version = result["version"]
        return {name: result[name] for name in ("seconds", "cpu_seconds")}

    ours, theirs = alternate_figures([partial(in_child, "scan", str(root)), peer], repeats=REPEATS)
    ratio, cpu_ratio = (theirs[name] / ours[name] for name in ("seconds", "cpu_seconds"))
    return Row(
        what=what,
        ours=_speed(num_images, ours),
        theirs=f"{_speed(num_images, theirs)} (Ultralytics {version})",
        verdict=f"{ratio:.1f} x (aim: 3 x)",
        command=COMMAND,
        detail=f"{num_images:,} photos in the page cache, medians of {REPEATS} processes each, taking turns; "
        f"ours {ours['opening']:.2f} s to open the set and {ours['scanning']:.2f} s to scan it, "
        f"{ours['cpu_seconds']:.2f} s of CPU against {theirs['cpu_seconds']:.2f} s ({cpu_ratio:.1f} x)",
    )


def _speed(num_images: int, figures: dict[str, float]) -> str:
    return f"{num_images / figures['seconds']:,.0f} images/s"


def _of_drawn_sets(folder: Path) -> list[Row]:
    _write(folder / "photos", images=PHOTOS, size=PHOTO_SIZE, boxes=PHOTO_BOXES)
    _write(folder / "tiny", images=TINY, size=TINY_SIZE, boxes=TINY_BOXES)
    _, second = (measure(folder / "photos", folder / "cache") for _ in range(2))
    tiny = measure(folder / "tiny", folder / "cache")
    detail = "files in the page cache; opening reads the annotations"
    return [
        Row(
            what=f"second scan of {PHOTOS:,} unchanged photos",
            ours=f"{second['scanning']:.2f} s",
            theirs="aim: under 1 s",
            verdict=f"{_met(second['scanning'] < 1)}; {second['seconds']:.2f} s with opening the set",
            command=COMMAND,
            detail=detail,
        ),
        Row(
            what=f"{TINY * TINY_BOXES:,} annotations of {TINY:,} tiny images, opened and scanned",
            ours=f"{tiny['seconds']:.1f} s",
            theirs="aim: under 60 s",
            verdict=_met(tiny["seconds"] < 60),
            command=COMMAND,
            detail=detail,
        ),
    ]


def _write(root: Path, *, images: int, size: tuple[int, int], boxes: int) -> None:
    """Write a YOLO set of noisy images of different contrast, so that file sizes differ as with photos."""
    width, height = size
    rng = np.random.default_rng(0)
    noise = cv2.GaussianBlur(rng.integers(0, 256, (height, width, 3), dtype=np.uint8), (0, 0), 2)
    for split in ("train", "val"):
        for kind in ("images", "labels"):
            (root / kind / split).mkdir(parents=True)
    for i in range(images):
        split = "val" if i % 5 == 0 else "train"
        image = (noise * rng.uniform(0.1, 1)).astype(np.uint8)
        _, encoded = cv2.imencode(
            ".jpg", cv2.putText(image, str(i), (2, height // 2), 0, 0.5, (255, 255, 255))
        )
        (root / "images" / split / f"{i}.jpg").write_bytes(encoded.tobytes())
        lines = np.column_stack([rng.uniform(0.2, 0.8, (boxes, 2)), rng.uniform(0.05, 0.3, (boxes, 2))])
        text = "".join(f"0 {x:.5f} {y:.5f} {w:.5f} {h:.5f}\n" for x, y, w, h in lines)
        (root / "labels" / split / f"{i}.txt").write_text(text)
    (root / "data.yaml").write_text("train: images/train\nval: images/val\nnames: [thing]\n")


def _met(reached: object) -> str:
    return "met" if reached else "missed"


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as caches:
        print(json.dumps(measure(Path(sys.argv[1]), Path(caches))))
