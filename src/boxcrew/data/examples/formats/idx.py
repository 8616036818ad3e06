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
from boxcrew.data.checks.problem import Problem
from boxcrew.data.examples.example_set import EXAMPLE_FORMATS, ExampleFormat, ExampleOptions, ExampleSet
from boxcrew.data.examples.labelled import (
    LabeledArrays,
    hold_out_mask,
    made_split_problem,
    resolve_splits,
    unusable_split,
)
from boxcrew.data.examples.shapes import Shape, choose_shape, resize_to
from boxcrew.data.folders import numbered_lines, require_folder
from boxcrew.data.images.cache import Pixels

VAL_SHARE = 0.1
"""Less than elsewhere: these sets are large."""
_PREFIXES = {"train": "train", "test": "t10k"}
_BYTES = 0x08  # the code of the type that pictures and labels have
_TYPES = {0x09: "int8", 0x0B: "int16", 0x0C: "int32", 0x0D: "float32", 0x0E: "float64"}


@EXAMPLE_FORMATS.register("idx")
class IdxFormat(ExampleFormat):
    """The standard test split stays as it is, or is left out where it cannot be used; the validation split is
    made from the training pictures. Classes are called as in `classes.txt`, one a line, else '0', '1', and so
    on.
    """

    name = "idx"

    @classmethod
    def detect(cls, path: Path) -> bool:
        return path.is_dir() and _find(path, "train", "images", 3) is not None

    @classmethod
    def looked_for(cls) -> str:
        return "train-images-idx3-ubyte with train-labels-idx1-ubyte, be they .gz or not"

    @classmethod
    def open(cls, path: Path, options: ExampleOptions) -> ExampleSet:
        require_folder(path, "IDX")
        parts, unread = _read_parts(path)
        if "train" not in parts:
            raise DataError(f"{path}: has no IDX files to train on", advice=f"looked for {cls.looked_for()}")
        names, train = _names(path, parts), parts["train"]
        chosen = hold_out_mask(train.keys, train.labels, seed=options.seed, share=VAL_SHARE)
        if chosen.any():
            parts |= {"train": train.select(~chosen), "val": train.select(chosen)}
        height, width = train.inputs.shape[1:]
        shape = choose_shape(options, (height, width, 1))
        shaped = {split: _shaped(part, shape) for split, part in parts.items()}
        problems = (*unread, *made_split_problem(path, chosen, seed=options.seed))
        settled, splits = resolve_splits(path, names, shaped, problems, eval_only=options.eval_only)
        return ExampleSet(
            root=path,
            format=cls.name,
            kind="pictures",
            classes=settled.classes,
            shape=shape,
            splits=splits,
            problems=(*problems, *settled.problems),
        )


def _find(root: Path, prefix: str, what: str, num_axes: int) -> Path | None:
    names = (f"{prefix}-{what}{mark}idx{num_axes}-ubyte" for mark in "-.")  # some mirrors write a dot
    files = (root / f"{name}{suffix}" for name in names for suffix in ("", ".gz"))
    return next((file for file in files if file.is_file()), None)


def _read_parts(root: Path) -> tuple[dict[str, LabeledArrays], list[Problem]]:
    """By split, without those that cannot be used, unless it is that to train on."""
    parts: dict[str, LabeledArrays] = {}
    problems: list[Problem] = []
    for split, prefix in _PREFIXES.items():
        file = _find(root, prefix, "images", 3)
        if file is None:
            continue
        labels_file = _find(root, prefix, "labels", 1) or root / f"{prefix}-labels-idx1-ubyte"
        try:
            parts[split] = _read_part(split, file, labels_file)
        except DataError as error:
            if split == "train":
                raise
            is_pictures = error.message.startswith(f"{file}: ")
            problems.append(
                unusable_split(split, file, error.message, "unreadable-image")
                if is_pictures
                else unusable_split(split, labels_file, error.message, "label-missing")
            )
    return parts, problems


def _read_part(split: str, file: Path, labels_file: Path) -> LabeledArrays:
    """`DataError` begins with the file that is to blame."""
    if not labels_file.is_file():
        what = f"{labels_file}: is missing, and so is {labels_file.name}.gz, but {file.name} is there"
        raise DataError(what, advice="put it beside it")
    pictures, labels = read_idx(file, num_axes=3), read_idx(labels_file, num_axes=1)
    if len(pictures) != len(labels):
        raise DataError(
            f"{labels_file}: has {len(labels)} labels, but {file.name} has {len(pictures)} pictures",
            advice="take both files from the same release",
        )
    if not pictures.size:
        raise DataError(f"{file}: has no pictures", advice="get the file again")
    keys = [f"{split}[{index}]" for index in range(len(labels))]
    return LabeledArrays(inputs=pictures, labels=labels.astype(np.int64), keys=keys)


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


def _names(root: Path, parts: Mapping[str, LabeledArrays]) -> list[str]:
    """Of the labels 0, 1, 2, …; those that only other splits than training have need none in the file."""
    largest = {split: int(part.labels.max()) for split, part in parts.items()}
    file = root / "classes.txt"
    names = _read_names(file) if file.is_file() else []
    if file.is_file() and len(names) <= largest["train"]:
        raise DataError(
            f"{file}: names {len(names)} classes, but there are labels up to {largest['train']}",
            advice="give one name a line, the first for label 0",
        )
    return [*names, *map(str, range(len(names), max(largest.values()) + 1))]


def _read_names(file: Path) -> list[str]:
    first: dict[str, int] = {}
    for number, name in numbered_lines(file).items():
        if name in first:
            raise DataError(
                f"{file}: names {name!r} twice, in lines {first[name]} and {number}",
                advice="give each class a name of its own",
            )
        first[name] = number
    return list(first)


def _shaped(part: LabeledArrays, shape: Shape) -> LabeledArrays:
    """(N, *shape) from (N, height, width)."""
    pictures = part.inputs[..., None]
    if pictures.shape[1:] != shape:
        fitted = np.empty((len(pictures), *shape), dtype=np.uint8)
        for place, picture in enumerate(pictures):
            fitted[place] = resize_to(picture, shape)
        pictures = fitted
    return LabeledArrays(inputs=pictures, labels=part.labels, keys=part.keys)
