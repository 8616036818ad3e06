"""Data that is made to do harm, damage that nobody can see, and very many annotations."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import cv2
import numpy as np
import pytest

from boxcrew.data.checks.scan import scan
from boxcrew.data.detection.source import Source, open_source
from tests.helpers.damage import BILLION_LAUGHS, VocSet, write_png_bomb
from tests.helpers.forked import Forked, Job

SIDE = 64  # of the many images
NUM_IMAGES, NUM_BOXES = 1000, 100  # boxes an image


def looked_at(root: Path, cache: Path) -> Source:
    return scan(open_source(root), workers=2, cache=cache)


def test_garbled_jpeg_is_decoded_as_everywhere(real: VocSet, tmp_path: Path) -> None:
    """Damage inside the compressed data changes the picture and nothing else: no library finds it."""
    image = real.image(real.names("train")[3])
    data = image.read_bytes()
    middle = len(data) // 2
    image.write_bytes(data[:middle] + b"\x55" * 100 + data[middle + 100 :])
    source = looked_at(real.root, tmp_path / "cache")
    assert source.problems == ()
    record = next(record for record in source.split("train") if record.path == image)
    assert source.read(record).shape == (224, 224, 3)


def test_billion_laughs_cost_nothing(real: VocSet) -> None:
    real.page(real.names("train")[3]).write_text(BILLION_LAUGHS)
    start = time.process_time()
    source = open_source(real.root)
    assert time.process_time() - start < 1
    assert [problem.kind for problem in source.problems] == ["xml-bomb"]


def test_a_bomb_of_pixels_costs_no_memory(real: VocSet, tmp_path: Path) -> None:
    write_png_bomb(real.image(real.names("train")[3]))
    program = """
from pathlib import Path
from boxcrew.data.checks.scan import scan
from boxcrew.data.detection.source import open_source
peak = lambda: int(next(l for l in open("/proc/self/status") if l.startswith("VmHWM")).split()[1])
source = open_source(given["root"])
before = peak()
for _ in range(2):
    source = scan(open_source(given["root"]), workers=2, cache=Path(given["cache"]))
print(peak() - before, *[problem.kind for problem in source.problems])
"""
    places = {"root": str(real.root), "cache": str(tmp_path / "cache")}
    out, err = Forked(Job(code=program, given=places)).communicate()
    assert out, err
    kilobytes, *kinds = out.split()
    assert kinds == ["image-bomb"]
    assert int(kilobytes) < 50 * 1024


def tiny_boxes() -> list[list[float]]:
    """x, y, width, height in pixels."""
    drawn = np.random.default_rng(0).uniform((0, 0, 1, 1), (60, 60, 3, 3), (NUM_BOXES, 4))
    return [[round(float(v), 2) for v in box] for box in drawn]


def write_images(folder: Path) -> list[Path]:
    """All the same: what they cost to read is another matter."""
    folder.mkdir(parents=True)
    paths = [folder / f"{number:04d}.png" for number in range(NUM_IMAGES)]
    cv2.imwrite(str(paths[0]), np.zeros((SIDE, SIDE, 3), np.uint8))
    for path in paths[1:]:
        shutil.copyfile(paths[0], path)
    return paths


def write_coco(root: Path) -> None:
    paths = write_images(root / "train")
    images = [{"id": i, "file_name": p.name, "width": SIDE, "height": SIDE} for i, p in enumerate(paths)]
    things = [
        {"id": i * NUM_BOXES + j, "image_id": i, "category_id": 1, "bbox": box}
        for i in range(len(paths))
        for j, box in enumerate(tiny_boxes())
    ]
    content = {"images": images, "annotations": things, "categories": [{"id": 1, "name": "dot"}]}
    (root / "annotations").mkdir()
    (root / "annotations" / "instances_train.json").write_text(json.dumps(content))


def write_yolo(root: Path) -> None:
    lines = "".join(
        f"0 {(x + w / 2) / SIDE} {(y + h / 2) / SIDE} {w / SIDE} {h / SIDE}\n" for x, y, w, h in tiny_boxes()
    )
    (root / "labels" / "train").mkdir(parents=True)
    for path in write_images(root / "images" / "train"):
        (root / "labels" / "train" / f"{path.stem}.txt").write_text(lines)
    (root / "data.yaml").write_text("path: .\ntrain: images/train\nval: images/train\nnames: [dot]\n")


@pytest.mark.parametrize("write", [write_coco, write_yolo])
def test_a_hundred_thousand_tiny_annotations(write: Callable[[Path], None], tmp_path: Path) -> None:
    write(tmp_path / "set")
    start = time.monotonic()
    source = looked_at(tmp_path / "set", tmp_path / "cache")
    assert time.monotonic() - start < 60
    records = [record for split in source.splits.values() for record in split]
    assert {len(record.target.boxes) for record in records} == {NUM_BOXES}
    assert len({record.path for record in records}) == NUM_IMAGES
