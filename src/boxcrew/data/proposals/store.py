"""Proposals of a data set, kept between runs in a file of the user's cache.

The file is an SQLite database for each method: it survives a kill at any moment, and continues where it was.
Regions are stored by the digest of an image file's content; a file whose size and times have not changed
since then is not read again.
"""

from __future__ import annotations

import fcntl
import hashlib
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from boxcrew.core.cache import cache_folder
from boxcrew.core.errors import DataError
from boxcrew.core.types import Floats
from boxcrew.data.checks.stamps import file_stamp
from boxcrew.data.checks.threads import ProgressCallback, map_in_threads
from boxcrew.data.detection.records import Record
from boxcrew.data.detection.source import ImageReader
from boxcrew.data.proposals.methods import ProposalMethod

_AT_ONCE = 16  # images whose proposals are stored together: a kill loses no more
_TABLES = """
create table if not exists proposals (content blob primary key, boxes blob not null) without rowid;
create table if not exists files (path text primary key, stamp text not null, content blob not null)
without rowid;
"""


@dataclass(frozen=True, kw_only=True, eq=False)
class StoredProposals:
    """The first proposals of each record of a data set; records that could not be read have none."""

    boxes: Floats  # (N, 4) of all records, one after the other
    spans: Mapping[str, tuple[int, int]]  # of each record's key: its first box, and the one after its last

    def __call__(self, record: Record) -> Floats:
        start, stop = self.spans[record.key]
        return self.boxes[start:stop]


def compute_proposals(
    records: Sequence[Record],
    images: ImageReader,
    method: ProposalMethod,
    *,
    count: int,
    workers: int,
    folder: Path | None = None,
    progress: ProgressCallback | None = None,
) -> StoredProposals:
    """Return at most `count` proposals of each record, and compute those that are not stored yet, in
    `workers` threads. They are stored in `folder`, by default the user's cache.
    """
    with _open_store(folder or cache_folder("proposals"), method) as store:
        contents = dict(zip(records, store.contents_of(records, images, workers=workers), strict=True))
        missing = [record for record, content in contents.items() if content and not store.has(content)]
        for start in range(0, len(missing), _AT_ONCE * workers):
            some = missing[start : start + _AT_ONCE * workers]
            proposals = map_in_threads(
                lambda record: _propose(method, record, images), some, workers=workers, chunk_size=1
            )
            store.add((contents[record], boxes) for record, boxes in zip(some, proposals, strict=True))
            if progress is not None:
                progress(min(start + len(some), len(missing)), len(missing))
        return _joined({record.key: store.get(content)[:count] for record, content in contents.items()})


def _propose(method: ProposalMethod, record: Record, images: ImageReader) -> Floats | None:
    """Return the proposals of a record; None if its image cannot be read, which loaders report."""
    try:
        return method(images.read(record))
    except DataError:
        return None


def _joined(boxes: Mapping[str, Floats]) -> StoredProposals:
    ends = np.cumsum([0, *map(len, boxes.values())]).tolist()
    spans = {key: (ends[i], ends[i + 1]) for i, key in enumerate(boxes)}
    all_boxes = np.concatenate([np.zeros((0, 4), dtype=np.float32), *boxes.values()])
    return StoredProposals(boxes=all_boxes, spans=spans)


@dataclass(frozen=True, eq=False)
class _Store:
    """An open database of the proposals of one method."""

    database: sqlite3.Connection
    known: set[bytes] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.database.executescript(_TABLES)
        self.known.update(content for (content,) in self.database.execute("select content from proposals"))

    def contents_of(self, records: Sequence[Record], images: ImageReader, *, workers: int) -> list[bytes]:
        """Return the digest of the content of each record's image; empty if it cannot be read."""
        stored: dict[str, tuple[str, bytes]] = {
            path: (stamp, content)
            for path, stamp, content in self.database.execute("select path, stamp, content from files")
        }
        read: dict[str, tuple[str, bytes]] = {}

        def content_of(record: Record) -> bytes:
            if record.path is None:  # drawn
                return _digest(images.read(record).tobytes())
            path, stamp = str(record.path), str(file_stamp(record.path))
            known_stamp, content = stored.get(path, ("", b""))
            if stamp == known_stamp:
                return content
            with suppress(OSError):
                read[path] = stamp, _digest(record.path.read_bytes())
                return read[path][1]
            return b""

        contents = map_in_threads(content_of, records, workers=workers, chunk_size=32)
        rows = [(path, stamp, content) for path, (stamp, content) in read.items()]
        with self.database:
            self.database.executemany("insert or replace into files values (?, ?, ?)", rows)
        return contents

    def has(self, content: bytes) -> bool:
        return content in self.known

    def add(self, proposals: Iterable[tuple[bytes, Floats | None]]) -> None:
        rows = [(content, boxes.tobytes()) for content, boxes in proposals if boxes is not None]
        with self.database:
            self.database.executemany("insert or replace into proposals values (?, ?)", rows)
        self.known.update(content for content, _ in rows)

    def get(self, content: bytes) -> Floats:
        row = self.database.execute("select boxes from proposals where content = ?", (content,)).fetchone()
        return np.frombuffer(row[0] if row else b"", dtype=np.float32).reshape(-1, 4)


def _digest(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=16).digest()


@contextmanager
def _open_store(folder: Path | None, method: ProposalMethod) -> Iterator[_Store]:
    """Open the store of a method, alone: another process that wants it waits, and finds the work done. Where
    no file can be written, proposals are kept in memory.
    """
    try:
        if folder is None:
            raise OSError
        folder.mkdir(parents=True, exist_ok=True)
        file = store_file(folder, method)
        lock = file.with_suffix(".lock").open("w")
    except OSError:
        with closing(sqlite3.connect(":memory:", check_same_thread=False)) as database:
            yield _Store(database)
        return
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with closing(_open_file(file)) as database:
            yield _Store(database)


def store_file(folder: Path, method: ProposalMethod) -> Path:
    """Return the file that has the proposals of a method."""
    return folder / f"{_digest(method.key.encode()).hex()}.sqlite"


def _open_file(file: Path) -> sqlite3.Connection:
    """Open a database; one that is damaged is started anew, since all of it can be computed again."""
    with suppress(sqlite3.DatabaseError):
        database = sqlite3.connect(file, check_same_thread=False)
        database.execute("select count(*) from sqlite_master")
        if database.execute("pragma quick_check").fetchone() == ("ok",):
            return database
    file.unlink(missing_ok=True)
    return sqlite3.connect(file, check_same_thread=False)
