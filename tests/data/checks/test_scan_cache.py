"""Saved scan results are found again, and a broken cache never stops a scan."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from boxcrew.core.cache import cache_folder
from boxcrew.data.checks import scan as scan_module
from boxcrew.data.checks.scan import ScanCache, ScanResult, file_stamp

RESULTS = {
    "images/a.jpg": ScanResult((10, 20, 30)),
    "images/é.jpg": ScanResult((1, 2, 3), "truncated-image", "cannot be read: …", ""),
    "images/b.jpg": ScanResult((4, 5, 6), digest="0123"),
}


def test_saved_results_are_found_again(tmp_path: Path) -> None:
    ScanCache(tmp_path / "set", tmp_path / "cache").save(RESULTS)
    again = ScanCache(tmp_path / "set", tmp_path / "cache")
    for key, result in RESULTS.items():
        assert again.get(key, result.stamp) == result
        assert again.get(key, (10, 20, 31)) is None
        assert again.get(key, None) is None
    assert ScanCache(tmp_path / "other", tmp_path / "cache").get("images/a.jpg", (10, 20, 30)) is None


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"\xff\xfe", b"[]", b"null", b'{"version": 0, "looks": {}}', b"[" * 100_000,
     b'{"version": %b, "looks": {"a": [1, 2]}}', b'{"version": %b, "looks": {"a": [[1], null, "", ""]}}',
     b'{"version": %b, "looks": [1]}', b'{"version": %b}'],
)  # fmt: skip
def test_a_spoilt_cache_counts_as_empty(content: bytes, tmp_path: Path) -> None:
    ScanCache(tmp_path, tmp_path / "cache").save(RESULTS)
    (file,) = (tmp_path / "cache").iterdir()
    version = json.dumps(json.loads(file.read_bytes())["version"]).encode()
    file.write_bytes(content.replace(b"%b", version))
    cache = ScanCache(tmp_path, tmp_path / "cache")
    assert cache.get("images/a.jpg", (10, 20, 30)) is None
    cache.save(RESULTS)
    assert ScanCache(tmp_path, tmp_path / "cache").get("images/a.jpg", (10, 20, 30))


def test_a_cache_of_other_libraries_is_not_believed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ScanCache(tmp_path, tmp_path / "cache").save(RESULTS)
    monkeypatch.setattr(scan_module, "_VERSION", [1, "99.0", "99.0"])
    assert ScanCache(tmp_path, tmp_path / "cache").get("images/a.jpg", (10, 20, 30)) is None


def test_a_folder_that_cannot_be_is_no_hindrance(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    for folder in (None, tmp_path / "file" / "cache", Path("/proc/none")):
        cache = ScanCache(tmp_path, folder)
        cache.save(RESULTS)
        assert cache.get("images/a.jpg", (10, 20, 30)) is None


def test_the_oldest_sets_are_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scan_module, "_MAX_SETS", 3)
    for i in range(6):
        ScanCache(tmp_path / str(i), tmp_path / "cache").save(RESULTS)
    assert len(list((tmp_path / "cache").iterdir())) == 3
    assert ScanCache(tmp_path / "5", tmp_path / "cache").get("images/a.jpg", (10, 20, 30))


def test_without_a_home_there_is_no_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    def nowhere() -> Path:
        raise RuntimeError

    monkeypatch.undo()
    monkeypatch.setattr(Path, "home", nowhere)
    assert ScanCache(Path(), cache_folder("scan")).get("a", (1, 2, 3)) is None


def test_stamps(tmp_path: Path) -> None:
    assert file_stamp(tmp_path / "absent") is None
    (tmp_path / "a").write_bytes(b"abc")
    first = file_stamp(tmp_path / "a")
    assert first is not None
    assert first[0] == 3
    (tmp_path / "a").write_bytes(b"abd")
    assert file_stamp(tmp_path / "a") != first
