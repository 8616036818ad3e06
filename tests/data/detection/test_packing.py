"""A packed set is the set that it was made of, wherever it lies, and nothing half is taken for whole."""

from __future__ import annotations

import io
import json
import os
import shutil
import signal
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from boxcrew.core.errors import BoxcrewError, DataError, UsageError
from boxcrew.core.storage.address import Location, Url
from boxcrew.core.storage.store import Store
from boxcrew.core.types import Target
from boxcrew.data.detection.formats import packed
from boxcrew.data.detection.opening import OpenRequest, open_scanned
from boxcrew.data.detection.packing import pack
from boxcrew.data.detection.records import Record
from boxcrew.data.detection.source import Source, open_source
from boxcrew.data.detection.writers import write_source
from boxcrew.data.images import remote, remote_room
from boxcrew.testing.sources import DrawnSource
from tests.helpers.s3 import S3Server, without_credentials

SHARD = 20_000


@pytest.fixture(params=["folder", "bucket"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Location:
    """Where a set is packed to."""
    if request.param == "folder":
        return tmp_path / "packed"
    url = request.getfixturevalue("bucket")
    assert isinstance(url, Url)
    return url / "packed"


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Images of buckets are kept in a folder of this test, and opening a set reads two of them."""
    monkeypatch.setattr(packed, "cache_folder", lambda name: tmp_path / "caches" / name)
    monkeypatch.setattr(packed, "_TRIED_SHARDS", 1)


@pytest.fixture
def drawn(tmp_path: Path) -> Source:
    return DrawnSource.open(tmp_path)


def names(place: Location) -> set[str]:
    if isinstance(place, Url):
        return set(Store(place).objects())
    return {file.relative_to(place).as_posix() for file in place.rglob("*") if file.is_file()}


def read(place: Location, name: str) -> bytes:
    return Store(place).read(name) if isinstance(place, Url) else (place / name).read_bytes()


def write(place: Location, name: str, data: bytes) -> None:
    if isinstance(place, Url):
        Store(place).write(name, data)
    else:
        (place / name).write_bytes(data)


def remove(place: Location, name: str) -> None:
    if isinstance(place, Url):
        Store(place).delete(name)
    else:
        (place / name).unlink()


def of(record: Record) -> object:
    return record.key, record.extent, {name: array.tolist() for name, array in vars(record.target).items()}


def records(source: Source) -> object:
    return source.classes, {name: [*map(of, split)] for name, split in source.splits.items()}


def require_same(first: Source, second: Source) -> None:
    """Assert that both have the same records in the same order, and the same pixels."""
    assert records(second) == records(first)
    for split in first.splits:
        for own, other in zip(first.split(split), second.split(split), strict=True):
            np.testing.assert_array_equal(second.read(other), first.read(own))


def test_it_is_the_same_set(drawn: Source, place: Location) -> None:
    num_shards = pack(drawn, place, shard_bytes=SHARD)
    assert num_shards == sum(name.endswith(".tar") for name in names(place)) > 3
    opened = open_scanned(OpenRequest(path=str(place)), workers=1)
    assert opened.format == "packed"
    require_same(drawn, opened)
    assert opened.split("train").digest == drawn.split("train").digest
    require_same(drawn, open_source(str(place)))  # from the cache


def test_files_are_packed_byte_for_byte(drawn: Source, place: Location, tmp_path: Path) -> None:
    write_source(drawn, tmp_path / "voc", format="voc")
    source = open_source(tmp_path / "voc")
    pack(source, place, shard_bytes=SHARD)
    opened = open_source(str(place))
    require_same(source, opened)
    for own, other in zip(source.records, opened.records, strict=True):
        assert own.path is not None
        assert other.path is not None
        assert other.path.read_bytes() == own.path.read_bytes()


def test_others_can_read_the_shards(drawn: Source, tmp_path: Path) -> None:
    """They are plain archives, whose members of one sample follow each other and share a name to the dot."""
    pack(drawn, tmp_path / "packed", shard_bytes=SHARD)
    shards = sorted((tmp_path / "packed").glob("train-*.tar"))
    assert all(shard.stat().st_size <= SHARD for shard in shards)
    members = [member for shard in shards for member in members_of(shard)]
    stems = [member.name.partition(".")[0] for member in members]
    assert stems[::2] == stems[1::2] == [record.key for record in drawn.split("train")]
    for path in (tmp_path / "packed" / "index").iterdir():
        path.unlink()
    (tmp_path / "packed" / "index").rmdir()
    plain = open_source(tmp_path / "packed")
    assert plain.format == "webdataset"
    for split in drawn.splits:
        for own, other in zip(drawn.split(split), plain.split(split), strict=True):
            assert of(own)[2] == of(other)[2]  # type: ignore[index]
            np.testing.assert_array_equal(plain.read(other), drawn.read(own))


def members_of(shard: Path) -> list[tarfile.TarInfo]:
    with tarfile.open(shard) as tar:
        return tar.getmembers()


def test_names_with_dots_stay_apart(tmp_path: Path) -> None:
    keys = ("a.v1.jpg", "a.v2.jpg", "A_v1.jpg", "../b.jpg", "../../b.png", "c.d/e")
    target = Target.of([[1, 1, 5, 5]], [0])
    every = tuple(Record(key=key, path=None, width=8, height=8, target=target) for key in keys)
    source = DrawnSource(root=Path(), classes=("tea",), splits={"train": every})
    pack(source, tmp_path / "packed", shard_bytes=10**6)
    require_same(source, open_source(tmp_path / "packed"))
    members = members_of(tmp_path / "packed" / "train-000000.tar")
    stems = {member.name.partition(".")[0].lower() for member in members}
    assert len(stems) == len(keys)
    assert not any(stem.startswith(("/", ".")) for stem in stems)


@pytest.mark.parametrize("cut", [0, 5, 11])
def test_what_was_begun_is_refused_and_goes_on(
    cut: int, drawn: Source, place: Location, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C comes at some image: what is there then is no set, and the same command makes it one."""
    pack(drawn, tmp_path / "whole", shard_bytes=SHARD)
    seen: list[int] = []

    def interrupt(done: int, total: int) -> None:
        seen.append(done)
        if len(seen) > cut:
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        pack(drawn, place, shard_bytes=SHARD, progress=interrupt)
    with pytest.raises(DataError, match="packing it has not finished"):
        open_source(str(place))
    if isinstance(place, Path):
        with pytest.raises(DataError, match="packing it has not finished"):
            open_source(place, format="webdataset")
    done: list[int] = []
    pack(drawn, place, shard_bytes=SHARD, progress=lambda num, total: done.append(num))
    assert done[-1] == len(drawn.records)
    require_same(drawn, open_source(str(place)))
    assert names(place) == names(tmp_path / "whole")
    assert all(read(place, name) == read(tmp_path / "whole", name) for name in names(place))


def test_nothing_is_overwritten(drawn: Source, place: Location, tmp_path: Path) -> None:
    pack(drawn, place, shard_bytes=SHARD)
    before = {name: read(place, name) for name in names(place)}
    with pytest.raises(UsageError, match="exists already; nothing is overwritten"):
        pack(drawn, place, shard_bytes=SHARD)
    assert {name: read(place, name) for name in names(place)} == before


def test_another_set_does_not_go_on(drawn: Source, place: Location, tmp_path: Path) -> None:
    def interrupt(done: int, total: int) -> None:
        if done > 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        pack(drawn, place, shard_bytes=SHARD, progress=interrupt)
    with pytest.raises(UsageError, match="packing another set, or this one with another shard="):
        pack(DrawnSource.open(tmp_path, seed=1), place, shard_bytes=SHARD)
    with pytest.raises(UsageError, match="packing another set, or this one with another shard="):
        pack(drawn, place, shard_bytes=2 * SHARD)


def shortened(place: Location) -> str:
    write(place, "val-000001.tar", read(place, "val-000001.tar")[:-700])
    return "val-000001.tar has .* its index says .*: it is cut short"


def without_a_shard(place: Location) -> str:
    remove(place, "val-000001.tar")
    return "the shard val-000001.tar is missing"


def without_a_commit(place: Location) -> str:
    remove(place, "index/COMMIT")
    return "packing it has not finished"


def with_other_boxes(place: Location) -> str:
    data = bytearray(read(place, "index/boxes.npy"))
    data[-3] ^= 1
    write(place, "index/boxes.npy", bytes(data))
    return "its index is damaged: boxes.npy is not the file of its COMMIT"


def of_another_set(place: Location) -> str:
    """The index is whole, but it is that of other shards, which have the same sizes."""
    first = read(place, "test-000000.tar")
    write(place, "test-000000.tar", first[512:] + first[:512])
    return "is not where the index says"


FAULTS = (shortened, without_a_shard, without_a_commit, with_other_boxes, of_another_set)


@pytest.mark.parametrize("fault", FAULTS)
def test_damage_is_found_before_the_first_step(
    fault: Callable[[Location], str],
    drawn: Source,
    place: Location,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """shard_truncated, shard_index_wrong"""
    pack(drawn, place, shard_bytes=SHARD)
    message = fault(place)
    monkeypatch.setattr(packed, "_TRIED_SHARDS", 16)
    with pytest.raises(DataError, match=message) as caught:
        open_scanned(OpenRequest(path=str(place)), workers=1)
    assert str(place) in caught.value.message
    assert caught.value.advice


def test_a_shard_that_changes_later_gives_no_wrong_image(drawn: Source, bucket: Url) -> None:
    pack(drawn, bucket / "packed", shard_bytes=10**6)
    opened = open_source(bucket / "packed")
    shard = bytearray(read(bucket / "packed", "train-000000.tar"))
    record = opened.split("train")[1]
    assert record.path is not None
    place = shard.index(record.path.read_bytes()[:64]) + 70
    shard[place] ^= 1
    write(bucket / "packed", "train-000000.tar", bytes(shard))
    again = pack_anew(bucket, opened)
    with pytest.raises(DataError, match="other bytes there than were packed"):
        again.read(again.split("train")[1])


def pack_anew(bucket: Url, opened: Source) -> Source:
    """The set as another computer opens it, which has nothing of it in its cache."""
    folder = opened.root
    shutil.rmtree(folder)
    remote.cache_in.cache_clear()
    return open_source(bucket / "packed")


def test_mistakes_are_said_at_once(bucket: Url, tmp_path: Path) -> None:
    def message(path: str) -> str:
        with pytest.raises(BoxcrewError) as caught:
            open_scanned(OpenRequest(path=path), workers=1)
        assert caught.value.exit_code in {2, 3}
        assert caught.value.advice
        return caught.value.message

    assert "nothing is stored below it" in message(bucket / "nothing")
    assert "s3://no-such-bucket-here" in message("s3://no-such-bucket-here/set")
    with without_credentials():
        assert "redentials" in message(bucket / "set")


def test_a_folder_in_a_bucket_is_copied(drawn: Source, bucket: Url, tmp_path: Path) -> None:
    write_source(drawn, tmp_path / "voc", format="voc")
    for file in (tmp_path / "voc").rglob("*"):
        if file.is_file():
            Store(bucket / "voc").write(file.relative_to(tmp_path / "voc").as_posix(), file)
    opened = open_scanned(OpenRequest(path=bucket / "voc"), workers=1)
    assert opened.format == "voc"
    require_same(open_source(tmp_path / "voc"), opened)


@pytest.fixture
def asked(s3: S3Server) -> Iterator[list[str]]:
    """The shards of which something was read since the test emptied it."""
    paths: list[str] = []

    def note(method: str, path: str) -> str | None:
        if method == "GET" and path.endswith(".tar"):
            paths.append(path)
        return None

    s3.after = note
    yield paths
    s3.after = None


def test_each_image_is_read_once(drawn: Source, bucket: Url, asked: list[str]) -> None:
    pack(drawn, bucket / "packed", shard_bytes=SHARD)
    opened = open_source(bucket / "packed")
    every = list(opened.records)
    opened.fetch(every)  # type: ignore[attr-defined]
    first = [opened.read(record) for record in every]
    assert len(asked) == len(every)  # those that opening it has read included
    asked.clear()
    again = open_source(bucket / "packed")
    for record, pixels in zip(again.records, first, strict=True):
        np.testing.assert_array_equal(again.read(record), pixels)
    assert asked == []


def test_what_does_not_fit_the_budget_is_read_each_time(drawn: Source, bucket: Url, asked: list[str]) -> None:
    pack(drawn, bucket / "packed", shard_bytes=SHARD)
    budget = 12_000
    opened = open_source(bucket / "packed", disk=budget)
    for _ in range(2):
        asked.clear()
        require_same(drawn, opened)
        assert 0 < len(asked) < len(drawn.records)
    assert 0 < remote.cache_in(opened.root).used_bytes <= budget
    on_disk = sum(file.stat().st_blocks * 512 for file in opened.root.glob("*.tar"))
    assert on_disk <= budget + 4096 * 2 * len(drawn.records)


def test_an_older_set_makes_room(drawn: Source, bucket: Url, tmp_path: Path) -> None:
    """In a process that does not use it any more."""
    pack(drawn, bucket / "packed", shard_bytes=SHARD)
    pack(DrawnSource.open(tmp_path, seed=1), bucket / "other", shard_bytes=SHARD)
    old = open_source(bucket / "packed")
    require_same(drawn, old)
    size = sum(json.loads((old.root / remote.SETTINGS).read_bytes())["shards"].values())
    open_source(bucket / "other", disk=int(1.5 * size))
    assert old.root.is_dir()  # it is in use
    os.close(remote_room._held.pop(old.root))
    open_source(bucket / "other", disk=int(1.5 * size))
    assert not old.root.exists()


def test_damage_of_the_cache_is_repaired(drawn: Source, bucket: Url) -> None:
    """As after a loss of power: an image is marked as kept, but its bytes are not there."""
    pack(drawn, bucket / "packed", shard_bytes=SHARD)
    opened = open_source(bucket / "packed")
    require_same(drawn, opened)
    for file in opened.root.glob("*.tar"):
        file.write_bytes(bytes(file.stat().st_size))
    require_same(drawn, opened)


def test_a_storm_of_refusals_is_sat_out(
    drawn: Source, bucket: Url, s3: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """s3_503_storm: longer than the library repeats its requests."""
    pack(drawn, bucket / "packed", shard_bytes=SHARD)
    opened = open_source(bucket / "packed")
    monkeypatch.setattr(remote, "_PAUSES", (0.01, 0.01))
    asked: list[str] = []

    def storm(method: str, path: str) -> str | None:
        asked.append(path)
        return "503 Slow Down" if len(asked) < 6 else None

    with s3.failing(storm):
        require_same(drawn, opened)
    assert len(asked) > 6


def test_shards_are_read_whole_for_blocks(drawn: Source, bucket: Url, asked: list[str]) -> None:
    pack(drawn, bucket / "packed", shard_bytes=SHARD)
    opened = open_source(bucket / "packed")
    num_shards = len({record.path.archive for record in opened.records})  # type: ignore[union-attr]
    opened.goes_by_shards = True  # type: ignore[attr-defined]
    asked.clear()
    opened.fetch(list(opened.records))  # type: ignore[attr-defined]
    assert len(asked) == num_shards
    require_same(drawn, opened)
    assert len(asked) == num_shards


def test_the_index_is_no_pickle(drawn: Source, tmp_path: Path) -> None:
    pack(drawn, tmp_path / "packed", shard_bytes=SHARD)
    for file in (tmp_path / "packed" / "index").glob("*.npy"):
        np.load(io.BytesIO(file.read_bytes()), allow_pickle=False)
