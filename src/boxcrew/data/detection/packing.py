"""Packs a data set: its images, in order, into tar shards that WebDataset and others read, and an index.

A shard counts once the list of its images is stored too, so that packing goes on after the last of these; the
set counts once the index has its COMMIT.
"""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from boxcrew.core.errors import DataError, UsageError
from boxcrew.core.storage import address
from boxcrew.core.types import Ints
from boxcrew.data.checks.threads import ProgressCallback
from boxcrew.data.detection.column_files import COMMIT
from boxcrew.data.detection.pack_locations import PackLocation, pack_location, workspace_of
from boxcrew.data.detection.packed_index import INDEX, PARTS, UNFINISHED, write_index
from boxcrew.data.detection.records import ColumnsBuilder, Record, Records
from boxcrew.data.detection.source import SOURCES, Source
from boxcrew.data.images.packed import PackedFile
from boxcrew.data.images.reading import IMAGE_SUFFIXES, encode_image

_BLOCK = 512  # bytes; headers and contents of a tar archive begin at multiples of it
_END = 20 * _BLOCK  # at most so many end an archive


def pack(
    source: Source, out: address.Location, *, shard_bytes: int, progress: ProgressCallback | None = None
) -> int:
    """Write the set below `out`, or go on with what was begun there of the same set; return the number of its
    shards. `UsageError` if something else is there. What is read back has the same records in the same order.
    """
    packing = _Packing(source, pack_location(out), shard_bytes, progress)
    packing.begin(str(out))
    with workspace_of(packing.place) as workspace:
        parts = [part for split in source.splits for part in packing.pack_split(split, workspace)]
        packing.finish(parts, workspace)
    return len(parts)


@dataclass(frozen=True, kw_only=True, eq=False)
class _Part:
    """The images of one shard: start, size and CRC-32 of each (n, 3)."""

    shard: str
    records: Records
    files: Ints


