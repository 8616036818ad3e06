"""Images in the shards of a bucket, read by ranges of bytes and kept on the disk within a budget.

`ShardCache` is a folder with a file for each shard, which has the bytes that were read where the shard has
them, and holes elsewhere. All processes of a computer share it, and the next run finds what this one read.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from boxcrew.core.storage.address import Url
from boxcrew.core.storage.store import MissingObjectError, StorageError, Store
from boxcrew.data.images.packed import ChangedContentError, PackedFile

PATIENCE = 120.0  # seconds for which a bucket that does not answer is asked again
_PAUSES = (0.5, 10.0)  # seconds between two attempts, first and last
_LEAST_APART = 2048  # bytes between the starts of two images: both have a header, and a JSON file with one
_PART = 8 * 2**20  # bytes of a shard that are read by one request
_EMPTY, _RESERVED, _KEPT = 0, 1, 2

SETTINGS, IN_USE = "cache.json", "in_use"
_MARKS, _USED, _WHOLE, _LOCK = "marks", "used", "whole", "lock"


@dataclass(frozen=True, slots=True)
class RemoteFile(PackedFile):
    """An image in a shard of a bucket. `archive` is the file of the cache that it is kept in."""

    def is_file(self) -> bool:
        return True

    def read_bytes(self) -> bytes:
        return cache_in(self.archive.parent).read(self)

    def read_part(self, start: int, num_bytes: int) -> bytes:
        return self.read_bytes()[start : start + num_bytes]

    def read_ends(self, num_first: int, num_last: int) -> tuple[bytes, bytes]:
        data = self.read_bytes()
        return data[:num_first], data[-num_last:] if num_last else b""


@lru_cache(maxsize=16)
def cache_in(folder: Path) -> ShardCache:
    """Return the cache in a folder, the same for all in this process and in those forked from it."""
    return ShardCache(folder)


class ShardCache:
    """The images of one packed set in a bucket that were read already, in a folder that exists."""

    def __init__(self, folder: Path) -> None:
        settings = json.loads((folder / SETTINGS).read_bytes())
        self._folder = folder
        self._url = Url.of(settings["url"])
        self._budget = int(settings["budget"])
        self._sizes: dict[str, int] = settings["shards"]
        counts = [size // _LEAST_APART + 1 for size in self._sizes.values()]
        firsts = accumulate(counts, initial=0)
        self._first: dict[str, int] = dict(zip(self._sizes, firsts, strict=False))
        self._number = {name: number for number, name in enumerate(self._sizes)}
        with self._locked(_LOCK):
            self._marks = _mapped(folder / _MARKS, np.uint8, sum(counts))
            self._used = _mapped(folder / _USED, np.int64, 1)
            self._whole = _mapped(folder / _WHOLE, np.uint8, len(counts))
        self._ahead = dict[tuple[str, int], bytes]()  # read for the next samples

    @property
    def used_bytes(self) -> int:
        return int(self._used[0])

    def read(self, file: RemoteFile) -> bytes:
        """Return the content of an image; `ChangedContentError` if it is not the one that was packed,
        `StorageError` if the bucket gives none, for so long as it is asked.
        """
        data = self._ahead.pop((file.archive.name, file.start), None)
        if data is None:
            if (kept := self._kept(file)) is not None:
                return kept
            (data,) = self._download([file])
        if len(data) != file.size or zlib.crc32(data) != file.checksum:
            raise ChangedContentError(file)
        return data

    def fetch(self, files: Iterable[RemoteFile]) -> None:
        """Read the images that the next samples are made of at the same time, those that are not kept yet."""
        self._ahead.clear()
        absent = [file for file in files if self._mark(file) != _KEPT and not self._is_whole(file)]
        for file, data in zip(absent, self._download(absent), strict=True):
            self._ahead[file.archive.name, file.start] = data

    def fetch_whole(self, files: Iterable[RemoteFile]) -> None:
        """Read the shards of images in whole, unless they do not fit into the budget: few large requests take
        less time than many small ones where most images of a shard will be wanted soon.
        """
        known = list(files)
        for name in dict.fromkeys(file.archive.name for file in known):
            if not self._whole[self._number[name]]:
                with self._locked(f"{name}.lock"):  # the other processes wait for the one that reads it
                    if not self._whole[self._number[name]] and self._reserve(self._sizes[name]):
                        self._read_whole(name)
        self.fetch(known)

    def _read_whole(self, name: str) -> None:
        starts = range(0, self._sizes[name], _PART)
        for first in range(0, len(starts), 4):
            some = [
                (name, start, min(start + _PART, self._sizes[name])) for start in starts[first : first + 4]
            ]
            for (_, start, _), data in zip(some, self._read_ranges(some), strict=True):
                if not self._write(name, start, data):
                    return
        self._whole[self._number[name]] = 1

    def _mark(self, file: PackedFile) -> int:
        return int(self._marks[self._place(file)])

    def _place(self, file: PackedFile) -> int:
        return self._first[file.archive.name] + file.start // _LEAST_APART

    def _is_whole(self, file: PackedFile) -> bool:
        return bool(self._whole[self._number[file.archive.name]])

    def _kept(self, file: PackedFile) -> bytes | None:
        """Return the content of an image that is kept. What a computer that lost its power has marked, but
        not written, is read again.
        """
        if self._mark(file) != _KEPT and not self._is_whole(file):
            return None
        with suppress(OSError):
            data = PackedFile.read_part(file, 0, file.size)
            if zlib.crc32(data) == file.checksum:
                return data
        return None

    def _download(self, files: Sequence[PackedFile]) -> list[bytes]:
        """Return the contents of images, which are kept as far as there is room."""
        ranges = [(file.archive.name, file.start, file.start + file.size) for file in files]
        contents = self._read_ranges(ranges)
        for file, data in zip(files, contents, strict=True):
            if zlib.crc32(data) == file.checksum:
                self._keep(file, data)
        return contents

    def _read_ranges(self, ranges: Sequence[tuple[str, int, int]]) -> list[bytes]:
        """Read from the bucket. One that does not answer is asked again for a while: a sample that is left
        out because of the network would make the run another one.
        """
        deadline, (pause, longest) = time.monotonic() + PATIENCE, _PAUSES
        while True:
            try:
                return Store(self._url).read_ranges(ranges)
            except MissingObjectError:
                raise
            except StorageError as error:
                if time.monotonic() + pause > deadline:
                    message = f"{error.message} (asked again for {PATIENCE:.0f} s)"
                    advice = "resume the run when the storage answers: no sample is lost"
                    raise StorageError(message, advice=advice) from None
            time.sleep(pause)
            pause = min(2 * pause, longest)

    def _keep(self, file: PackedFile, data: bytes) -> None:
        place = self._place(file)
        if self._marks[place] == _EMPTY:
            with self._locked(_LOCK):
                if self._marks[place] == _EMPTY:
                    if self.used_bytes + len(data) > self._budget:
                        return
                    self._used[0] += len(data)
                    self._marks[place] = _RESERVED
        if self._marks[place] != _KEPT and self._write(file.archive.name, file.start, data):
            self._marks[place] = _KEPT

    def _reserve(self, num_bytes: int) -> bool:
        with self._locked(_LOCK):
            if self.used_bytes + num_bytes > self._budget:
                return False
            self._used[0] += num_bytes
            return True

    def _write(self, name: str, start: int, data: bytes) -> bool:
        """Write bytes where the shard has them; return whether they are all there: the disk may be full."""
        try:
            file = os.open(self._folder / name, os.O_WRONLY | os.O_CREAT, 0o666)
            try:
                return os.pwrite(file, data, start) == len(data)
            finally:
                os.close(file)
        except OSError:
            return False

    @contextmanager
    def _locked(self, name: str) -> Iterator[None]:
        """Let one process, or thread, at a time go on. A process that is killed holds nothing up."""
        with (self._folder / name).open("w") as lock:  # opened anew: a fork would share the lock
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield


def _mapped(file: Path, dtype: type[np.generic], count: int) -> npt.NDArray[Any]:
    """Return numbers in a file that processes share, zeros at first."""
    num_bytes = count * np.dtype(dtype).itemsize
    if not file.is_file() or file.stat().st_size != num_bytes:
        with file.open("wb") as opened:
            os.posix_fallocate(opened.fileno(), 0, num_bytes)  # a full disk is noticed now, not by a signal
    return np.memmap(file, dtype=dtype, mode="r+", shape=(count,))
