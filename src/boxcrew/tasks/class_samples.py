"""Samples of a trained classifier (images, rows of a table, texts), encoded as in training."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import numpy as np

from boxcrew.core.errors import DataError, UsageError
from boxcrew.data.examples.alphabet import Unit, encode_text
from boxcrew.data.examples.columns import encode_rows, require_columns, value_problems
from boxcrew.data.examples.crops import resize_to
from boxcrew.data.examples.example_set import Array
from boxcrew.data.examples.formats.text import TEXT_SUFFIXES, split_texts, truncated_texts
from boxcrew.data.examples.table import read_table
from boxcrew.data.folders import files_below, read_utf8
from boxcrew.tasks.facts import ExampleFacts

NamedSample = tuple[str | None, object]
"""The name of a sample, `FILE` or `FILE:LINE`, None for one from memory; and the sample itself."""


def encode_sample(sample: object, facts: ExampleFacts) -> Array:
    """Return the input of the network: for RGB pixels (H, W, 3), a row (values by column name) or a text,
    whichever it was trained on.
    """
    if isinstance(sample, np.ndarray) and facts.kind == "images":
        return resize_to(sample, facts.image_shape)
    if isinstance(sample, Mapping) and facts.kind == "numbers":
        absent = [column["name"] for column in facts.encoding["columns"] if column["name"] not in sample]
        if absent:
            raise DataError(f"the row has no {', '.join(map(repr, absent))}, which training used")
        row: Array = encode_rows(facts.encoding, [sample])[0]
        return row
    if isinstance(sample, str) and facts.kind == "tokens":
        return encode_text(facts.encoding, sample)
    wanted = {"images": "images", "numbers": "rows (values by column name)", "tokens": "texts"}
    raise UsageError(f"this classifier takes {wanted[facts.kind]}, not {type(sample).__name__}")


def read_samples(path: Path, facts: ExampleFacts, warn: Callable[[str], None]) -> Iterator[NamedSample]:
    """Yield the rows of a CSV file, or the texts of a file or folder: lines or whole files, as in training.

    `warn` is called for what is doubtful, and for files that are left out.
    """
    if facts.kind == "numbers":
        table, problems = read_table(path)
        columns = facts.encoding["columns"]
        require_columns(table, columns)
        for problem in (*problems, *value_problems(table, columns)):
            warn(str(problem))
        yield from ((f"{path}:{number}", row) for number, row in table.named_rows())
        return
    unit: Unit = facts.encoding.get("unit", "line")
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
        for problem in truncated_texts(str(file), texts, facts.encoding["length"]):
            warn(str(problem))
        yield from texts
