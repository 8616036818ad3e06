"""Files that another process writes, cuts, replaces and removes while they are read."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from boxcrew.serve.watch import reading
from boxcrew.serve.watch.reading import GrowingFile, JsonFile, JsonRecord


def lines_of(file: GrowingFile) -> list[str]:
    return [line.decode() for line in file.read().lines]


def test_each_line_is_read_once_and_a_torn_one_when_it_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    file = GrowingFile(path)
    assert lines_of(file) == []
    path.write_bytes(b"one\ntwo\nthr")
    assert lines_of(file) == ["one", "two"]
    assert lines_of(file) == []
    with path.open("ab") as appended:
        appended.write(b"ee\nfour\n")
    part = file.read()
    assert (part.lines, part.restarted, part.has_more) == ([b"three", b"four"], False, False)


@pytest.mark.parametrize("how", ["replaced", "cut", "written again in place", "removed and made again"])
def test_a_file_that_begins_anew_is_read_from_its_start(tmp_path: Path, how: str) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text("".join(f"row {i}\n" for i in range(50)))
    file = GrowingFile(path)
    assert len(lines_of(file)) == 50
    again = "other\n" * 200 if how == "written again in place" else "other\n"
    if how == "replaced":
        (tmp_path / "new").write_text(again)
        (tmp_path / "new").replace(path)
    elif how == "removed and made again":
        path.unlink()
        assert file.read().lines == []  # what was read stays shown
        path.write_text(again)
    else:
        path.write_text(again)
    part = file.read()
    assert part.restarted
    assert set(part.lines) == {b"other"}


def test_a_large_file_is_read_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "MAX_PART", 100)
    path = tmp_path / "metrics.jsonl"
    path.write_text("".join(f"{i}\n" for i in range(100)) + "x" * 350 + "\nlast\n")
    file, found = GrowingFile(path), []
    while True:
        part = file.read()
        assert not part.restarted
        found += part.lines
        if not part.has_more:
            break
    assert found == [*(str(i).encode() for i in range(100)), b"last"]  # a line that is too long is left out


@pytest.mark.parametrize("kind", ["pipe", "folder", "link", "nothing"])
def test_what_is_no_file_is_not_waited_for_or_followed(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "status.json"
    (tmp_path / "secret.json").write_text('{"secret": 1}\n')
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    elif kind == "link":
        path.symlink_to(tmp_path / "secret.json")
    assert not JsonFile(path).read()
    assert lines_of(GrowingFile(path)) == []


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[1]", b'"text"', b"\xff\xfe", b"[" * 100_000, b'{"a": ' + b"9" * 5000 + b"}"],
    ids=lambda content: content[:6].hex(),
)
def test_damaged_json_is_empty_and_told(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "summary.json"
    path.write_text('{"AP": 0.5}')
    file = JsonFile(path)
    assert file.read().number("AP") == 0.5
    path.write_bytes(content)
    assert not file.read()
    assert file.is_damaged
    path.unlink()
    assert not file.read()
    assert not file.is_damaged


def test_values_of_other_types_are_left_out() -> None:
    values = '{"a": 1, "b": true, "c": "x", "d": NaN, "e": Infinity, "f": [1, {"g": 2}], "h": {"i": 1e999, "j": 3}}'  # noqa: E501
    record = JsonRecord(json.loads(values))
    assert [record.number(name) for name in "abcdefh"] == [1, None, None, None, None, None, None]
    assert record.number("k", "l") is None
    assert record.number("c", "l") is None
    assert record.number("h", "j") == 3
    assert record.numbers("h") == {"j": 3}
    assert [item.number("g") for item in record.records("f")] == [None, 2]
    assert record.text("a") is None
    assert JsonRecord({"a": 10**400}).number("a") is None
