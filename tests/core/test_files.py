"""A reader sees the old file or the new one, never half of one."""

from __future__ import annotations

import json
import os
import resource
from pathlib import Path

import pytest

from boxcrew.core.files import append, write_atomically, write_json, write_text


def test_what_was_written_is_there_and_nothing_else(tmp_path: Path) -> None:
    file = tmp_path / "a.txt"
    write_text(file, "größe\n")
    write_text(file, "length\n")
    assert file.read_text(encoding="utf-8") == "length\n"
    assert list(tmp_path.iterdir()) == [file]


def test_the_old_file_stays_when_writing_fails(tmp_path: Path) -> None:
    file = tmp_path / "a.bin"
    file.write_bytes(b"old")

    def write_half(path: Path) -> None:
        path.write_bytes(b"ne")
        assert file.read_bytes() == b"old"  # nobody sees the half
        raise OSError("the disk is full")

    with pytest.raises(OSError, match="full"):
        write_atomically(file, write_half)
    assert file.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [file]


def test_a_reader_of_the_old_file_reads_it_to_its_end(tmp_path: Path) -> None:
    file = tmp_path / "a.txt"
    write_text(file, "old\n")
    with file.open(encoding="utf-8") as reader:
        write_text(file, "new and longer\n")
        assert reader.read() == "old\n"
    assert file.read_text(encoding="utf-8") == "new and longer\n"


def test_a_new_file_is_not_there_when_writing_fails(tmp_path: Path) -> None:
    def refuse(_: Path) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_atomically(tmp_path / "a.bin", refuse)
    assert list(tmp_path.iterdir()) == []


def test_json_is_read_back_the_same_and_has_no_nan(tmp_path: Path) -> None:
    file = tmp_path / "a.json"
    value = {"名": [1, 2.5, None, True], "nested": {"a": "ü"}}
    write_json(file, value)
    assert json.loads(file.read_text(encoding="utf-8")) == value
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_json(file, {"loss": float("nan")})
    assert json.loads(file.read_text(encoding="utf-8")) == value


def test_all_of_a_line_is_added_or_none(tmp_path: Path) -> None:
    """A limit on the size of files stands for a full disk: the system cuts off the last write."""
    file = tmp_path / "a.jsonl"
    append(file, "größe\n")
    append(file, "length\n")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20, before[1]))
    try:
        with pytest.raises(OSError, match="too large"):
            append(file, "a line that does not fit\n")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    append(file, "it does now\n")
    assert file.read_text(encoding="utf-8") == "größe\nlength\nit does now\n"


def test_names_of_files_that_are_not_utf8_are_escaped(tmp_path: Path) -> None:
    name = os.fsdecode(b"caf\xe9.png")
    write_text(tmp_path / "a.txt", f"größe {name}\n")
    append(tmp_path / "a.txt", f"{name}\n")
    assert (tmp_path / "a.txt").read_text(encoding="utf-8") == "größe caf\\udce9.png\ncaf\\udce9.png\n"
    write_json(tmp_path / "a.json", {name: [name, "größe"]})
    assert json.loads((tmp_path / "a.json").read_text(encoding="utf-8")) == {name: [name, "größe"]}