@dataclass(eq=False)
class _Packing:
    """A set that is being packed."""

    source: Source
    place: PackLocation
    shard_bytes: int
    progress: ProgressCallback | None
    names: set[str] = field(default_factory=set)  # of samples, in lower case
    num_done: int = 0

    def begin(self, out: str) -> None:
        """Say that a set is being written, unless something else is there."""
        there, marker = self.place.sizes(), f"{INDEX}/{UNFINISHED}"
        own = self._marker()
        if f"{INDEX}/{COMMIT}" in there or (there and marker not in there):
            raise UsageError(
                f"out={out}: exists already; nothing is overwritten", advice="choose another place"
            )
        if there and self.place.find(marker) != own:
            message = f"out={out}: packing another set, or this one with another shard=, was begun there"
            raise UsageError(message, advice="choose another place, or remove what is there")
        self.place.write(marker, own)

    def _marker(self) -> bytes:
        digest = hashlib.blake2b(digest_size=16)
        for name, records in self.source.splits.items():
            digest.update(f"{name} {Records.of(records).digest}".encode())
        content = {"set": digest.hexdigest(), "classes": self.source.classes, "shard_bytes": self.shard_bytes}
        return json.dumps(content).encode()

    def pack_split(self, split: str, workspace: Path) -> Iterator[_Part]:
        """Write the shards of a split, but those that are there already, and yield what is in each."""
        records, start, number, there = self.source.split(split), 0, 0, self.place.sizes()
        while start < len(records):
            shard = f"{split}-{number:06d}.tar"
            files = self._written(shard, there)
            rest = records[start:]
            if files is None:
                files = self._write_shard(shard, rest, workspace)
            else:
                for record in rest[: len(files)]:
                    self._name(record)
            yield _Part(shard=shard, records=rest[: len(files)], files=files)
            start, number = start + len(files), number + 1
            self._tell(len(files) if f"{INDEX}/{PARTS}/{shard}.npy" in there else 0)

    def _written(self, shard: str, there: dict[str, int]) -> Ints | None:
        """Return the images of a shard that an earlier process has written; None if it has not."""
        part = f"{INDEX}/{PARTS}/{shard}.npy"
        data = self.place.find(part) if part in there and shard in there else None
        if data is None:
            return None
        files: Ints = np.load(io.BytesIO(data), allow_pickle=False)
        return files if files[-1, :2].sum() <= there[shard] else None

    def _write_shard(self, shard: str, records: Records, workspace: Path) -> Ints:
        """Write as many of the images into a shard as it has room for, at least one."""
        file, files = workspace / shard, list[tuple[int, int, int]]()
        with tarfile.open(file, "w") as tar:
            for record in records:
                data = self._image_of(record)
                note = json.dumps(self._annotation(record), ensure_ascii=False).encode()
                needed = 2 * _BLOCK + _padded(len(data)) + _padded(len(note))
                if files and tar.offset + needed + _END > self.shard_bytes:
                    break
                name = self._name(record)
                _add(tar, f"{name}.json", note)
                files.append((_add(tar, name + self._suffix(record), data), len(data), zlib.crc32(data)))
                self._tell(1)
        part = np.array(files, dtype=np.int64)
        self.place.move(file, shard)
        self.place.write(f"{INDEX}/{PARTS}/{shard}.npy", _npy(part))
        return part

    def _tell(self, num: int) -> None:
        self.num_done += num
        if self.progress and num:
            self.progress(self.num_done, len(self.source.records))

    def _image_of(self, record: Record) -> bytes:
        if record.path is None:
            return encode_image(self.source.read(record), suffix=".png")
        try:
            return record.path.read_bytes()
        except OSError as error:
            message = f"{record.path}: cannot be read: {error.strerror or error}"
            raise DataError(message, advice="what was packed stays; give the same command again") from None

    def _name(self, record: Record) -> str:
        """Return the name of a sample, unique in the set. Readers take it to end at its first dot."""
        suffix = _image_suffix(record.key)
        stem = record.key.removesuffix(suffix).replace(".", "_").strip("/") or "image"
        name, number = stem, 2
        while name.lower() in self.names:
            name, number = f"{stem}-{number}", number + 1
        self.names.add(name.lower())
        return name

    def _suffix(self, record: Record) -> str:
        return ".png" if record.path is None else record.path.suffix.lower() or ".jpg"

    def _annotation(self, record: Record) -> dict[str, Any]:
        target, classes = record.target, self.source.classes
        rows = zip(
            target.boxes.tolist(),
            target.labels.tolist(),
            target.crowd.tolist(),
            target.difficult.tolist(),
            strict=True,
        )
        annotations = [
            {
                "bbox": [x0, y0, x1 - x0, y1 - y0],
                "category_id": label,
                "category_name": classes[label],
                "iscrowd": int(crowd),
                **({"difficult": 1} if difficult else {}),
            }
            for (x0, y0, x1, y1), label, crowd, difficult in rows
        ]
        return {"width": record.width, "height": record.height, "annotations": annotations}

    def finish(self, parts: list[_Part], workspace: Path) -> None:
        """Write the classes and the index, its COMMIT last, and remove what only packing needed."""
        there = self.place.sizes()
        self.place.write("classes.txt", "".join(f"{name}\n" for name in self.source.classes).encode())
        index = workspace / INDEX
        index.mkdir()
        write_index(index, _indexed(self.source, parts), {part.shard: there[part.shard] for part in parts})
        for file in sorted(index.iterdir(), key=lambda file: file.name == COMMIT):
            self.place.move(file, f"{INDEX}/{file.name}")
        for name in [name for name in there if name.startswith(f"{INDEX}/{PARTS}/")]:
            self.place.delete(name)
        self.place.delete(f"{INDEX}/{UNFINISHED}")


def _indexed(source: Source, parts: list[_Part]) -> Source:
    """Return the set with its images in the shards."""
    builder = ColumnsBuilder()
    for part in parts:
        for start in range(0, len(part.records), 8192):
            some, files = part.records[start : start + 8192], part.files[start : start + 8192].tolist()
            keys = [*some.iter_keys()]
            paths = [
                PackedFile(Path(part.shard), key.rpartition("/")[2], first, size)
                for key, (first, size, _) in zip(keys, files, strict=True)
            ]
            builder.add(keys, paths, some.sizes, some.counts, some.objects())
    checksums = np.concatenate([part.files[:, 2] for part in parts]).astype(np.uint32)
    columns = replace(builder.finish(), checksums=checksums)
    ends = np.cumsum([0, *map(len, source.splits.values())]).tolist()
    spans = zip(source.splits, ends, ends[1:], strict=False)
    splits = {name: Records(columns, np.arange(start, end)) for name, start, end in spans}
    return SOURCES.get("packed")(root=Path(), classes=source.classes, splits=splits)


def _add(tar: tarfile.TarFile, name: str, data: bytes) -> int:
    """Add a file; return where its content begins."""
    info = tarfile.TarInfo(name)
    info.size = len(data)
    tar.addfile(info, io.BytesIO(data))
    return tar.offset - _padded(len(data))


def _padded(num_bytes: int) -> int:
    return -(-num_bytes // _BLOCK) * _BLOCK


def _image_suffix(key: str) -> str:
    _, dot, suffix = key.rpartition(".")
    return f"{dot}{suffix}" if f"{dot}{suffix}".lower() in IMAGE_SUFFIXES else ""


def _npy(array: Ints) -> bytes:
    file = io.BytesIO()
    np.save(file, array, allow_pickle=False)
    return file.getvalue()
