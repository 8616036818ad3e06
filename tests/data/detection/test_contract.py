"""Every source and writer of the registries keeps the contract."""

from __future__ import annotations

from pathlib import Path

import pytest

from boxcrew.core.errors import UsageError
from boxcrew.data.detection.source import SOURCES, open_source
from boxcrew.data.detection.writers import WRITERS, write_source
from boxcrew.data.formats import EmbeddedFormat
from boxcrew.testing.sources import (
    DrawnSource,
    check_clean,
    check_invariants,
    check_opens_the_same,
    check_refuses,
    check_same,
    check_writes_and_reads,
)

TOLERANCE = {"yolo": 1e-3, "label_studio": 1e-3}  # fractions of the image; other formats are exact
FLAGS = {"yolo": (), "voc": ("difficult",)}  # other formats store both
EMBEDDED = [name for name in SOURCES.names() if issubclass(SOURCES.get(name), EmbeddedFormat)]


def test_every_writer_has_its_reader() -> None:
    assert set(WRITERS.names()) <= set(SOURCES.names())
    assert {"voc", "coco", "yolo", "labelme", "cvat", "label_studio"} <= set(WRITERS.names())


@pytest.mark.parametrize("format", WRITERS.names())
def test_written_and_read_is_the_same(format: str, tmp_path: Path) -> None:
    source = DrawnSource.open(tmp_path, seed=3)
    check_invariants(source)
    flags, tolerance = FLAGS.get(format, ("difficult", "crowd")), TOLERANCE.get(format, 0.0)
    check_writes_and_reads(source, tmp_path / "out", format=format, tolerance=tolerance, flags=flags)


@pytest.mark.parametrize("name", EMBEDDED)
def test_sources_that_are_not_on_disk(name: str) -> None:
    check_invariants(open_source(name))


@pytest.mark.parametrize("first", WRITERS.names())
@pytest.mark.parametrize("second", WRITERS.names())
def test_converted_to_another_format_and_back(first: str, second: str, tmp_path: Path) -> None:
    source = DrawnSource.open(tmp_path)
    write_source(source, tmp_path / "a", format=first)
    write_source(open_source(tmp_path / "a"), tmp_path / "b", format=second)
    read = open_source(tmp_path / "b")
    check_clean(read)
    check_same(source, read, tolerance=max(TOLERANCE.get(first, 0.0), TOLERANCE.get(second, 0.0)))


@pytest.mark.parametrize("format", sorted(set(SOURCES.names()) - set(EMBEDDED)))
def test_refuses_what_is_not_its_own(format: str, tmp_path: Path) -> None:
    check_refuses(format, tmp_path)


@pytest.mark.parametrize("format", WRITERS.names())
def test_opens_the_same_again(format: str, tmp_path: Path) -> None:
    write_source(DrawnSource.open(tmp_path), tmp_path / "set", format=format)
    check_opens_the_same(tmp_path / "set", seed=1)


@pytest.mark.parametrize("format", WRITERS.names())
def test_nothing_is_overwritten(format: str, tmp_path: Path) -> None:
    mine = tmp_path / "mine.txt"
    mine.write_text("precious")
    with pytest.raises(UsageError, match="nothing is overwritten"):
        write_source(DrawnSource.open(tmp_path), tmp_path, format=format)
    assert [file.name for file in tmp_path.iterdir()] == ["mine.txt"]
    assert mine.read_text() == "precious"
