"""Annotated images in columns: `Columns` holds all of a set as arrays, `Records` makes a `Record` of a row
when one is asked for. A million of them are then a few arrays, which processes can share, and no objects.
"""

from __future__ import annotations

import hashlib
import itertools
import os
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, overload

import numpy as np
import numpy.typing as npt

from boxcrew.core.input_size import Extent
from boxcrew.core.types import Bools, Floats, Ints, Target
from boxcrew.data.checks.stamps import stamp_array
from boxcrew.data.images.packed import ImagePath, PackedFile
from boxcrew.data.images.remote import RemoteFile

Ints32 = npt.NDArray[np.int32]
Bytes = npt.NDArray[np.uint8]
Checksums = npt.NDArray[np.uint32]

DIFFICULT, CROWD = 1, 2
"""The bits of an object's flags."""

CHUNK = 8192  # images that are looked at together
_NO_PLACE = -1


@dataclass(frozen=True, kw_only=True, eq=False)
class Record:
    """One annotated image of a data set, its pixels not read yet."""

    key: str  # unique in the set; for files: the path relative to the set's root, with forward slashes
    path: ImagePath | None  # the image file; None where the image is drawn, not read
    width: int  # of the upright image
    height: int
    target: Target

    @property
    def extent(self) -> Extent:
        return self.width, self.height


class ImageLocation(NamedTuple):
    """The place that images are in: a folder, of the file system or in an archive, or a single image."""

    prefix: str  # the path up to the name of an image, with a separator at its end; or the whole path
    archive: str = ""  # the path of the archive; empty for files of their own
    is_whole: bool = False  # whether the prefix is the path of one image, whose key does not end in its name
    is_remote: bool = False  # whether the archive is a shard of a bucket, read through a cache

    @classmethod
    def of(cls, path: ImagePath, name: str) -> ImageLocation:
        """Return the place of an image whose key ends in `name`."""
        text, archive = str(path), str(path.archive) if isinstance(path, PackedFile) else ""
        is_whole = not text.endswith(name) or text[: -len(name)][-1:] not in {"", os.sep}
        return cls(text if is_whole else text[: -len(name)], archive, is_whole)

    def file(self, name: str) -> str:
        """Return the path of the image called `name`, or of the archive that it is in."""
        return self.archive or (self.prefix if self.is_whole else self.prefix + name)

    def path(self, name: str, span: Ints, checksum: int | None) -> ImagePath:
        text = self.prefix if self.is_whole else self.prefix + name
        if not self.archive:
            return Path(text)
        inside = text[len(self.archive) + len(os.sep) :]
        kind = RemoteFile if self.is_remote else PackedFile
        return kind(Path(self.archive), inside, int(span[0]), int(span[1]), checksum)


