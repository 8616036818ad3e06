"""Reader of packed sets: shards with an index of all images, in a folder or in a bucket.

Only the index is read when a set is opened, by mapping it into memory. Images were looked at when they were
packed; each has a checksum, which is compared whenever it is read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

from boxcrew.core.cache import cache_folder
from boxcrew.core.errors import DataError
from boxcrew.core.storage.address import Url
from boxcrew.core.storage.copies import copied
from boxcrew.core.storage.store import require_reachable
from boxcrew.data.config import AS_THE_FORMAT_SAYS, BoxOptions
from boxcrew.data.detection.packed_index import (
    INDEX,
    PackedIndex,
    is_packed,
    read_index,
    sample_rows,
    with_locations,
)
from boxcrew.data.detection.records import Record
from boxcrew.data.detection.source import SOURCES, Source
from boxcrew.data.images.remote import RemoteFile, cache_in
from boxcrew.data.images.remote_room import open_cache

_TRIED_SHARDS = 16  # of which two images are read when a set is opened
_AGAIN = "pack the set again, or copy it there again"


@SOURCES.register("packed")
@dataclass(kw_only=True, eq=False)
class PackedSource(Source):
    """A set that `boxcrew data pack` has written."""

    format = "packed"
    expects = "a folder index beside shards, as `boxcrew data pack` writes it"

    url: str = ""  # of a set in a bucket; its root is then the folder of its cache
    goes_by_shards: bool = False  # samples come in blocks of shards; those of a bucket are read in whole

    @classmethod
    def detect(cls, path: Path) -> bool:
        return is_packed(path)

    @classmethod
    def open(cls, path: Path, *, seed: int = 0, options: BoxOptions = AS_THE_FORMAT_SAYS) -> Self:  # noqa: ARG003
        options.require_default(str(path))
        path = path.absolute()
        index = read_index(path / INDEX, str(path))
        sizes = {file.name: file.stat().st_size for file in path.glob("*.tar")}
        return cls._opened(index, sizes, path, name=str(path), is_remote=False)

    @classmethod
    def open_url(cls, url: Url, *, budget: int, options: BoxOptions = AS_THE_FORMAT_SAYS) -> Self:
        """Open a set in a bucket, whose images are kept on the disk as far as `budget` bytes hold them."""
        options.require_default(url)
        sizes = {name: info.size for name, info in require_reachable(url).items()}
        index = read_index(copied(url / INDEX, _is_of_index, kind="sets"), url)
        name = f"{url.scheme}-{url.path.replace('/', '-')[-80:]}-{index.content[:8]}"
        caches = cache_folder("shards")
        if caches is None:
            raise DataError(f"{url}: there is no home directory to keep images in", advice="set HOME")
        _require_sizes(index, sizes, url)
        open_cache(caches / name, url, index.shards, budget=budget)
        return cls._opened(index, sizes, caches / name, name=url, is_remote=True)

    @classmethod
    def _opened(
        cls, index: PackedIndex, sizes: Mapping[str, int], folder: Path, *, name: str, is_remote: bool
    ) -> Self:
        _require_sizes(index, sizes, name)
        source = with_locations(index.source, folder, is_remote=is_remote)
        assert isinstance(source, cls)
        source._require_contents(name)
        return replace(source, is_checked=True, content=index.content, url=name if is_remote else "")

    @property
    def place(self) -> str:
        return self.url or super().place

    def _require_contents(self, name: str) -> None:
        """Raise `DataError` if some images, read to try it, are not where the index says."""
        records = self.records
        tried = [records[row] for row in sample_rows(self, _TRIED_SHARDS)]
        self.fetch(tried)
        for record in tried:
            assert record.path is not None
            try:
                record.path.read_bytes()
            except OSError as error:
                message = f"{name}: {record.key} is not where the index says: {error.strerror or error}"
                raise DataError(message, advice=_AGAIN) from None

    def fetch(self, records: Sequence[Record]) -> None:
        """Read the images of the next samples at the same time, if they are in a bucket."""
        files = [record.path for record in records if isinstance(record.path, RemoteFile)]
        if files:
            cache = cache_in(files[0].archive.parent)
            (cache.fetch_whole if self.goes_by_shards else cache.fetch)(files)


def _is_of_index(name: str) -> bool:
    return "/" not in name


def _require_sizes(index: PackedIndex, sizes: Mapping[str, int], name: str) -> None:
    """Raise `DataError` if a shard is missing or has another size than the index says."""
    for shard, size in index.shards.items():
        if shard not in sizes:
            raise DataError(f"{name}: the shard {shard} is missing", advice=_AGAIN)
        if sizes[shard] != size:
            reason = "it is cut short" if sizes[shard] < size else "it is not the shard that was packed"
            message = f"{name}: {shard} has {sizes[shard]:,} bytes, its index says {size:,}: {reason}"
            raise DataError(message, advice=_AGAIN)
