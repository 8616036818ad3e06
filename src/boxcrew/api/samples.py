"""Samples of a classifier (images, rows of a table, texts), from files or memory, encoded as in training."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from boxcrew.api.images import ImageLike, Warn, find_images, load_image
from boxcrew.core.errors import DataError, UsageError
from boxcrew.data.examples.alphabet import Unit, encode_text
from boxcrew.data.examples.columns import encode_rows, require_columns, value_problems
from boxcrew.data.examples.example_set import Array
from boxcrew.data.examples.formats.text import TEXT_SUFFIXES, split_texts, truncated_texts
from boxcrew.data.examples.plain_text import read_utf8
from boxcrew.data.examples.shapes import resize_to
from boxcrew.data.examples.table import read_table
from boxcrew.data.folders import files_below
from boxcrew.tasks.data import DataFacts

SampleLike = ImageLike | Mapping[str, Any]
"""An image, a row (values by column name) or a text, whichever the classifier was trained on."""

NamedSample = tuple[str | None, object]
"""The name of a sample, such as `FILE` or `FILE:LINE`, None for one from memory; and the sample."""


def encode_sample(sample: object, facts: DataFacts) -> Array:
    """Return the input of the network, without a batch dimension. Texts are truncated as in training."""
    if facts["kind"] == "pictures":
        height, width, channels = facts["shape"]
        return resize_to(load_image(sample)[1], (height, width, channels))
    if facts["kind"] == "numbers":
        if not isinstance(sample, Mapping):
            raise _not_a("a row: give a value for each column, such as {'height': 12.5}", sample)
        absent = [column["name"] for column in facts["meaning"]["columns"] if column["name"] not in sample]
        if absent:
            raise DataError(f"the row has no {', '.join(map(repr, absent))}, learnt from in training")
        row: Array = encode_rows(facts["meaning"], [sample])[0]
        return row
    if not isinstance(sample, str):
        raise _not_a("a text", sample)
    return encode_text(facts["meaning"], sample)


def samples_in(source: str | Path, facts: DataFacts, warn: Warn) -> Iterator[NamedSample]:
    """Yield the samples of files; those of rows and lines of text are named `FILE:LINE`.

    `source` is a file, folder or glob pattern of images, a CSV file, or a file or folder of texts.
    """
    if facts["kind"] == "pictures":
        yield from ((str(file), file) for file in find_images(source))
    elif facts["kind"] == "numbers":
        yield from _rows(Path(source), facts, warn)
    else:
        yield from _texts(Path(source), facts, warn)


def _rows(file: Path, facts: DataFacts, warn: Warn) -> Iterator[NamedSample]:
    table, problems = read_table(file)
    columns = facts["meaning"]["columns"]
    require_columns(table, columns)
    for problem in (*problems, *value_problems(table, columns)):
        warn(str(problem))
    for number, row in table.named_rows():
        yield f"{file}:{number}", row


def _texts(path: Path, facts: DataFacts, warn: Warn) -> Iterator[NamedSample]:
    """Yield the texts of a file or folder: lines or complete files, as in training."""
    unit: Unit = facts["meaning"].get("unit", "line")
    for file in files_below(path, TEXT_SUFFIXES) if path.is_dir() else [path]:
        try:
            content = read_utf8(file)
        except DataError as error:
            if file == path:
                raise
            warn(f"left out: {error.message}")
            continue
        texts = [
            (f"{file}:{number}" if unit == "line" else str(file), text)
            for number, text in split_texts(content, unit)
        ]
        for problem in truncated_texts(str(file), texts, facts["meaning"]["length"]):
            warn(str(problem))
        yield from texts


def _not_a(wanted: str, sample: object) -> UsageError:
    return UsageError(f"{type(sample).__name__} is not what this classifier takes, {wanted}")
