"""Saved scan results are found again, and a broken cache never stops a scan."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from boxcrew.core.cache import cache_folder
from boxcrew.data.checks import scan_cache as module
from boxcrew.data.checks.scan_cache import SCAN_RESULT, Fault, ScanCache, ScanResults

FAULTS: dict[int, Fault] = {7: ("truncated-image", "cannot be read: …"), 2**63 + 1: ("image-frames", "")}


def looks(*keys: int, size: int = 10) -> ScanResults:
    made = np.zeros(len(keys), dtype=SCAN_RESULT)
    made["key"] = keys
    made["stamp"] = [(size, key % 100, 30) for key in keys]
    made["ending"], made["digest"] = 5, (6, 7)
    made["is_faulty"] = [key in FAULTS for key in keys]
    return made


def known(cache: ScanCache, *keys: int, size: int = 10) -> list[bool]:
    wanted = looks(*keys, size=size)
    found, is_known = cache.find(wanted["key"], wanted["stamp"])
    assert (found["key"] == wanted["key"]).all()
    assert (found["stamp"] == wanted["stamp"]).all()
    assert (found[is_known] == wanted[is_known]).all()
    assert not found[~is_known]["ending"].any()
    assert all(cache.fault(look) == FAULTS[int(look["key"])] for look in found if look["is_faulty"])
    answer: list[bool] = is_known.tolist()
    return answer


def stored(folder: Path) -> ScanCache:
    return ScanCache(folder / "set", folder / "cache")


def files(folder: Path) -> list[Path]:
    return sorted((folder / "cache").rglob("*.npy"))


def test_saved_results_are_found_again(tmp_path: Path) -> None:
    assert known(stored(tmp_path), 1, 7) == [False, False]
    stored(tmp_path).add(looks(2**63 + 1, 7, 1), FAULTS)
    assert known(stored(tmp_path), 1, 2, 7, 2**63 + 1) == [True, False, True, True]
    assert known(stored(tmp_path), 1, 7, size=11) == [False, False]
    assert known(stored(tmp_path), 1, size=-1) == [False]
    assert known(ScanCache(tmp_path / "other", tmp_path / "cache"), 1) == [False]


def test_later_results_come_before_earlier_ones_and_all_become_one(tmp_path: Path) -> None:
    stored(tmp_path).add(looks(1, 7, size=4), FAULTS)
    stored(tmp_path).add(looks(7, 9, size=10), FAULTS)
    assert known(stored(tmp_path), 1, 7, 9) == [False, True, True]
    assert known(stored(tmp_path), 1, 7, 9, size=4) == [True, False, False]
    stored(tmp_path).replace_all(looks(9, 7, 1), FAULTS)
    assert len(files(tmp_path)) == 1
    assert known(stored(tmp_path), 1, 7, 9) == [True, True, True]


def test_many_segments_are_said_to_be_many(tmp_path: Path) -> None:
    for key in range(module._MAX_SEGMENTS):
        assert not stored(tmp_path).has_many_segments
        stored(tmp_path).add(looks(key + 10), {})
    assert stored(tmp_path).has_many_segments


@pytest.mark.parametrize("content", [b"", b"\x93NUMPY", b"{", b"[1, 2]", b"cut", b"other"])
def test_a_spoilt_segment_counts_as_absent(content: bytes, tmp_path: Path) -> None:
    stored(tmp_path).add(looks(1, 7), FAULTS)
    stored(tmp_path).add(looks(20), {})
    first, _ = files(tmp_path)
    if content == b"other":
        np.save(first, np.arange(3))
    else:
        first.write_bytes(first.read_bytes()[:-3] if content == b"cut" else content)
    assert known(stored(tmp_path), 1, 7, 20) == [False, False, True]


@pytest.mark.parametrize("content", [b"", b"{}", b"[]", b'{"7": 3}', b'{"7": [1, 2]}', b"[" * 100_000])
def test_a_segment_without_its_faults_counts_as_absent(content: bytes, tmp_path: Path) -> None:
    stored(tmp_path).add(looks(1, 7), FAULTS)
    files(tmp_path)[0].with_suffix(".json").write_bytes(content)
    assert known(stored(tmp_path), 1, 7) == [False, False]
    stored(tmp_path).add(looks(1, 7), FAULTS)
    assert known(stored(tmp_path), 1, 7) == [True, True]


def test_a_cache_of_other_libraries_is_not_believed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stored(tmp_path).add(looks(1), {})
    monkeypatch.setattr(module, "_VERSION", [3, "99.0", "99.0"])
    assert known(stored(tmp_path), 1) == [False]


def test_a_folder_that_cannot_be_is_no_hindrance(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    for folder in (None, tmp_path / "file" / "cache", Path("/proc/none")):
        cache = ScanCache(tmp_path, folder)
        cache.add(looks(1, 7), FAULTS)
        cache.replace_all(looks(1, 7), FAULTS)
        cache.forget_old_sets()
        assert known(ScanCache(tmp_path, folder), 1) == [False]


def test_the_oldest_sets_are_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MAX_SETS", 3)
    for i in range(6):
        cache = ScanCache(tmp_path / str(i), tmp_path / "cache")
        cache.add(looks(1), {})
        cache.forget_old_sets()
    assert len(list((tmp_path / "cache").iterdir())) == 3
    assert known(ScanCache(tmp_path / "5", tmp_path / "cache"), 1) == [True]


def test_without_a_home_there_is_no_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    def nowhere() -> Path:
        raise RuntimeError

    monkeypatch.undo()
    monkeypatch.setattr(Path, "home", nowhere)
    assert known(ScanCache(Path(), cache_folder("scan")), 1) == [False]