@dataclass(frozen=True, kw_only=True, eq=False)
class Columns:
    """N images with M boxes in all. The arrays may be mapped from files, and are not to be written to."""

    keys: Bytes  # of all images, one after the other, as UTF-8
    key_ends: Ints  # (N + 1,) where each begins and, the next one's beginning, ends
    sizes: Ints32  # (N, 2) width and height of the upright image
    places: Ints32  # (N,) the number of the place; -1 for an image that is drawn
    spans: Ints  # (N, 2) start and size of each image in its archive; (0, 2) without archives
    checksums: Checksums  # (N,) CRC-32 of each image file; (0,) where they are not known
    box_ends: Ints  # (N + 1,)
    boxes: Floats  # (M, 4)
    labels: Ints32  # (M,)
    flags: Bytes  # (M,)
    names: tuple[ImageLocation, ...]  # of the places

    def __len__(self) -> int:
        return len(self.places)

    def key(self, row: int) -> str:
        start, end = self.key_ends[row : row + 2].tolist()
        return self.keys[start:end].tobytes().decode(errors="surrogateescape")

    def path(self, row: int, key: str) -> ImagePath | None:
        number = int(self.places[row])
        if number == _NO_PLACE:
            return None
        span = self.spans[row] if len(self.spans) else np.zeros(2, dtype=np.int64)
        checksum = int(self.checksums[row]) if len(self.checksums) else None
        return self.names[number].path(key.rpartition("/")[2], span, checksum)

    def target(self, numbers: slice | Ints) -> Target:
        """Return the objects of these numbers, in memory of their own."""
        flags = self.flags[numbers]
        return Target(
            boxes=np.array(self.boxes[numbers]),
            labels=self.labels[numbers].astype(np.int64),
            difficult=(flags & DIFFICULT) != 0,
            crowd=(flags & CROWD) != 0,
        )

    def record(self, row: int) -> Record:
        key, (width, height) = self.key(row), self.sizes[row].tolist()
        start, end = self.box_ends[row : row + 2].tolist()
        target = self.target(slice(start, end))
        return Record(key=key, path=self.path(row, key), width=width, height=height, target=target)

    def with_labels(self, numbers: Ints) -> Columns:
        """Return the same with label i as `numbers[i]`; objects whose number is negative are left out."""
        labels = numbers[self.labels].astype(np.int32)
        keep = labels >= 0
        if keep.all():
            return replace(self, labels=labels)
        box_ends = np.append(0, np.cumsum(keep))[self.box_ends]
        boxes, flags = self.boxes[keep], self.flags[keep]
        return replace(self, box_ends=box_ends, boxes=boxes, labels=labels[keep], flags=flags)


@dataclass(eq=False)
class ColumnsBuilder:
    """Makes columns of images that come one after the other or many at once."""

    _keys: list[bytes] = field(default_factory=list)
    _key_sizes: list[Ints] = field(default_factory=list)
    _sizes: list[Ints32] = field(default_factory=list)
    _places: list[Ints32] = field(default_factory=list)
    _spans: list[Ints] = field(default_factory=list)
    _counts: list[Ints] = field(default_factory=list)
    _boxes: list[Floats] = field(default_factory=list)
    _labels: list[Ints32] = field(default_factory=list)
    _flags: list[Bytes] = field(default_factory=list)
    _numbers: dict[ImageLocation, int] = field(default_factory=dict)

    def add(
        self,
        keys: Sequence[str],
        paths: Sequence[ImagePath | None],
        sizes: npt.ArrayLike,
        counts: npt.ArrayLike,
        objects: Target,
    ) -> None:
        """Add n images of `sizes` (n, 2), which have `counts` (n,) of the objects, in their order."""
        encoded = [*map(_encoded, keys)]
        self._keys.append(b"".join(encoded))
        self._key_sizes.append(np.array([len(key) for key in encoded], dtype=np.int64))
        self._sizes.append(np.asarray(sizes, dtype=np.int32).reshape(-1, 2))
        self._places.append(np.array([*map(self._place, keys, paths)], dtype=np.int32))
        if any(isinstance(path, PackedFile) for path in paths):
            spans = [(path.start, path.size) if isinstance(path, PackedFile) else (0, 0) for path in paths]
            self._spans.append(np.array(spans, dtype=np.int64))
        else:
            self._spans.append(np.zeros((len(keys), 2), dtype=np.int64))
        self._counts.append(np.asarray(counts, dtype=np.int64))
        self._boxes.append(objects.boxes)
        self._labels.append(objects.labels.astype(np.int32))
        self._flags.append((objects.difficult * DIFFICULT + objects.crowd * CROWD).astype(np.uint8))

    def finish(self) -> Columns:
        has_archives = any(place.archive for place in self._numbers)
        spans = _joined(self._spans, np.int64, 2)
        return Columns(
            keys=np.frombuffer(b"".join(self._keys), dtype=np.uint8),
            key_ends=_ends(_joined(self._key_sizes, np.int64)),
            sizes=_joined(self._sizes, np.int32, 2),
            places=_joined(self._places, np.int32),
            spans=spans if has_archives else spans[:0],
            checksums=np.zeros(0, dtype=np.uint32),
            box_ends=_ends(_joined(self._counts, np.int64)),
            boxes=_joined(self._boxes, np.float32, 4),
            labels=_joined(self._labels, np.int32),
            flags=_joined(self._flags, np.uint8),
            names=tuple(self._numbers),
        )

    def _place(self, key: str, path: ImagePath | None) -> int:
        """Return the number of the place of an image."""
        if path is None:
            return _NO_PLACE
        place = ImageLocation.of(path, key.rpartition("/")[2])
        return self._numbers.setdefault(place, len(self._numbers))


