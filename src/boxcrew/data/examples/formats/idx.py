"""IDX, the files of MNIST and Fashion-MNIST: images and labels as bytes behind a small header."""

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
from boxcrew.data.checks.problem import Problem
from boxcrew.data.examples.crops import Shape, choose_shape, resize_to
from boxcrew.data.examples.example_set import (
    EXAMPLE_FORMATS,
    Array,
    ExampleFormat,
    ExampleOptions,
    ExampleSet,
    InMemory,
)
from boxcrew.data.examples.labeled import hold_out, resolve_splits, unusable_split
from boxcrew.data.folders import numbered_lines, require_folder
from boxcrew.data.images.cache import Pixels

VAL_SHARE = 0.1
"""A smaller share than in other formats, because these sets are large."""
_GET_AGAIN = "download the file again"
_TYPES = {0x09: "int8", 0x0B: "int16", 0x0C: "int32", 0x0D: "float32", 0x0E: "float64"}


@EXAMPLE_FORMATS.register("idx")
class IdxFormat(ExampleFormat):
    """IDX files of a training and a test split; validation images are held out of training. A test split that
    cannot be used is left out. `classes.txt` names the classes, one a line, else they are '0', '1', …
    """

    name = "idx"
    expects = "train-images-idx3-ubyte with train-labels-idx1-ubyte, with or without .gz"

    @classmethod
    def detect(cls, path: Path) -> bool:
        return path.is_dir() and _find(path, "train", "images", 3) is not None

    @classmethod
    def open(cls, path: Path, options: ExampleOptions) -> ExampleSet:
        require_folder(path, "IDX")
        splits, problems = _read_splits(path)
        if "train" not in splits:
            raise DataError(f"{path}: has no IDX files to train on", advice=f"looked for {cls.expects}")
        names, seed, eval_only = _names(path, splits), options.seed, options.eval_only
        splits = hold_out(path, splits, InMemory.all_keys, problems, seed=seed, share=VAL_SHARE)
        height, width = splits["train"].inputs.shape[1:]
        shape = choose_shape(options, (height, width, 1))
        splits = {
            split: InMemory(_resized(examples.inputs, shape), examples.labels, examples.keys)
            for split, examples in splits.items()
        }
        classes, splits, absent = resolve_splits(path, names, splits, problems, eval_only=eval_only)
        return ExampleSet(path, cls.name, "images", classes, shape, splits, problems=(*problems, *absent))


def _find(root: Path, prefix: str, content: str, num_axes: int) -> Path | None:
    names = (f"{prefix}-{content}{mark}idx{num_axes}-ubyte" for mark in "-.")  # some mirrors write a dot
    files = (root / f"{name}{suffix}" for name in names for suffix in ("", ".gz"))
    return next((file for file in files if file.is_file()), None)


def _read_splits(root: Path) -> tuple[dict[str, InMemory], list[Problem]]:
    """Read the splits that there are. Splits other than training that cannot be used become problems."""
    splits, problems = dict[str, InMemory](), list[Problem]()
    for split, prefix in (("train", "train"), ("test", "t10k")):
        file = _find(root, prefix, "images", 3)
        if file is None:
            continue
        labels = _find(root, prefix, "labels", 1) or root / f"{prefix}-labels-idx1-ubyte"
        try:
            splits[split] = _read_split(split, file, labels)
        except DataError as error:
            if split == "train":
                raise
            if error.message.startswith(f"{file}: "):
                problems.append(unusable_split(split, file, error.message, "unreadable-image"))
            else:
                problems.append(unusable_split(split, labels, error.message, "label-missing"))
    return splits, problems


def _read_split(split: str, file: Path, labels_file: Path) -> InMemory:
    """Read images and labels. The message of a `DataError` begins with the file that caused it."""
    if not labels_file.is_file():
        message = f"{labels_file}: is missing, and so is {labels_file.name}.gz, but {file.name} is there"
        raise DataError(message, advice="put it into the same folder")
    images, labels = read_idx(file, num_axes=3), read_idx(labels_file, num_axes=1)
    if len(images) != len(labels):
        message = f"{labels_file}: has {len(labels)} labels, but {file.name} has {len(images)} images"
        raise DataError(message, advice="take both files from the same release")
    if not images.size:
        raise DataError(f"{file}: has no images", advice=_GET_AGAIN)
    return InMemory(images, labels.astype(np.int64), split)


def read_idx(file: Path, *, num_axes: int) -> Pixels:
    """Return the bytes of an IDX file as an array with `num_axes` axes. A .gz file is unpacked."""
    try:
        with gzip.open(file) if file.suffix == ".gz" else file.open("rb") as opened:
            shape = _read_shape(file, cast("IO[bytes]", opened), num_axes)
            data = opened.read(math.prod(shape) + 1)
    except (OSError, EOFError, zlib.error, MemoryError, OverflowError) as error:
        raise DataError(f"{file}: cannot be read: {error}", advice=_GET_AGAIN) from error
    if len(data) != math.prod(shape):
        actual = f"only {len(data)}" if len(data) < math.prod(shape) else "more"
        promised = " x ".join(map(str, shape))
        raise DataError(f"{file}: its header says {promised} bytes, but it has {actual}", advice=_GET_AGAIN)
    return np.frombuffer(data, dtype=np.uint8).reshape(shape)


def _read_shape(file: Path, opened: IO[bytes], num_axes: int) -> tuple[int, ...]:
    start = opened.read(4)
    if len(start) < 4 or start[:2] != b"\0\0":
        begins = start.hex() or "nothing"
        raise DataError(f"{file}: is not IDX: it begins with {begins}", advice=_GET_AGAIN)
    if start[2] != 0x08:
        type_ = _TYPES.get(start[2], hex(start[2]))
        raise DataError(f"{file}: holds numbers of type {type_}, not bytes", advice="save them as uint8")
    if start[3] != num_axes:
        swapped = "are image and label files swapped?"
        raise DataError(f"{file}: has {start[3]} axes, not {num_axes}", advice=swapped)
    sizes = opened.read(4 * num_axes)
    if len(sizes) < 4 * num_axes:
        raise DataError(f"{file}: ends within its header", advice=_GET_AGAIN)
    return struct.unpack(f">{num_axes}I", sizes)


def _names(root: Path, splits: Mapping[str, InMemory]) -> list[str]:
    """Return the class names of the labels 0, 1, 2, … The file must name all labels of training."""
    largest = {split: int(examples.labels.max()) for split, examples in splits.items()}
    file, names = root / "classes.txt", dict[str, int]()  # by name, its line
    for number, name in numbered_lines(file).items() if file.is_file() else ():
        if name in names:
            message = f"{file}: names {name!r} twice, in lines {names[name]} and {number}"
            raise DataError(message, advice="give each class its own name")
        names[name] = number
    if file.is_file() and len(names) <= largest["train"]:
        message = f"{file}: names {len(names)} classes, but there are labels up to {largest['train']}"
        raise DataError(message, advice="give one name a line, the first for label 0")
    return [*names, *map(str, range(len(names), max(largest.values()) + 1))]


def _resized(images: Array, shape: Shape) -> Array:
    """Resize images (N, height, width) to (N, *shape)."""
    with_channel = images[..., None]
    if with_channel.shape[1:] == shape:
        return with_channel
    return np.stack([resize_to(image, shape) for image in with_channel])
