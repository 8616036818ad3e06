"""Images that cannot be decoded are named and left out before training."""

from __future__ import annotations

from pathlib import Path

import pytest

from boxcrew.core.errors import DataError
from boxcrew.data.check import check_images
from boxcrew.data.source import Source, open_source
from boxcrew.data.writers import write_source
from boxcrew.testing.sources import DrawnSource


@pytest.fixture
def source(tmp_path: Path) -> Source:
    write_source(DrawnSource.open(tmp_path), tmp_path / "set", format="coco")
    return open_source(tmp_path / "set")


def cut(path: Path | None) -> None:
    assert path is not None
    path.write_bytes(path.read_bytes()[:-60])


def test_a_sound_set_is_left_as_it_is(source: Source) -> None:
    calls: list[tuple[int, int]] = []
    checked, problems = check_images(
        source, workers=2, progress=lambda done, total: calls.append((done, total))
    )
    assert checked is source
    assert problems == ()
    assert calls == [(i, 12) for i in range(1, 13)]


@pytest.mark.parametrize("workers", [1, 3])
def test_cut_and_vanished_images_are_left_out(source: Source, workers: int) -> None:
    bad, gone = source.split("train")[1], source.split("val")[2]
    cut(bad.path)
    assert gone.path is not None
    gone.path.unlink()
    checked, problems = check_images(source, workers=workers)
    assert [problem.where for problem in problems] == [bad.key, gone.key]
    assert all(problem.action == "left out" for problem in problems)
    assert "truncated" in problems[0].what
    assert "no such image file" in problems[1].what
    assert checked.problems == (*source.problems, *problems)
    keys = {record.key for split in checked.splits.values() for record in split}
    assert len(keys) == 10
    assert not keys & {bad.key, gone.key}
    assert len(source.split("train")) == 4  # the set given is not changed


def test_nothing_left_to_train_on_is_an_error(source: Source) -> None:
    for record in source.split("train"):
        cut(record.path)
    with pytest.raises(DataError, match="no usable training image"):
        check_images(source, workers=2)


def test_drawn_images_are_not_checked(tmp_path: Path) -> None:
    checked, problems = check_images(DrawnSource.open(tmp_path), workers=1)
    assert problems == ()
    assert len(checked.split("train")) == 4
