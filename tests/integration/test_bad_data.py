"""Each defect that a data set can have, planted in a real one: it is named with its file and kind, the rest
of the set is used, and a run trains on it.

A file that vanishes in the middle of an epoch is in tests/data/test_loader.py
(`test_a_vanished_file_is_left_out_and_named`), a JPEG cut at every byte in tests/data/test_jpeg.py.
"""

from __future__ import annotations

import json
import shutil
import struct
import subprocess
import sys
import time
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from PIL import Image as Pillow

from boxcrew.core.errors import DataError
from boxcrew.data.problem import Action, Kind
from boxcrew.data.scan import scan
from boxcrew.data.source import Source, open_source
from boxcrew.data.writers import write_source
from boxcrew.train.outcome import Outcome

NUM_TRAIN, NUM_VAL = 40, 6
BILLION_LAUGHS = (
    "<!DOCTYPE a [<!ENTITY a0 'ha'>"
    + "".join(f"<!ENTITY a{i} '{f'&a{i - 1};' * 10}'>" for i in range(1, 11))
    + "]><annotation><filename>&a10;</filename></annotation>"
)
EXTERNAL = (
    "<!DOCTYPE a [<!ENTITY b SYSTEM 'file:///etc/passwd'>]><annotation><filename>&b;</filename></annotation>"
)
Expected = tuple[Kind, str, Action]
"""Kind, file, action."""


@dataclass(frozen=True)
class Photos:
    """A VOC set to be damaged. Every defect has an image of its own, called `name`."""

    root: Path

    def names(self, split: str) -> list[str]:
        return (self.root / "ImageSets" / "Main" / f"{split}.txt").read_text().split()

    def enlist(self, split: str, *names: str) -> None:
        with (self.root / "ImageSets" / "Main" / f"{split}.txt").open("a") as file:
            file.writelines(f"{name}\n" for name in names)

    def image(self, name: str) -> Path:
        return self.root / "JPEGImages" / f"{name}.jpg"

    def page(self, name: str) -> Path:
        return self.root / "Annotations" / f"{name}.xml"

    def of_image(self, kind: Kind, name: str, action: Action = "left out") -> Expected:
        return kind, f"JPEGImages/{name}.jpg", action

    def of_page(self, kind: Kind, name: str, action: Action = "left out") -> Expected:
        return kind, f"Annotations/{name}.xml", action


Plant = Callable[[Photos, str], Expected]
DEFECTS: dict[str, Plant] = {}


def defect(plant: Plant) -> Plant:
    DEFECTS[plant.__name__.replace("_", " ")] = plant
    return plant


@defect
def missing_file(photos: Photos, name: str) -> Expected:
    photos.enlist("train", "ghost")
    return "missing-file", "ImageSets/Main/train.txt", "left out"


