"""Records in columns are the records that went in, whatever their keys and paths, in any order."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import pytest

from boxcrew.core.types import Target
from boxcrew.data.detection import records as module
from boxcrew.data.detection.records import KeyRows, Record, Records
from boxcrew.data.images.packed import ImagePath, PackedFile

ODD_NAMES = ("train/a b.jpg", "a.jpg", "../beside/ü.png", "deep/er/茶.jpg", "x/\udcff.jpg", "val/a.jpg")


def made(key: str, path: ImagePath | None, num_objects: int) -> Record:
    draw = np.random.default_rng(num_objects)
    boxes = np.sort(draw.uniform(0, 50, (num_objects, 2, 2)), axis=1).reshape(-1, 4)
    target = Target.of(
        boxes,
        draw.integers(0, 3, num_objects),
        difficult=draw.integers(0, 2, num_objects),
        crowd=draw.integers(0, 2, num_objects),
    )
    return Record(key=key, path=path, width=60 + num_objects, height=70, target=target)


def some(root: Path) -> list[Record]:
    files = [made(key, root / key, number % 4) for number, key in enumerate(ODD_NAMES)]
    drawn = made("drawn/0001", None, 2)
    packed = [
        made(f"shards/a.tar/{name}", PackedFile(root / "shards" / "a.tar", name, 512 * place, 100 + place), 1)
        for place, name in enumerate(("0.jpg", "in/1.jpg"))
    ]
    elsewhere = made("photo", root / "with another name.jpg", 5)
    return [*files, drawn, *packed, elsewhere]


def values(record: Record) -> tuple[object, ...]:
    target = {name: (array.dtype, array.tolist()) for name, array in vars(record.target).items()}
    return record.key, record.path, record.extent, target


@pytest.mark.parametrize("chunk", [1, 3, 8192])
def test_records_come_out_as_they_went_in(
    chunk: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "CHUNK", chunk)
    before = some(tmp_path)
    records = Records.of(before)
    assert [*map(values, records)] == [*map(values, before)]
    assert values(records[-1]) == values(before[-1])
    assert [*map(values, records[5:1:-2])] == [*map(values, before[5:1:-2])]
    assert list(records.iter_keys()) == [record.key for record in before]
    with pytest.raises(IndexError):
        records[len(before)]


def test_objects_of_any_rows_are_those_of_their_records(tmp_path: Path) -> None:
    before = some(tmp_path)
    for rows in (slice(None), slice(2, 5), slice(None, None, 3), slice(0, 0)):
        records = Records.of(before)[rows]
        objects = Target.joined(record.target for record in before[rows])
        for name, array in vars(records.objects()).items():
            np.testing.assert_array_equal(array, vars(objects)[name])
        assert records.counts.tolist() == [len(record.target) for record in before[rows]]
        assert records.sizes.tolist() == [list(record.extent) for record in before[rows]]
        assert records.extents() == list(dict.fromkeys(record.extent for record in before[rows]))
        assert records.label_counts(4).tolist() == np.bincount(objects.labels, minlength=4).tolist()


def test_the_digest_is_the_one_that_older_runs_have(tmp_path: Path) -> None:
    before, digest = some(tmp_path), hashlib.blake2b(digest_size=16)
    for record in before:
        digest.update(f"{record.key} {record.width} {record.height}".encode(errors="surrogateescape"))
        digest.update(record.target.boxes.tobytes())
        digest.update(record.target.labels.tobytes())
    assert Records.of(before).digest == digest.hexdigest()
    assert Records.of(before[1:]).digest != digest.hexdigest()


def test_parts_are_joined_whether_they_are_in_columns_or_not(tmp_path: Path) -> None:
    before = some(tmp_path)
    records = Records.of(before)
    for parts in (
        [records[:4], records[4:]],
        [before[:4], records[4:]],
        [Records.of(before[:4]), records[4:]],
    ):
        assert [*map(values, Records.joined(parts))] == [*map(values, before)]
    assert Records.joined([records[:4], records[4:]]).columns is records.columns
    assert len(Records.joined([])) == 0


def test_labels_get_other_numbers_and_some_objects_go(tmp_path: Path) -> None:
    records = Records.of(some(tmp_path))
    for numbers in (np.array([2, 0, 1]), np.array([-1, 1, 0])):
        renumbered = Records(records.columns.with_labels(numbers), records.rows)
        for old, new in zip(records, renumbered, strict=True):
            keep = numbers[old.target.labels] >= 0
            assert new.target.labels.tolist() == numbers[old.target.labels][keep].tolist()
            assert new.target.boxes.tolist() == old.target.boxes[keep].tolist()
            assert new.target.crowd.tolist() == old.target.crowd[keep].tolist()


def test_rows_are_found_by_their_keys_even_if_hashes_are_alike(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    records = Records.of(some(tmp_path))
    for hashes in (module.key_hashes, lambda keys: np.array([7 for _ in keys], dtype=np.uint64)):
        monkeypatch.setattr(module, "key_hashes", hashes)
        rows = KeyRows(records[2:])
        assert [rows.find(key) for key in records[2:].iter_keys()] == list(range(len(records) - 2))
        assert rows.find(records[0].key) is None
