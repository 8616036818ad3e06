"""A file that was changed has another stamp."""

from __future__ import annotations

from pathlib import Path

from boxcrew.data.checks.stamps import NO_FILE, file_stamp, stamp_array
from boxcrew.data.images.packed import PackedFile


def test_stamps(tmp_path: Path) -> None:
    assert file_stamp(tmp_path / "absent") is None
    (tmp_path / "a").write_bytes(b"abc")
    first = file_stamp(tmp_path / "a")
    assert first is not None
    assert first[0] == 3
    (tmp_path / "a").write_bytes(b"abd")
    assert file_stamp(tmp_path / "a") != first
    assert file_stamp(PackedFile(tmp_path / "a", "b", 0, 2)) == (2, *file_stamp(tmp_path / "a")[1:])  # type: ignore[index]


def test_stamps_of_many_files(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"abc")
    stamps = stamp_array([str(tmp_path / "a"), str(tmp_path / "absent"), "\0"])
    assert [*map(tuple, stamps.tolist())] == [file_stamp(tmp_path / "a"), NO_FILE, NO_FILE]
    assert stamp_array([]).shape == (0, 3)
