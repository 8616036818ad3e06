"""IDX, the files of MNIST and Fashion-MNIST: pictures and labels as bytes behind a small header."""

from __future__ import annotations

import gzip
import math
import struct
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import IO, cast

import numpy as np

from boxcrew.core.errors import DataError
from boxcrew.data.examples import EXAMPLE_FORMATS, ExampleFormat, ExampleSet, Wanted
from boxcrew.data.image_cache import Pixels
from boxcrew.data.labelled import Labelled, held_out, made_split, settle
from boxcrew.data.layout import read_lines, require_folder
from boxcrew.data.pictures import Shape, fit, shape_for

VAL_SHARE = 0.1
"""Less than elsewhere: these sets are large."""
_PREFIXES = {"train": "train", "test": "t10k"}
_BYTES = 0x08  # the code of the type that pictures and labels have
_TYPES = {0x09: "int8", 0x0B: "int16", 0x0C: "int32", 0x0D: "float32", 0x0E: "float64"}


@EXAMPLE_FORMATS.register("idx")
class IdxFormat(ExampleFormat):
    """The standard test split stays as it is; the validation split is made from the training pictures.
    Classes are called as in `classes.txt`, one a line, else '0', '1', and so on.
    """

    name = "idx"

    @classmethod
    def detect(cls, path: Path) -> bool:
        return path.is_dir() and _find(path, "train", "images", 3) is not None

    @classmethod
    def looked_for(cls) -> str:
        return "train-images-idx3-ubyte with train-labels-idx1-ubyte, be they .gz or not"

    @classmethod
    def open(cls, path: Path, wanted: Wanted) -> ExampleSet:
        require_folder(path, "IDX")
        parts = {split: part for split in _PREFIXES if (part := _read_part(path, split))}
        if "train" not in parts:
            raise DataError(f"{path}: has no IDX files to train on", advice=f"looked for {cls.looked_for()}")
        names, train = _names(path, parts), parts["train"]
        chosen = held_out(train.keys, train.labels, seed=wanted.seed, share=VAL_SHARE)
        if chosen.any():
            parts |= {"train": train.select(~chosen), "val": train.select(chosen)}
        height, width = train.inputs.shape[1:]
        shape = shape_for(wanted, (height, width, 1))
        shaped = {split: _shaped(part, shape) for split, part in parts.items()}
        made = made_split(path, chosen, seed=wanted.seed)
        settled, splits = settle(path, names, shaped, made)
        return ExampleSet(
            root=path,
            format=cls.name,
            kind="pictures",
            classes=settled.classes,
            shape=shape,
            splits=splits,
            problems=(*made, *settled.problems),
        )


def _find(root: Path, prefix: str, what: str, num_axes: int) -> Path | None:
    names = (f"{prefix}-{what}{mark}idx{num_axes}-ubyte" for mark in "-.")  # some mirrors write a dot
    files = (root / f"{name}{suffix}" for name in names for suffix in ("", ".gz"))
    return next((file for file in files if file.is_file()), None)


def _read_part(root: Path, split: str) -> Labelled | None:
    """None where there are no pictures."""
    prefix = _PREFIXES[split]
    file = _find(root, prefix, "images", 3)
    if file is None:
        return None
    labels_file = _find(root, prefix, "labels", 1)
    if labels_file is None:
        missing = f"{prefix}-labels-idx1-ubyte"
        raise DataError(f"{root}: {file.name} has no {missing} or {missing}.gz", advice="put it beside it")
    pictures, labels = read_idx(file, num_axes=3), read_idx(labels_file, num_axes=1)
    if len(pictures) != len(labels):
        raise DataError(
            f"{labels_file}: has {len(labels)} labels, but {file.name} has {len(pictures)} pictures",
            advice="take both files from the same release",
        )
    if not pictures.size:
        raise DataError(f"{file}: has no pictures", advice="get the file again")
    keys = [f"{split}[{index}]" for index in range(len(labels))]
    return Labelled(inputs=pictures, labels=labels.astype(np.int64), keys=keys)


def read_idx(file: Path, *, num_axes: int) -> Pixels:
    """The array of bytes in an IDX file of that many axes, packed by gzip or not."""
    again = "get the file again"
    try:
        with _opened(file) as opened:
            shape = _read_shape(file, opened, num_axes)
            data = opened.read(math.prod(shape) + 1)
    except (OSError, EOFError, zlib.error, MemoryError, OverflowError) as error:
        raise DataError(f"{file}: cannot be read: {error}", advice=again) from error
    if len(data) != math.prod(shape):
        found = f"only {len(data)}" if len(data) < math.prod(shape) else "more"
        said = " x ".join(map(str, shape))
        raise DataError(f"{file}: its header says {said} bytes, but it has {found}", advice=again)
    return np.frombuffer(data, dtype=np.uint8).reshape(shape)


def _opened(file: Path) -> IO[bytes]:
    return cast("IO[bytes]", gzip.open(file)) if file.suffix == ".gz" else file.open("rb")


def _read_shape(file: Path, opened: IO[bytes], num_axes: int) -> tuple[int, ...]:
    start = opened.read(4)
    if len(start) < 4 or start[:2] != b"\0\0":
        begins = start.hex() or "nothing"
        raise DataError(f"{file}: is not IDX: it begins with {begins}", advice="get the file again")
    if start[2] != _BYTES:
        type_ = _TYPES.get(start[2], hex(start[2]))
        raise DataError(f"{file}: holds numbers of type {type_}, not bytes", advice="save them as uint8")
    if start[3] != num_axes:
        raise DataError(f"{file}: has {start[3]} axes, not {num_axes}", advice="are files mixed up?")
    sizes = opened.read(4 * num_axes)
    if len(sizes) < 4 * num_axes:
        raise DataError(f"{file}: ends within its header", advice="get the file again")
    return struct.unpack(f">{num_axes}I", sizes)


def _names(root: Path, parts: Mapping[str, Labelled]) -> list[str]:
    """Of the labels 0, 1, 2, …"""
    count = max(int(part.labels.max()) for part in parts.values()) + 1
    file = root / "classes.txt"
    if not file.is_file():
        return [str(label) for label in range(count)]
    names = read_lines(file)
    if len(names) < count:
        raise DataError(
            f"{file}: names {len(names)} classes, but there are labels up to {count - 1}",
            advice="give one name a line, the first for label 0",
        )
    return names


def _shaped(part: Labelled, shape: Shape) -> Labelled:
    """(N, *shape) from (N, height, width)."""
    pictures = part.inputs[..., None]
    if pictures.shape[1:] != shape:
        fitted = np.empty((len(pictures), *shape), dtype=np.uint8)
        for place, picture in enumerate(pictures):
            fitted[place] = fit(picture, shape)
        pictures = fitted
    return Labelled(inputs=pictures, labels=part.labels, keys=part.keys)
