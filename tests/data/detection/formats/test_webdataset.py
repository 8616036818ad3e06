"""WebDataset: images and JSON in tar archives, read where they are, and the faults found in them."""

from __future__ import annotations

import gzip
import io
import json
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from boxcrew.core.errors import DataError
from boxcrew.data.checks.scan import scan
from boxcrew.data.detection.source import SOURCES, open_source
from boxcrew.data.detection.writers import write_source
from boxcrew.data.images.reading import read_image
from boxcrew.testing.sources import check_invariants, check_opens_the_same, check_same
from tests.helpers.labels import draw, kinds_of, objects_of, write
from tests.helpers.sources import problem_lines, split_sizes

TEA = {"bbox": [1, 2, 19, 23], "category": "tea"}
JAM = {"bbox": [5.5, 6, 10, 10], "category": "jam", "iscrowd": 1}
OBJECTS = [("tea", (1, 2, 20, 25)), ("jam", (5.5, 6, 15.5, 16))]


def jpeg(folder: Path, seed: int = 0) -> bytes:
    """An image of 40 x 30 pixels of noise, another for each seed."""
    names = [f"{number}.jpg" for number in range(seed + 1)]
    draw(folder / "drawn", *names)
    return (folder / "drawn" / names[-1]).read_bytes()


