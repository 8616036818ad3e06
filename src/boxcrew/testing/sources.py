"""Contract of every data source and writer. Tests call these checks for each name of the registries."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Self

import numpy as np

from boxcrew.core.errors import DataError
from boxcrew.core.types import Image, Target
from boxcrew.data.config import AS_THE_FORMAT_SAYS, BoxOptions
from boxcrew.data.detection.records import Record
from boxcrew.data.detection.source import SOURCES, SPLITS, Source, open_source
from boxcrew.data.detection.writers import file_stems, write_source
from boxcrew.data.formats import EmbeddedFormat


class DrawnSource(EmbeddedFormat, Source):
    """A small set for tests, made of noise: four images in each split, with 0, 1, 2 and 3 boxes.

    Some boxes are difficult or crowds, at fractions of pixels and at the very edges.
    """

    format = "drawn"

    @classmethod
    def open(cls, path: Path, *, seed: int = 0, options: BoxOptions = AS_THE_FORMAT_SAYS) -> Self:
        options.require_default(str(path))
        splits = {split: tuple(_record(split, i, seed) for i in range(4)) for split in SPLITS}
        return cls(root=path, classes=("tea pot", "Kanne", "茶"), splits=splits)

    def read(self, record: Record, *, reduction: int = 1) -> Image:  # noqa: ARG002  always drawn in full
        noise = np.random.default_rng([len(record.key), *record.key.encode()])
        return noise.integers(0, 256, (record.height, record.width, 3), dtype=np.uint8)


def _record(split: str, number: int, seed: int) -> Record:
    draw = np.random.default_rng([seed, SPLITS.index(split), number])
    width, height = (int(side) for side in draw.integers(20, 60, 2))
    corners = draw.uniform(0, 1, (number, 2, 2)) * (width, height)
    boxes = np.concatenate([corners.min(axis=1), corners.max(axis=1) + 0.25], axis=1)
    boxes = np.minimum(boxes, [width, height, width, height])
    boxes[:1] = (0, 0, width, height)
    target = Target.of(
        boxes, draw.integers(0, 3, number), difficult=np.arange(number) % 2, crowd=np.arange(number) % 3 == 2
    )
    return Record(key=f"{split}/{number:02d}", path=None, width=width, height=height, target=target)


def check_invariants(source: Source) -> None:
    """Check what every open set promises to the rest of the program."""
    assert source.classes
    assert list(source.splits) == [name for name in SPLITS if name in source.splits]
    assert source.split("train")
    records = [record for split in source.splits.values() for record in split]
    assert len({record.key for record in records}) == len(records), "keys are not unique"
    for record in records:
        _check_record(record, len(source.classes))
    image = source.read(records[0])
    assert image.shape == (records[0].height, records[0].width, 3)
    assert image.dtype == np.uint8


def check_clean(source: Source) -> None:
    """Check that no problem was found; an image without boxes is noted but is not wrong."""
    assert {problem.kind for problem in source.problems} <= {"empty-annotation"}, source.problems


def _check_record(record: Record, num_classes: int) -> None:
    target = record.target
    assert "\\" not in record.key
    assert target.boxes.dtype == np.float32
    assert target.boxes.shape == (len(target), 4)
    assert len(target.difficult) == len(target.crowd) == len(target)
    assert np.isfinite(target.boxes).all(), record.key
    assert (target.boxes[:, :2] < target.boxes[:, 2:]).all(), record.key
    assert (target.boxes >= 0).all(), record.key
    assert (target.boxes[:, 2:] <= (record.width, record.height)).all(), record.key
    assert ((target.labels >= 0) & (target.labels < num_classes)).all(), record.key


def check_same(first: Source, second: Source, *, tolerance: float = 0.0, flags: tuple[str, ...] = ()) -> None:
    """Check that two sets have the same classes, splits, pixels, boxes (to `tolerance` pixels), labels and
    `flags`. `second` has the file names that the writers choose.
    """
    assert second.classes == first.classes
    first_sizes = {name: len(records) for name, records in first.splits.items()}
    assert {name: len(records) for name, records in second.splits.items()} == first_sizes
    stems = file_stems(first)
    for split in first.splits:
        copies = {Path(record.key).stem: record for record in second.split(split)}
        for record in first.split(split):
            copy = copies[stems[record.key]]
            assert (copy.width, copy.height) == (record.width, record.height)
            np.testing.assert_array_equal(second.read(copy), first.read(record))
            np.testing.assert_array_equal(copy.target.labels, record.target.labels)
            np.testing.assert_allclose(copy.target.boxes, record.target.boxes, rtol=0, atol=tolerance)
            for flag in flags:
                assert getattr(copy.target, flag).tolist() == getattr(record.target, flag).tolist()


def check_writes_and_reads(
    source: Source, out: Path, *, format: str, tolerance: float, flags: tuple[str, ...]
) -> Source:
    """Write the set in `format`, open it with the format detected, and check that it is the same.

    A flag that the format cannot store must be reported. Returns the set as read.
    """
    lost = write_source(source, out, format=format)
    read = open_source(out)
    assert read.format == format
    check_clean(read)
    check_invariants(read)
    check_same(source, read, tolerance=tolerance, flags=flags)
    for flag in {"difficult", "crowd"} - set(flags):
        assert any(flag in problem.message for problem in lost), f"{flag} is lost without a problem"
    return read


def check_refuses(name: str, folder: Path) -> None:
    """Check that a format refuses what is not of it."""
    check_refused(folder, SOURCES.get(name).detect, SOURCES.get(name).open)


def check_refused(folder: Path, detect: Callable[[Path], bool], open: Callable[[Path], object]) -> None:
    """Check that a format detects no missing path, empty folder or foreign file, and that opening one anyway
    is a `DataError` that names the path.
    """
    empty, foreign = folder / "empty", folder / "letter.doc"
    empty.mkdir()
    foreign.write_bytes(b"Dear Sir or Madam\n")
    for path in (folder / "absent", empty, foreign):
        assert not (path.exists() and detect(path)), path
        refusal = None
        try:
            open(path)
        except DataError as error:
            refusal = error
        assert refusal is not None, f"{path} was opened"
        assert str(path) in refusal.message
        assert refusal.advice


def check_opens_the_same(path: Path, *, seed: int) -> None:
    """Check that opening twice gives the same records in the same order."""
    first, second = (open_source(path, seed=seed) for _ in range(2))
    keys = [
        [(split, record.key) for split, records in source.splits.items() for record in records]
        for source in (first, second)
    ]
    assert keys[0] == keys[1]
    assert first.problems == second.problems
