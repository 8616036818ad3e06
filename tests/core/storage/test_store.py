"""Objects on a real S3 server, which also fails."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from boxcrew.core.errors import UsageError
from boxcrew.core.storage.address import Url
from boxcrew.core.storage.store import MissingObjectError, StorageError, Store, require_reachable
from tests.helpers.s3 import S3Server, without_credentials


def test_what_is_written_is_read(bucket: Url, tmp_path: Path) -> None:
    store = Store(bucket / "a")
    store.write("x/1", b"0123456789")
    (tmp_path / "file").write_bytes(b"of a file")
    store.write("2", tmp_path / "file")
    Store(bucket).write("ab/3", b"of another name")
    assert {name: info.size for name, info in store.objects().items()} == {"2": 9, "x/1": 10}
    assert (store.read("x/1", 2, 5), store.read_all(["2", "x/1"])) == (b"234", [b"of a file", b"0123456789"])
    store.download({"x/1": tmp_path / "got"})
    assert (tmp_path / "got").read_bytes() == b"0123456789"
    before = store.objects()["2"]
    store.write("2", b"of bytes.")
    assert store.objects()["2"].version != before.version
    store.delete("2")
    assert store.find("2") is None
    with pytest.raises(MissingObjectError, match="a/2: cannot be read"):
        store.read("2")


def test_of_many_that_create_an_object_one_succeeds(bucket: Url) -> None:
    store = Store(bucket)
    with ThreadPoolExecutor(8) as threads:
        created = list(threads.map(lambda number: store.create("one", b"%d" % number), range(8)))
    assert created.count(True) == 1
    assert store.read("one") == b"%d" % created.index(True)


def test_a_forked_process_reads_too(bucket: Url) -> None:
    store = Store(bucket)
    store.write("a", b"content")
    child = os.fork()
    if child == 0:
        os._exit(0 if store.read("a") == b"content" else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_a_storm_of_refusals_is_sat_out_by_the_library(s3: S3Server, bucket: Url) -> None:
    """s3_503_storm: two of three requests are told to slow down."""
    asked: list[str] = []

    def storm(method: str, path: str) -> str | None:
        asked.append(path)
        return None if len(asked) % 3 == 0 else "503 Slow Down"

    with s3.failing(storm):
        Store(bucket).write("a", b"content")
        assert Store(bucket).read("a") == b"content"
    assert len(asked) >= 6


def test_errors_name_the_url_and_the_reason(s3: S3Server, bucket: Url) -> None:
    with pytest.raises(
        UsageError, match="s3://no-such-bucket/a: cannot be listed: The specified bucket does"
    ):
        require_reachable(Url.of("s3://no-such-bucket/a"))
    with (
        without_credentials(),
        pytest.raises(UsageError, match="cannot be listed: Unable to locate credentials"),
    ):
        require_reachable(bucket)
    with (
        s3.failing(lambda method, path: "403 Access Denied"),
        pytest.raises(StorageError, match="cannot be written"),
    ):
        Store(bucket).write("a", b"content")
