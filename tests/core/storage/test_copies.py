"""Local copies of objects: they follow what is stored."""

from __future__ import annotations

from pathlib import Path

import pytest

from boxcrew.core.errors import DataError
from boxcrew.core.storage.address import Url
from boxcrew.core.storage.copies import copied
from boxcrew.core.storage.growing import part_name, stored_files
from boxcrew.core.storage.store import ObjectInfo, Store
from tests.helpers.s3 import S3Server


def content(folder: Path) -> dict[str, bytes]:
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def test_a_copy_follows_what_is_stored_and_reads_only_what_is_new(s3: S3Server, bucket: Url) -> None:
    store = Store(bucket / "set")
    store.write("a/1.txt", b"one")
    store.write("a/2.txt", b"two")
    store.write("b/large", b"not wanted")
    wanted = lambda name: name.startswith("a/")  # noqa: E731
    folder = copied(bucket / "set", wanted, kind="test")
    assert (folder.name, content(folder)) == ("set", {"a/1.txt": b"one", "a/2.txt": b"two"})
    store.write("a/1.txt", b"One")
    store.write("a/3.txt", b"three")
    store.delete("a/2.txt")
    asked: list[str] = []
    with s3.failing(lambda method, path: asked.append(path)):
        assert copied(bucket / "set", wanted, kind="test") == folder
    assert content(folder) == {"a/1.txt": b"One", "a/3.txt": b"three"}
    asked.clear()
    with s3.failing(lambda method, path: asked.append(path)):
        copied(bucket / "set", wanted, kind="test")
    assert [path for path in asked if path.endswith(".txt")] == []


def test_names_that_lead_out_of_the_copy_are_refused(bucket: Url) -> None:
    Store(bucket).write("set/../../evil", b"")
    with pytest.raises(DataError, match="cannot be the name of a file"):
        copied(bucket / "set", lambda name: True, kind="test")


def test_files_in_parts_are_put_together(bucket: Url) -> None:
    store = Store(bucket)
    for edition, start, text in ((1, 0, b"old"), (2, 0, b"new "), (2, 4, b"lines"), (2, 99, b"after a gap")):
        store.write(part_name("m.jsonl", edition=edition, start=start), text)
    store.write("m.jsonl", b"the parts count")
    assert content(copied(bucket, lambda name: True, kind="test")) == {"m.jsonl": b"new lines"}


def test_the_last_edition_counts() -> None:
    one = ObjectInfo(size=4, version="")
    names = [
        part_name("a/log", edition=edition, start=start)
        for edition, start in ((9, 0), (10, 0), (10, 4), (10, 9))
    ]
    file = stored_files(dict.fromkeys(names, one))["a/log"]
    assert (file.names, file.size) == (tuple(names[1:3]), 8)