def pack(file: Path, members: Mapping[str, object]) -> Path:
    """Write an archive; contents that are not bytes are written as JSON."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(file, "w") as tar:
        for name, content in members.items():
            data = content if isinstance(content, bytes) else json.dumps(content).encode()
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return file


def samples(folder: Path, *contents: object) -> dict[str, object]:
    """Return the members of an archive with a sample for each content."""
    members: dict[str, object] = {}
    for number, content in enumerate(contents):
        members |= {f"{number:06d}.jpg": jpeg(folder, number), f"{number:06d}.json": content}
    return members


@pytest.mark.parametrize(
    "content",
    [
        {"annotations": [TEA, JAM]},
        {"annotations": [TEA, JAM], "image": {"width": 40, "height": 30}},
        {"annotations": [{"bbox": o["bbox"], "category_name": o["category"]} for o in (TEA, JAM)]},
        {"annotations": [{"bbox": o["bbox"], "label": o["category"]} for o in (TEA, JAM)], "width": 40},
        {
            "annotations": [{"bbox": TEA["bbox"], "category_id": 7}, {"bbox": JAM["bbox"], "category_id": 3}],
            "categories": [{"id": 3, "name": "jam"}, {"id": 7, "name": "tea"}],
        },
        {"boxes": [[1, 2, 20, 25], [5.5, 6, 15.5, 16]], "labels": ["tea", "jam"]},
        {
            "boxes": [[1, 2, 20, 25], [5.5, 6, 15.5, 16]],
            "labels": [1, 0],
            "categories": {"0": "jam", "1": "tea"},
        },
    ],
)
def test_every_form_of_json_gives_the_same_boxes(content: object, tmp_path: Path) -> None:
    shard = pack(tmp_path / "set" / "shard-000000.tar", samples(tmp_path, content, content))
    for path in (shard, shard.parent):
        source = open_source(path)
        assert source.format == "webdataset"
        assert source.classes == ("jam", "tea")
        assert list(objects_of(source).values()) == [OBJECTS, OBJECTS]
        assert kinds_of(source) == set()
        check_invariants(source)
    check_opens_the_same(shard, seed=1)


def test_pixels_and_flags_are_those_of_the_members(tmp_path: Path) -> None:
    pack(tmp_path / "set" / "a.tar", samples(tmp_path, *[{"annotations": [TEA, JAM]}] * 3))
    source = open_source(tmp_path / "set")
    assert {record.key for record in source.records} == {f"a.tar/{i:06d}.jpg" for i in range(3)}
    for record in source.records:
        number = int(record.key[-10:-4])
        np.testing.assert_array_equal(source.read(record), read_image(tmp_path / "drawn" / f"{number}.jpg"))
        assert record.target.crowd.tolist() == [False, True]
    assert source.read(source.records[0], reduction=2).shape == (15, 20, 3)
    assert [path.name for path in (tmp_path / "set").iterdir()] == ["a.tar"]


def test_archives_and_folders_name_the_splits(tmp_path: Path) -> None:
    content = {"annotations": [TEA]}
    pack(tmp_path / "set" / "coco-train2017-00000.tar", samples(tmp_path, content, content))
    pack(tmp_path / "set" / "coco-train2017-00001.tar", samples(tmp_path, content))
    pack(tmp_path / "set" / "val" / "00000.tar", samples(tmp_path, content))
    pack(tmp_path / "set" / "other.tar", samples(tmp_path, content))
    source = open_source(tmp_path / "set")
    assert split_sizes(source) == {"train": 3, "val": 1}
    assert "other.tar/000000.json: its archive belongs to no split" in problem_lines(source)


def test_numbers_are_lines_of_classes_txt_or_names(tmp_path: Path) -> None:
    content = {"boxes": [[1, 2, 20, 25], [1, 2, 20, 25], [2, 3, 4, 5]], "labels": [10, 1, 2]}
    pack(tmp_path / "set" / "a.tar", samples(tmp_path, content))
    assert open_source(tmp_path / "set").classes == ("1", "2", "10")
    write(tmp_path / "set" / "classes.txt", "zero\none\ntwo\n")
    source = open_source(tmp_path / "set")
    assert source.classes == ("zero", "one", "two")
    assert [name for name, _ in objects_of(source)["a.tar/000000.jpg"]] == ["one", "two"]
    assert "object 1: its class is neither a name nor a known id: 10" in problem_lines(source)


def test_faulty_samples_are_named_and_the_others_are_read(tmp_path: Path) -> None:
    faulty: list[Any] = [
        {"annotations": 5}, [], {"boxes": [[1, 2, 3, 4]], "labels": []}, {}, b"{", b"\xff\x00",
        {"annotations": [{"bbox": [1, 2, 3]}, {"bbox": [1, 2, 3, "x"]}, "x", {"bbox": [1, 2, 3, 4]},
                         {"bbox": [float("nan"), 2, 3, 4], "label": "tea"},
                         {"bbox": [1, 2, 3, 4], "label": [1]}, TEA]},
    ]  # fmt: skip
    members = samples(tmp_path, *faulty, {"annotations": [TEA, JAM]})
    members |= {"alone.jpg": jpeg(tmp_path), "lost.json": {"annotations": []}, "readme.txt": b"hello"}
    members |= {"000007.mask.png": b"", "cut.jpg": jpeg(tmp_path)[:300], "cut.json": {"annotations": [TEA]}}
    members |= {"none.jpg": b"no image", "none.json": {"annotations": [TEA]}}
    source = scan(open_source(pack(tmp_path / "set" / "a.tar", members)), workers=1, cache=tmp_path / "cache")
    assert objects_of(source) == {"a.tar/000006.jpg": [OBJECTS[0]], "a.tar/000007.jpg": OBJECTS}
    lines = problem_lines(source)
    assert all(f"a.tar/{i:06d}.json: has neither" in lines for i in range(4))
    assert all(f"a.tar/{i:06d}.json: cannot be parsed" in lines for i in (4, 5))
    assert all(f"a.tar/000006.json object {i}: " in lines for i in range(1, 7))
    assert "a.tar/alone.jpg: has no .json file" in lines
    assert "a.tar/lost.json: no image of this name" in lines
    assert "a.tar/none.jpg: not an image" in lines
    assert "a.tar/cut.jpg: cannot be read" in lines
    assert "mask" not in lines


@pytest.mark.parametrize("num_blocks", [1, 2, 3, 5, 8, 9, 11])
def test_an_archive_that_is_cut_is_reported(num_blocks: int, tmp_path: Path) -> None:
    file = pack(tmp_path / "set" / "a.tar", samples(tmp_path, *[{"annotations": [TEA]}] * 6))
    whole = file.read_bytes()
    file.write_bytes(whole[: num_blocks * 512])
    refusal, text = None, ""
    try:
        text = problem_lines(SOURCES.get("webdataset").open(file))
    except DataError as error:
        refusal = error
    if refusal is not None:
        assert str(tmp_path / "set") in refusal.message
        text = refusal.advice
    assert "cut short" in text or "cannot be read" in text


def test_damage_in_the_middle_is_reported(tmp_path: Path) -> None:
    file = pack(tmp_path / "set" / "a.tar", samples(tmp_path, *[{"annotations": [TEA]}] * 4))
    with tarfile.open(file) as tar:
        offset = tar.getmembers()[4].offset
    data = bytearray(file.read_bytes())
    data[offset : offset + 512] = b"x" * 512
    file.write_bytes(data)
    source = open_source(file)
    assert len(source.records) == 2
    assert f"a.tar: is damaged at byte {offset}; what follows is left out" in problem_lines(source)


def test_links_and_names_that_leave_the_archive_are_not_followed(tmp_path: Path) -> None:
    file = pack(tmp_path / "set" / "a.tar", samples(tmp_path, {"annotations": [TEA]}, {"annotations": [TEA]}))
    draw(tmp_path, "secret.jpg")
    with tarfile.open(file, "a") as tar:
        for name, kind in (("link", tarfile.SYMTYPE), ("hard", tarfile.LNKTYPE), ("pipe", tarfile.FIFOTYPE)):
            info = tarfile.TarInfo(f"{name}.jpg")
            info.type, info.linkname = kind, "../secret.jpg"
            tar.addfile(info)
        for name in ("../up.jpg", "/absolute.jpg"):
            info = tarfile.TarInfo(name)
            info.size = 4
            tar.addfile(info, io.BytesIO(b"1234"))
    source = open_source(file)
    assert len(source.records) == 2
    lines = problem_lines(source)
    assert "a.tar: 3 links, devices or sparse files are not followed" in lines
    assert "leaves the archive: ../up.jpg" in lines
    assert "leaves the archive: /absolute.jpg" in lines


def test_a_member_that_claims_to_be_huge_is_refused(tmp_path: Path) -> None:
    file = pack(tmp_path / "set" / "a.tar", samples(tmp_path, {"annotations": [TEA]}))
    info = tarfile.TarInfo("huge.jpg")
    info.size = 2**40
    data = file.read_bytes()
    end = data.rstrip(b"\0")
    start = -(-len(end) // 512) * 512
    file.write_bytes(data[:start] + info.tobuf() + bytes(1024))
    source = open_source(file)
    assert len(source.records) == 1
    assert "a.tar: is cut short in huge.jpg" in problem_lines(source)


def test_a_compressed_archive_is_refused_with_advice(tmp_path: Path) -> None:
    file = pack(tmp_path / "set" / "a.tar", samples(tmp_path, {"annotations": [TEA]}))
    file.write_bytes(gzip.compress(file.read_bytes()))
    with pytest.raises(DataError) as caught:
        open_source(file)
    assert "compressed with gzip" in caught.value.advice


def test_other_archives_are_not_detected(tmp_path: Path) -> None:
    members = {"VOCdevkit/a.jpg": jpeg(tmp_path), "VOCdevkit/a.xml": b"<annotation/>"}
    pack(tmp_path / "set" / "VOCtrainval.tar", members)
    assert not SOURCES.get("webdataset").detect(tmp_path / "set")


def test_copies_in_two_splits_are_found_and_the_scan_is_stored(tmp_path: Path) -> None:
    content = {"annotations": [TEA]}
    pack(tmp_path / "set" / "train-0.tar", samples(tmp_path, content, content))
    pack(tmp_path / "set" / "val-0.tar", samples(tmp_path, content, content) | {
        "000001.jpg": jpeg(tmp_path, 5)})  # fmt: skip
    first, again = (
        scan(open_source(tmp_path / "set"), workers=1, cache=tmp_path / "cache") for _ in range(2)
    )
    assert first.problems == again.problems
    assert (
        "val-0.tar/000000.jpg: the image of val is the same file as train-0.tar/000000.jpg"
        in problem_lines(first)
    )
    assert split_sizes(first) == {"train": 2, "val": 1}


def test_a_set_in_archives_can_be_written_in_another_format(tmp_path: Path) -> None:
    content = {"annotations": [TEA]}
    pack(tmp_path / "set" / "train-0.tar", samples(tmp_path, content, content))
    pack(tmp_path / "set" / "val-0.tar", samples(tmp_path, content))
    source = open_source(tmp_path / "set")
    write_source(source, tmp_path / "out", format="voc")
    check_same(source, open_source(tmp_path / "out"))
    copies = {file.read_bytes() for file in (tmp_path / "out" / "JPEGImages").iterdir()}
    assert copies == {file.read_bytes() for file in (tmp_path / "drawn").iterdir()}
