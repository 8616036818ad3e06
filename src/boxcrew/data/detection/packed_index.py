"""The index of a packed set: its columns, and where each image is in the shards.

It is the folder `index` beside the shards: columns as `column_files` writes them, `shards.json` with the
size of each shard, and `COMMIT`, which is written last of all and has the digests of the other files. A set
without it is not whole, and is refused.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from boxcrew.core.errors import DataError
from boxcrew.core.files import write_json
from boxcrew.data.detection.column_files import COMMIT, DAMAGED, read_source, write_columns
from boxcrew.data.detection.records import ImageLocation, Records
from boxcrew.data.detection.source import Source
from boxcrew.data.stored import INDEX_MARKS

INDEX = "index"
UNFINISHED = "UNFINISHED"  # in the folder of the index, as long as shards are being written
PARTS = "parts"
_SHARDS, _LAYOUT = "shards.json", 1
_AGAIN = "pack the set again, into another folder"


@dataclass(frozen=True, kw_only=True)
class PackedIndex:
    """An index that was read, and is whole."""

    source: Source  # whose places name shards relative to the folder of the set
    shards: Mapping[str, int]  # sizes by name
    content: str  # a digest of all images and objects


def write_index(folder: Path, source: Source, shards: Mapping[str, int]) -> None:
    """Write the index of a set, whose shards are all there, into an empty folder."""
    write_columns(folder, source)
    write_json(folder / _SHARDS, dict(shards))
    files = {file.name: _digest(file) for file in sorted(folder.iterdir())}
    write_json(folder / COMMIT, {"layout": _LAYOUT, "files": files})


def read_index(folder: Path, name: str) -> PackedIndex:
    """Return the index in a folder; `DataError`, which calls the set `name`, if it is not whole."""
    if not (folder / COMMIT).is_file():
        raise unfinished(name)
    try:
        commit = json.loads((folder / COMMIT).read_bytes())
        if commit["layout"] != _LAYOUT:
            advice = "use a newer version of boxcrew, or pack the set again"
            raise DataError(
                f"{name}: its index has a layout that is not known: {commit['layout']}", advice=advice
            )
        for file, digest in commit["files"].items():
            if _digest(folder / Path(file).name) != digest:
                raise DataError(
                    f"{name}: its index is damaged: {file} is not the file of its COMMIT", advice=_AGAIN
                )
        shards = {
            str(shard): int(size) for shard, size in json.loads((folder / _SHARDS).read_bytes()).items()
        }
        source = read_source(folder)
    except DAMAGED as error:
        raise DataError(f"{name}: its index is damaged: {error}", advice=_AGAIN) from None
    content = hashlib.blake2b((folder / COMMIT).read_bytes(), digest_size=16).hexdigest()
    return PackedIndex(source=source, shards=shards, content=content)


def is_packed(path: Path) -> bool:
    """Return whether a folder holds a packed set, be it whole or not."""
    return any((path / name).is_file() for name in INDEX_MARKS)


def unfinished(name: str) -> DataError:
    """Return the error about a set that was not packed to its end."""
    return DataError(
        f"{name}: packing it has not finished: its index has no COMMIT",
        advice="give the same `boxcrew data pack` command again: it goes on with the shards that are there",
    )


def require_finished(path: Path) -> None:
    """Raise `DataError` if the shards in a folder are those of a set that was not packed to its end."""
    index = path / INDEX
    if (index / UNFINISHED).is_file() and not (index / COMMIT).is_file():
        raise unfinished(str(path))


def with_locations(source: Source, folder: Path, *, is_remote: bool) -> Source:
    """Return the set with its shards in a folder."""
    columns, base = source.records.columns, f"{folder}{os.sep}"
    names = tuple(
        ImageLocation(f"{base}{name.prefix}", f"{base}{name.archive}", is_remote=is_remote)
        for name in columns.names
    )
    columns = replace(columns, names=names)
    splits = {name: Records(columns, Records.of(records).rows) for name, records in source.splits.items()}
    return replace(source, root=folder, splits=splits)


def sample_rows(source: Source, most: int) -> list[int]:
    """Return the rows of the first and the last image of some shards, evenly spread over all of them."""
    places = source.records.columns.places
    firsts = np.flatnonzero(np.append(True, places[1:] != places[:-1]))
    lasts = np.append(firsts[1:], len(places)) - 1
    chosen = np.unique(np.linspace(0, len(firsts) - 1, min(len(firsts), most)).astype(np.int64))
    return sorted({*firsts[chosen].tolist(), *lasts[chosen].tolist()})


def _digest(file: Path) -> str:
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, lambda: hashlib.blake2b(digest_size=16)).hexdigest()
