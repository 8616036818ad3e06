"""Damaged label files of COCO and YOLO: every object is read or accounted for, and nothing crashes."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from boxcrew.core.errors import DataError
from boxcrew.data.detection.source import SOURCES, Source
from boxcrew.data.images.reading import write_image
from boxcrew.testing.sources import check_invariants

NUM_IMAGES = 3
WORDS = ["", "-1", "99", "1e999", "nan", "null", "[]", "{}", "true", "10000000000000", "../x"]
VALUES = [
    "null", "true", "-1", "0", "1", "2.5", "1e999", "NaN", "1" + "0" * 300, '""', '"1"', '"x.png"', '"../x"',
    '"http://["', '"\\ud800"', "[]", "{}", "[[]]", "[null]", "[1, 2, 3, 4]", '{"id": 1}',
]  # fmt: skip
FEW = settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)


@st.composite
def damages(draw: st.DrawFn, content: bytes) -> bytes:
    """Return the content with some bytes changed, a part cut out, or a word replaced."""
    data = bytearray(content)
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(data) - 1))
        match draw(st.sampled_from(["flip", "cut", "end", "word"])):
            case "flip":
                data[at] ^= 1 << draw(st.integers(0, 7))
            case "cut":
                del data[at : at + draw(st.integers(1, 40))]
            case "end":
                del data[max(1, at) :]
            case "word":
                words = bytes(data).split(b" ")
                words[at % len(words)] = draw(st.sampled_from(WORDS)).encode()
                data = bytearray(b" ".join(words))
        data = data or bytearray(b" ")
    return bytes(data)


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("set") / "images"
    folder.mkdir()
    for i in range(NUM_IMAGES):
        write_image(folder / f"{i}.png", np.zeros((30, 40, 3), dtype=np.uint8))
    return folder


def opened(root: Path, format: str) -> Source | None:
    """Return the set; None if it is refused."""
    SOURCES.get(format).detect(root)
    try:
        source = SOURCES.get(format).open(root)
    except DataError as error:
        refusal = error.message
    else:
        check_invariants(source)
        return source
    assert str(root) in refusal
    return None


def coco(num_images: int) -> bytes:
    shapes: list[dict[str, Any]] = [
        {"bbox": [4, 3, 20, 10]},
        {"segmentation": [[4, 3, 24, 3, 24, 13]]},
        {"segmentation": {"size": [30, 40], "counts": [153, 7, 23, 7, 1010]}},
        {"segmentation": {"size": [30, 40], "counts": "i47g0000000000000000000000000000eb0"}},
    ]
    objects = [
        {"id": i * len(shapes) + j, "image_id": i, "category_id": j % 2, **shape}
        for i in range(num_images)
        for j, shape in enumerate(shapes)
    ]
    listed = [{"id": i, "file_name": f"{i}.png", "width": 40, "height": 30} for i in range(num_images)]
    categories = [{"id": 0, "name": "tea", "supercategory": "none"}, {"id": 1, "name": "jam"}]
    return json.dumps({"images": listed, "categories": categories, "annotations": objects}).encode()


def places(node: object) -> Iterator[tuple[Any, Any]]:
    """Yield each list or dictionary of a JSON document with each of its keys."""
    keys = node.keys() if isinstance(node, dict) else range(len(node)) if isinstance(node, list) else ()
    for key in keys:
        yield node, key
        yield from places(node[key])  # type: ignore[index]


@st.composite
def replaced_values(draw: st.DrawFn, content: bytes) -> bytes:
    """Return a JSON document with one to three of its values, at any depth, replaced."""
    document = json.loads(content)
    for _ in range(draw(st.integers(1, 3))):
        node, key = draw(st.sampled_from(list(places(document))))
        node[key] = json.loads(draw(st.sampled_from(VALUES)))
    return json.dumps(document).encode()


@FEW
@given(content=damages(coco(NUM_IMAGES)) | replaced_values(coco(NUM_IMAGES)))
def test_coco(content: bytes, images: Path) -> None:
    with tempfile.TemporaryDirectory(dir=images.parent) as folder:
        root = Path(folder)
        (root / "images").symlink_to(images)
        (root / "train.json").write_bytes(content)
        source = opened(root, "coco")
        if source is None:
            return
        lost_images = {
            p.at.split()[-1] for p in source.problems if p.at.startswith("image") and p.action == "left out"
        }
        listed = json.loads(content).get("annotations", [])
        in_lost = sum(str(item.get("image_id")) in lost_images for item in listed)
        left_out = sum(p.at.startswith("annotation") and p.action == "left out" for p in source.problems)
        num_read = sum(len(record.target) for record in source.records)
        assert num_read + left_out + in_lost >= len(listed), source.problems


LINES = (
    b"0 0.5 0.5 0.4 0.4\n1 0.3 0.3 0.2 0.2 0.9\n1 0.1 0.2 0.6 0.2 0.3 0.9\n"
    b"0 0.5 0.25 0.75 0.5 0.5 0.75 0.25 0.5\n"
)


@FEW
@given(content=damages(LINES))
def test_yolo(content: bytes, images: Path) -> None:
    with tempfile.TemporaryDirectory(dir=images.parent) as folder:
        root = Path(folder)
        (root / "images").symlink_to(images)
        (root / "labels").mkdir()
        (root / "labels" / "0.txt").write_bytes(content)
        (root / "classes.txt").write_text("tea\njam\n")
        source = opened(root, "yolo")
        assert source is not None
        (record,) = (record for record in source.records if record.key == "images/0.png")
        lost = [p for p in source.problems if p.file == "labels/0.txt" and p.action == "left out"]
        if not any(problem.kind == "unreadable-annotation" for problem in lost):
            num_lines = sum(bool(line.split()) for line in content.decode("utf-8-sig").splitlines())
            assert len(record.target) + len(lost) == num_lines, source.problems


YAML = b"path: .\ntrain: images\nval: images\nnc: 2\nnames: [ tea , jam ]\nextra: { a: 1 }\n"


@FEW
@given(content=damages(YAML))
def test_data_yaml(content: bytes, images: Path) -> None:
    with tempfile.TemporaryDirectory(dir=images.parent) as folder:
        root = Path(folder)
        (root / "images").symlink_to(images)
        (root / "data.yaml").write_bytes(content)
        opened(root, "yolo")


@FEW
@given(
    content=damages(b"classes = 2\ntrain = data/train.txt\nvalid = data/train.txt\nnames = data/obj.names\n")
)
def test_darknet(content: bytes, images: Path) -> None:
    with tempfile.TemporaryDirectory(dir=images.parent) as folder:
        root = Path(folder)
        (root / "images").symlink_to(images)
        (root / "train.txt").write_text("data/images/0.png\ndata/images/1.png\n")
        (root / "obj.names").write_text("tea\njam\n")
        (root / "obj.data").write_bytes(content)
        opened(root, "yolo")