def _joined(parts: list[npt.NDArray[Any]], dtype: npt.DTypeLike, *width: int) -> npt.NDArray[Any]:
    """Return the rows of all parts, which are given up."""
    joined = np.concatenate([np.zeros((0, *width), dtype=dtype), *parts])
    parts.clear()
    return joined


def _ends(counts: Ints) -> Ints:
    return np.append(0, np.cumsum(counts))


class Records(Sequence[Record]):
    """Some rows of columns in some order. Each record is made anew when it is asked for."""

    def __init__(self, columns: Columns, rows: Ints) -> None:
        self.columns, self.rows = columns, rows

    @classmethod
    def of(cls, records: Iterable[Record]) -> Records:
        """Return records in columns, as they are if they are already."""
        if isinstance(records, Records):
            return records
        builder, chunks = ColumnsBuilder(), iter(records)
        while chunk := list(itertools.islice(chunks, CHUNK)):
            builder.add(
                [record.key for record in chunk],
                [record.path for record in chunk],
                [record.extent for record in chunk],
                [len(record.target) for record in chunk],
                Target.joined(record.target for record in chunk),
            )
        columns = builder.finish()
        return cls(columns, np.arange(len(columns)))

    @classmethod
    def joined(cls, parts: Iterable[Sequence[Record]]) -> Records:
        """Return the records of all parts, one after the other."""
        known = list(parts)
        several = [part for part in known if isinstance(part, Records)]
        if not several or len(several) < len(known) or len({id(part.columns) for part in several}) > 1:
            return cls.of(itertools.chain.from_iterable(known))
        return cls(several[0].columns, np.concatenate([part.rows for part in several]))

    def __len__(self) -> int:
        return len(self.rows)

    @overload
    def __getitem__(self, index: int) -> Record: ...
    @overload
    def __getitem__(self, index: slice) -> Records: ...
    def __getitem__(self, index: int | slice) -> Record | Records:
        if isinstance(index, slice):
            return Records(self.columns, self.rows[index])
        return self.columns.record(int(self.rows[index]))

    def __iter__(self) -> Iterator[Record]:
        for part in self.chunks():
            yield from map(self.columns.record, part.rows.tolist())

    def chunks(self) -> Iterator[Records]:
        """Yield the records in parts, so that not all of their objects are in memory at once."""
        for start in range(0, len(self), CHUNK):
            yield self[start : start + CHUNK]

    def select(self, keep: Bools) -> Records:
        """Return only the records that the mask (n,) selects."""
        return Records(self.columns, self.rows[keep])

    def without(self, keys: Collection[str]) -> Records:
        """Return the records of other keys."""
        return self.select(np.array([key not in keys for key in self.iter_keys()], dtype=np.bool_))

    def iter_keys(self) -> Iterator[str]:
        """Yield the key of each record."""
        for key in self.iter_raw_keys():
            yield str(key, encoding="utf-8", errors="surrogateescape")

    def iter_raw_keys(self) -> Iterator[memoryview]:
        """Yield the key of each record as it is stored."""
        data, ends = self.columns.keys.data, self.columns.key_ends
        for part in self.chunks():
            spans = zip(ends[part.rows].tolist(), ends[part.rows + 1].tolist(), strict=True)
            for start, end in spans:
                yield data[start:end]

    def iter_files(self) -> Iterator[str]:
        """Yield the path of the file that each image is in; only of records that are not drawn."""
        names = self.columns.names
        for key, number in zip(self.iter_keys(), self.columns.places[self.rows].tolist(), strict=True):
            yield names[number].file(key.rpartition("/")[2])

    def stamps(self) -> Ints:
        """Return the stamps of the files of the images, (n, 3), each with the size of the image itself."""
        stamps = stamp_array(self.iter_files())
        if len(self.columns.spans):
            is_packed = np.array([bool(place.archive) for place in self.columns.names])
            packed = is_packed[self.columns.places[self.rows]] & (stamps[:, 0] >= 0)
            stamps[packed, 0] = self.columns.spans[self.rows[packed], 1]
        return stamps

    @property
    def sizes(self) -> Ints:
        """Width and height of each image, (n, 2)."""
        return self.columns.sizes[self.rows].astype(np.int64)

    @property
    def counts(self) -> Ints:
        """The number of objects of each image, (n,)."""
        ends = self.columns.box_ends
        return ends[self.rows + 1] - ends[self.rows]

    def extents(self) -> list[Extent]:
        """Return the distinct (width, height) of the images, in the order in which they first occur."""
        unique, first = np.unique(self.sizes, axis=0, return_index=True)
        return [(width, height) for width, height in unique[np.argsort(first)].tolist()]

    def objects(self) -> Target:
        """Return the objects of all images, one after the other."""
        starts, counts = self.columns.box_ends[self.rows], self.counts
        if not len(self) or (starts[1:] == starts[:-1] + counts[:-1]).all():
            start = int(starts[0]) if len(self) else 0
            return self.columns.target(slice(start, start + int(counts.sum())))
        before = np.cumsum(counts) - counts
        return self.columns.target(np.repeat(starts - before, counts) + np.arange(counts.sum()))

    def label_counts(self, num_classes: int) -> Ints:
        """Return the number of objects of each class, (num_classes,)."""
        counts = np.zeros(num_classes, dtype=np.int64)
        for part in self.chunks():
            counts += np.bincount(part.objects().labels, minlength=num_classes)
        return counts

    @cached_property
    def digest(self) -> str:
        """A hash of keys, sizes, boxes and labels."""
        digest = hashlib.blake2b(digest_size=16)
        for part in self.chunks():
            objects, ends = part.objects(), _ends(part.counts).tolist()
            boxes, labels = objects.boxes.tobytes(), objects.labels.tobytes()
            spans = zip(part.iter_keys(), part.sizes.tolist(), itertools.pairwise(ends), strict=True)
            pieces = list[bytes]()
            for key, (width, height), (start, end) in spans:
                pieces.append(f"{key} {width} {height}".encode(errors="surrogateescape"))
                pieces += boxes[16 * start : 16 * end], labels[8 * start : 8 * end]
            digest.update(b"".join(pieces))
        return digest.hexdigest()


class KeyRows:
    """The numbers of records by their keys, as arrays of hashes: a dictionary of a million keys would be
    hundreds of megabytes in every process.
    """

    def __init__(self, records: Records) -> None:
        hashes = key_hashes(records.iter_keys())
        self._order = np.argsort(hashes, kind="stable")
        self._hashes = hashes[self._order]
        self._records = records

    def find(self, key: str) -> int | None:
        """Return the number of the first record with this key; None if there is none."""
        (wanted,) = key_hashes([key])
        start = int(np.searchsorted(self._hashes, wanted))
        for place in range(start, len(self._hashes)):
            if self._hashes[place] != wanted:
                break
            number = int(self._order[place])
            if self._records.columns.key(int(self._records.rows[number])) == key:
                return number
        return None


def key_hashes(keys: Iterable[str]) -> npt.NDArray[np.uint64]:
    """Return 64 bits for each key, which hardly any two keys share."""
    digests = (hashlib.blake2b(_encoded(key), digest_size=8).digest() for key in keys)
    return np.frombuffer(b"".join(digests), dtype=np.uint64)


def _encoded(key: str) -> bytes:
    """Encode a key, which may be the name of a file that is not UTF-8."""
    return key.encode(errors="surrogateescape")