@defect
def truncated_image(photos: Photos, name: str) -> Expected:
    whole = photos.image(name).read_bytes()
    photos.image(name).write_bytes(whole[: len(whole) // 2])
    return photos.of_image("truncated-image", name)


@defect
def unreadable_image(photos: Photos, name: str) -> Expected:
    whole = photos.image(name).read_bytes()
    table = whole.find(b"\xff\xc4") + 5  # the lengths of a Huffman code that cannot be
    photos.image(name).write_bytes(whole[:table] + b"\xff" * 16 + whole[table + 16 :])
    return photos.of_image("unreadable-image", name)


@defect
def decompression_bomb(photos: Photos, name: str) -> Expected:
    write_png_bomb(photos.image(name))
    return photos.of_image("image-bomb", name)


@defect
def non_image(photos: Photos, name: str) -> Expected:
    photos.image(name).write_text("<html>404 Not Found</html>")
    return photos.of_image("not-an-image", name)


def page_defect(title: str, text: str, kind: Kind) -> None:
    def plant(photos: Photos, name: str) -> Expected:
        photos.page(name).write_text(text)
        return photos.of_page(kind, name)

    DEFECTS[title] = plant


page_defect("xml bomb", BILLION_LAUGHS, "xml-bomb")
page_defect("external entity", EXTERNAL, "xml-external-entity")
page_defect("torn page", "<annotation><object>", "unreadable-annotation")


@defect
def path_that_leaves(photos: Photos, name: str) -> Expected:
    change_page(photos.page(name), "filename", "../../secret.jpg")
    return photos.of_page("path-escape", name)


def box_defect(title: str, box: tuple[object, ...], kind: Kind, action: Action) -> None:
    def plant(photos: Photos, name: str) -> Expected:
        for side, value in zip(("xmin", "ymin", "xmax", "ymax"), box, strict=True):
            change_page(photos.page(name), f"object/bndbox/{side}", str(value))
        return photos.of_page(kind, name, action)

    DEFECTS[title] = plant


# The images are 224 x 224.
box_defect("box of no area", (50, 50, 50, 90), "box-empty", "left out")
box_defect("box that is not a number", ("nan", 50, 60, 90), "box-nan", "left out")
box_defect("box of words", ("left", "top", 60, 90), "box-malformed", "left out")
box_defect("box outside", (300, 300, 350, 350), "box-outside", "left out")
box_defect("box that reaches out", (150, 150, 240, 200), "box-overhang", "repaired")
box_defect("box larger than the image", (-50, -50, 500, 500), "box-larger-than-image", "repaired")
box_defect("swapped corners", (90, 90, 50, 50), "box-swapped", "repaired")


@defect
def unknown_class(photos: Photos, name: str) -> Expected:
    change_page(photos.page(name), "object/name", "cofee")
    return photos.of_page("unknown-class", name)


@defect
def empty_annotation(photos: Photos, name: str) -> Expected:
    tree = ET.parse(photos.page(name))
    for item in tree.findall("object"):
        tree.getroot().remove(item)
    tree.write(photos.page(name))
    return photos.of_page("empty-annotation", name, "noted")


@defect
def image_without_annotation(photos: Photos, name: str) -> Expected:
    photos.page(name).unlink()
    return photos.of_image("image-without-annotation", name)


@defect
def annotation_without_image(photos: Photos, name: str) -> Expected:
    photos.image(name).unlink()
    return photos.of_page("annotation-without-image", name)


@defect
def listed_twice(photos: Photos, name: str) -> Expected:
    photos.enlist("train", name)
    return photos.of_page("duplicate-image", name)


@defect
def listed_in_train_and_val(photos: Photos, name: str) -> Expected:
    photos.enlist("val", name)
    return photos.of_page("leak", name)


@defect
def identical_in_train_and_val(photos: Photos, name: str) -> Expected:
    hidden = photos.names("val")[0]
    shutil.copyfile(photos.image(name), photos.image(hidden))
    return photos.of_image("leak", hidden)


@defect
def exif_rotation(photos: Photos, name: str) -> Expected:
    exif = Pillow.Exif()
    exif[0x0112] = 6
    with Pillow.open(photos.image(name)) as image:
        image.crop((0, 0, 224, 160)).save(photos.image(name), exif=exif)
    for side, value in {"width": 224, "height": 160}.items():
        change_page(photos.page(name), f"size/{side}", str(value))
    for side, value in {"xmin": 100, "ymin": 20, "xmax": 200, "ymax": 120}.items():
        change_page(photos.page(name), f"object/bndbox/{side}", str(value))
    return photos.of_page("exif-rotation", name, "repaired")


def change_page(page: Path, tag: str, text: str) -> None:
    """All elements of that path."""
    tree = ET.parse(page)
    found = tree.findall(tag)
    assert found, tag
    for element in found:
        element.text = text
    tree.write(page)


def write_png_bomb(path: Path, side: int = 20_000) -> None:
    """One bit a pixel, all black: some kilobytes of file, a gigabyte of RGB."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        return (
            struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))
        )

    header = struct.pack(">IIBBBBB", side, side, 1, 0, 0, 0, 0)
    rows = zlib.compress(bytes(side * (1 + side // 8)))
    body = chunk(b"IHDR", header) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + body)


@pytest.fixture
def real(shared_data: Path, tmp_path: Path) -> Photos:
    """A part of a real set, without defects."""
    whole, part = Photos(shared_data / "groceries8_voc"), Photos(tmp_path / "groceries")
    for folder in ("JPEGImages", "Annotations", "ImageSets/Main"):
        (part.root / folder).mkdir(parents=True)
    shutil.copy(whole.root / "classes.txt", part.root)
    for split, count in (("train", NUM_TRAIN), ("val", NUM_VAL)):
        names = whole.names(split)[:count]
        for name in names:
            shutil.copy(whole.image(name), part.image(name))
            shutil.copy(whole.page(name), part.page(name))
        part.enlist(split, *names)
    return part


def looked_at(root: Path, cache: Path) -> Source:
    return scan(open_source(root), workers=2, cache=cache)


def found(source: Source) -> set[Expected]:
    return {(problem.kind, problem.file, problem.action) for problem in source.problems}


def background(expected: Expected) -> Expected:
    """What is said too where the only object of an image is left out."""
    return "empty-annotation", expected[1], "noted"


@pytest.mark.parametrize("title", DEFECTS)
def test_defect_is_named_and_nothing_else_is(title: str, real: Photos, tmp_path: Path) -> None:
    assert looked_at(real.root, tmp_path / "cache").problems == ()
    expected = DEFECTS[title](real, real.names("train")[3])
    source = looked_at(real.root, tmp_path / "cache")
    assert found(source) in ({expected}, {expected, background(expected)})
    unharmed = NUM_TRAIN + NUM_VAL - 1
    assert sum(map(len, source.splits.values())) in {unharmed, unharmed + 1}


def test_a_set_with_every_defect_is_reported_and_trained_on(
    real: Photos, tmp_path: Path, run: Callable[..., Outcome]
) -> None:
    names = real.names("train")
    expected = {plant(real, names[i]) for i, plant in enumerate(DEFECTS.values())}
    assert len(expected) == len(DEFECTS)
    before = {file: file.read_bytes() for file in real.root.rglob("*") if file.is_file()}
    out = tmp_path / "run"
    run(real.root, out, steps=2)
    report = json.loads((out / "data_report.json").read_text())
    reported = {(p["kind"], p["file"], p["action"]) for p in report["problems"]}
    assert expected <= reported <= expected | set(map(background, expected))
    nan = next(p for p in report["problems"] if p["kind"] == "box-nan")
    assert (nan["at"].split()[:2], nan["value"]) == (["object", "1"], "[nan, 50, 60, 90]")
    log = (out / "train.log").read_text()
    assert all(f" {kind} " in log for kind, _, _ in expected)
    assert json.loads((out / "summary.json").read_text())["steps"] == 2
    assert before == {file: file.read_bytes() for file in real.root.rglob("*") if file.is_file()}


def test_strict_refuses_and_names_the_first(
    real: Photos, tmp_path: Path, run: Callable[..., Outcome]
) -> None:
    truncated_image(real, real.names("train")[3])
    with pytest.raises(DataError, match=r"1 problems, and data\.strict=true; the first: JPEGImages/"):
        run(real.root, tmp_path / "run", steps=2, data={"strict": True})
    assert not (tmp_path / "run").exists()


def test_zero_training_images(real: Photos, tmp_path: Path) -> None:
    for name in real.names("train"):
        truncated_image(real, name)
    with pytest.raises(DataError, match="has no usable training image") as caught:
        looked_at(real.root, tmp_path / "cache")
    assert "truncated" in caught.value.advice


def test_garbled_jpeg_is_decoded_as_everywhere(real: Photos, tmp_path: Path) -> None:
    """Damage inside the compressed data changes the picture and nothing else: no library finds it."""
    image = real.image(real.names("train")[3])
    data = image.read_bytes()
    middle = len(data) // 2
    image.write_bytes(data[:middle] + b"\x55" * 100 + data[middle + 100 :])
    source = looked_at(real.root, tmp_path / "cache")
    assert source.problems == ()
    record = next(record for record in source.split("train") if record.path == image)
    assert source.read(record).shape == (224, 224, 3)


def test_billion_laughs_cost_nothing(real: Photos) -> None:
    DEFECTS["xml bomb"](real, real.names("train")[3])
    start = time.process_time()
    source = open_source(real.root)
    assert time.process_time() - start < 1
    assert [problem.kind for problem in source.problems] == ["xml-bomb"]


def test_a_bomb_of_pixels_costs_no_memory(real: Photos, tmp_path: Path) -> None:
    write_png_bomb(real.image(real.names("train")[3]))
    program = f"""
from pathlib import Path
from boxcrew.data.scan import scan
from boxcrew.data.source import open_source
peak = lambda: int(next(l for l in open("/proc/self/status") if l.startswith("VmHWM")).split()[1])
source = open_source({str(real.root)!r})
before = peak()
for _ in range(2):
    source = scan(open_source({str(real.root)!r}), workers=2, cache=Path({str(tmp_path / "cache")!r}))
print(peak() - before, *[problem.kind for problem in source.problems])
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    kilobytes, *kinds = done.stdout.split()
    assert kinds == ["image-bomb"]
    assert int(kilobytes) < 50 * 1024


def leave_a_gap(content: dict[str, Any]) -> None:
    """In the ids of categories."""
    last = content["categories"][-1]
    for thing in content["annotations"]:
        if thing["category_id"] == last["id"]:
            thing["category_id"] += 5
    last["id"] += 5


def test_defects_of_coco(real: Photos, tmp_path: Path) -> None:
    write_source(open_source(real.root), tmp_path / "coco", format="coco")
    files = {s: tmp_path / "coco" / "annotations" / f"instances_{s}.json" for s in ("train", "val")}
    contents = {split: json.loads(file.read_text()) for split, file in files.items()}
    images, things = contents["train"]["images"], contents["train"]["annotations"]
    images.append({**images[0], "file_name": "again.jpg"})
    images[1]["file_name"] = "../../secret.jpg"
    images[2]["file_name"] = "gone.jpg"
    things.append({**things[0], "id": "lone", "image_id": 10**6})
    things.append({**things[0], "id": "odd", "category_id": 99})
    things.append(dict(things[0]))
    for split, content in contents.items():
        leave_a_gap(content)
        files[split].write_text(json.dumps(content))
    source = looked_at(tmp_path / "coco", tmp_path / "cache")
    place = "annotations/instances_train.json"
    assert {(p.kind, p.at) for p in source.problems if p.file == place} == {
        ("duplicate-id", f"image number {len(images) - 1}"),
        ("path-escape", f"image {images[1]['id']}"),
        ("missing-file", f"image {images[2]['id']}"),
        ("annotation-without-image", "annotation lone"),
        ("unknown-class", "annotation odd"),
        ("duplicate-id", f"annotation {things[0]['id']}"),
        ("class-id-gap", ""),
    }
    # The images that are listed under wrong names now:
    assert [p.kind for p in source.problems if p.file != place] == ["image-without-annotation"] * 2


def test_defects_of_yolo(real: Photos, tmp_path: Path) -> None:
    root = tmp_path / "yolo"
    write_source(open_source(real.root), root, format="yolo")
    labels = sorted((root / "labels" / "train").iterdir())
    labels[0].unlink()
    labels[1].write_text("")
    labels[2].write_text("0 0.5 0.5 nan 0.1\n7 0.5 0.5 0.2 0.2\n99 0.5 0.5 0.2 0.2\nbad\n")
    (root / "labels" / "train" / "lone.txt").write_text("0 0.5 0.5 0.2 0.2\n")
    text = (root / "data.yaml").read_text()
    (root / "data.yaml").write_text(text.split("names:")[0] + "nc: 8\nnames: {0: juice, 7: chips}\n")
    source = looked_at(root, tmp_path / "cache")
    places = {(p.kind, p.file.removeprefix("labels/train/"), p.at) for p in source.problems}
    assert places == {
        ("class-id-gap", "data.yaml", ""),
        ("image-without-annotation", f"images/train/{labels[0].stem}.jpg", ""),
        ("empty-annotation", labels[1].name, ""),
        ("box-nan", labels[2].name, "line 1"),
        ("unknown-class", labels[2].name, "line 3"),
        ("box-malformed", labels[2].name, "line 4"),
        ("annotation-without-image", "lone.txt", ""),
    }
