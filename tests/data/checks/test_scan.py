"""Images that cannot be read or that leak are reported and left out; unchanged files are not read twice."""

from __future__ import annotations

import os
import shutil
import signal
import threading
from pathlib import Path

import pytest
from PIL import Image as Pillow

from boxcrew.core.errors import DataError
from boxcrew.data.checks import scan as scan_module
from boxcrew.data.checks import scan_cache
from boxcrew.data.checks.scan import scan
from boxcrew.data.detection.records import Record
from boxcrew.data.detection.source import Source, open_source
from boxcrew.data.detection.writers import write_source
from boxcrew.data.images.reading import verify_image
from boxcrew.testing.sources import DrawnSource


@pytest.fixture
def source(tmp_path: Path) -> Source:
    write_source(DrawnSource.open(tmp_path), tmp_path / "set", format="coco")
    opened = open_source(tmp_path / "set")
    opened.problems = ()
    return opened


@pytest.fixture
def verified(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the files that were verified."""
    names: list[str] = []

    def verify(path: Path) -> None:
        names.append(path.name)
        verify_image(path)

    monkeypatch.setattr(scan_module, "verify_image", verify)
    return names


def path_of(record: Record) -> Path:
    assert isinstance(record.path, Path)
    return record.path


def cut(record: Record) -> None:
    path_of(record).write_bytes(path_of(record).read_bytes()[:-60])


def keys(source: Source) -> set[str]:
    return {record.key for split in source.splits.values() for record in split}


def kinds(source: Source) -> list[tuple[str, str, str]]:
    return [(problem.kind, problem.file, problem.action) for problem in source.problems]


def test_a_sound_set_is_left_as_it_is(source: Source, tmp_path: Path) -> None:
    calls: list[tuple[int, int]] = []
    scanned = scan(source, workers=2, cache=tmp_path / "cache", progress=lambda *call: calls.append(call))
    assert scanned is source
    assert calls[-1] == (12, 12)
    assert calls == sorted(calls)


def test_an_animation_is_noted_and_used(source: Source, tmp_path: Path) -> None:
    record = source.split("train")[0]
    first = Pillow.fromarray(source.read(record))
    first.save(path_of(record), format="GIF", save_all=True, append_images=[first.rotate(180)])
    for _ in range(2):  # the second time from the cache
        scanned = scan(source, workers=1, cache=tmp_path / "cache")
        assert kinds(scanned) == [("image-frames", record.key, "noted")]
        assert keys(scanned) == keys(source)


@pytest.mark.parametrize("workers", [1, 3])
def test_cut_and_vanished_images_are_left_out(source: Source, workers: int, tmp_path: Path) -> None:
    bad, gone = source.split("train")[1], source.split("val")[2]
    cut(bad)
    path_of(gone).unlink()
    scanned = scan(source, workers=workers, cache=tmp_path / "cache")
    assert kinds(scanned) == [
        ("truncated-image", bad.key, "left out"),
        ("missing-file", gone.key, "left out"),
    ]
    assert keys(scanned) == keys(source) - {bad.key, gone.key}
    assert len(source.split("train")) == 4  # the set given is not changed
    assert path_of(bad).exists()  # nor is anything on disk


def test_slow_files_are_verified_in_threads_and_quick_ones_are_not(
    source: Source, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[int] = []

    def verify(path: Path) -> None:
        threads.append(threading.get_ident())
        verify_image(path)

    monkeypatch.setattr(scan_module, "verify_image", verify)
    monkeypatch.setattr(scan_module, "_CHUNK", 2)
    bad = source.split("val")[2]
    cut(bad)
    kept = []
    for quick_seconds in (10.0, 0.0):
        threads.clear()
        monkeypatch.setattr(scan_module, "_QUICK_SECONDS", quick_seconds)
        scanned = scan(source, workers=3, cache=tmp_path / f"cache {quick_seconds}")
        kept.append([record.key for split in scanned.splits.values() for record in split])
        elsewhere = [thread for thread in threads if thread != threading.get_ident()]
        assert len(threads) == 12
        assert len(elsewhere) == (0 if quick_seconds else 10)
    assert kept[0] == kept[1]
    assert bad.key not in kept[0]


def test_an_image_in_two_splits_stays_in_the_first(source: Source, tmp_path: Path) -> None:
    shown, hidden = source.split("train")[0], source.split("val")[1]
    shutil.copyfile(path_of(shown), path_of(hidden))
    scanned = scan(source, workers=2, cache=tmp_path / "cache")
    assert kinds(scanned) == [("leak", hidden.key, "left out")]
    assert scanned.problems[0].value == shown.key
    assert keys(scanned) == keys(source) - {hidden.key}


def test_a_split_that_leaks_as_a_whole_is_kept_and_noted(source: Source, tmp_path: Path) -> None:
    for shown, hidden in zip(source.split("train"), source.split("val"), strict=True):
        shutil.copyfile(path_of(shown), path_of(hidden))
    scanned = scan(source, workers=2, cache=tmp_path / "cache")
    assert [kind[::2] for kind in kinds(scanned)] == [("leak", "noted")] * 4
    assert keys(scanned) == keys(source)


def test_the_same_image_twice_in_one_split_is_no_leak(source: Source, tmp_path: Path) -> None:
    first, second, *_ = source.split("train")
    shutil.copyfile(path_of(first), path_of(second))
    assert scan(source, workers=2, cache=tmp_path / "cache") is source


def test_nothing_left_to_train_on_is_an_error(source: Source, tmp_path: Path) -> None:
    for record in source.split("train"):
        cut(record)
    with pytest.raises(DataError, match="no usable training image"):
        scan(source, workers=2, cache=tmp_path / "cache")


def test_drawn_images_are_not_scanned(tmp_path: Path) -> None:
    drawn = DrawnSource.open(tmp_path)
    assert scan(drawn, workers=1, cache=tmp_path / "cache") is drawn
    assert not (tmp_path / "cache").exists()


def test_only_changed_files_are_verified_again(source: Source, tmp_path: Path, verified: list[str]) -> None:
    bad, edited = source.split("train")[1], source.split("val")[2]
    cut(bad)
    first = scan(source, workers=2, cache=tmp_path / "cache")
    assert len(verified) == 12
    verified.clear()
    assert kinds(scan(source, workers=2, cache=tmp_path / "cache")) == kinds(first)
    assert verified == []
    # An edit of the same length that puts the time back is still seen.
    path, before = path_of(edited), path_of(edited).stat()
    path.write_bytes(b"x" * before.st_size)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    again = scan(source, workers=2, cache=tmp_path / "cache")
    assert verified == [path.name]
    assert kinds(again) == [*kinds(first), ("not-an-image", edited.key, "left out")]


def test_leaks_are_known_the_second_time(source: Source, tmp_path: Path, verified: list[str]) -> None:
    shutil.copyfile(path_of(source.split("train")[0]), path_of(source.split("test")[0]))
    first = scan(source, workers=2, cache=tmp_path / "cache")
    verified.clear()
    assert kinds(scan(source, workers=2, cache=tmp_path / "cache")) == kinds(first)
    assert verified == []


def test_nothing_is_written_into_the_set(source: Source, tmp_path: Path) -> None:
    before = sorted((file, file.stat().st_mtime_ns) for file in source.root.rglob("*"))
    cut(source.split("train")[0])
    scan(source, workers=2, cache=tmp_path / "cache")
    after = sorted((file, file.stat().st_mtime_ns) for file in source.root.rglob("*"))
    assert [file for file, _ in before] == [file for file, _ in after]


def test_a_scan_that_was_killed_goes_on_where_it_was(
    source: Source, tmp_path: Path, verified: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scan_module, "_BATCH", 2)
    monkeypatch.setattr(scan_module, "_STORE_SECONDS", 0.0)
    cut(source.split("train")[1])
    child = os.fork()
    if child == 0:  # it is killed by its own progress

        def die(num_done: int, total: int) -> None:
            if num_done >= 6:
                os.kill(os.getpid(), signal.SIGKILL)

        scan(source, workers=1, cache=tmp_path / "cache", progress=die)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    scanned = scan(source, workers=1, cache=tmp_path / "cache")
    assert 0 < len(verified) <= 6
    assert kinds(scanned) == [("truncated-image", source.split("train")[1].key, "left out")]
    verified.clear()
    assert kinds(scan(source, workers=1, cache=tmp_path / "cache")) == kinds(scanned)
    assert verified == []


def test_only_what_is_new_is_written(source: Source, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scan_cache, "_MAX_SEGMENTS", 4)

    def segments() -> list[Path]:
        return sorted((tmp_path / "cache").rglob("*.npy"))

    scan(source, workers=1, cache=tmp_path / "cache")
    (first,) = segments()
    scan(source, workers=1, cache=tmp_path / "cache")
    assert segments() == [first]
    for number in range(4):
        record = source.split("train")[number]
        path_of(record).write_bytes(path_of(record).read_bytes())
        scan(source, workers=1, cache=tmp_path / "cache")
        assert (first in segments()) == (number < 3)
    assert len(segments()) == 1
