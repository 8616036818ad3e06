"""Columns as files, so that all processes of a machine map the same memory. A folder holds a `.npy` file for
each array, `set.json` with all else of a source, and last of all `COMMIT`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from boxcrew.core.files import flush, write_json
from boxcrew.data.checks.problem import Problem
from boxcrew.data.detection.records import Columns, ImageLocation, Records
from boxcrew.data.detection.source import SOURCES, Source

COMMIT = "COMMIT"
DAMAGED = (OSError, ValueError, KeyError, TypeError, AttributeError, EOFError, RecursionError)
"""What reading of a damaged or incomplete folder raises."""

_ARRAYS = tuple(each.name for each in fields(Columns) if each.name != "names")


def write_source(folder: Path, source: Source, **arrays: npt.NDArray[Any]) -> None:
    """Write an open source, and further arrays of this name, into a folder."""
    write_columns(folder, source, **arrays)
    (folder / COMMIT).touch()
    flush(folder)


def write_columns(folder: Path, source: Source, **arrays: npt.NDArray[Any]) -> None:
    """Write what `write_source` does, but the COMMIT."""
    records = source.records
    own = {name: getattr(records.columns, name) for name in _ARRAYS}
    for name, array in {**own, "rows": records.rows, **arrays}.items():
        np.save(folder / f"{name}.npy", array, allow_pickle=False)
        flush(folder / f"{name}.npy")
    content = {
        "format": source.format,
        "root": str(source.root),
        "classes": source.classes,
        "splits": {name: len(split) for name, split in source.splits.items()},
        "problems": [problem.to_json() for problem in source.problems],
        "places": records.columns.names,
    }
    write_json(folder / "set.json", content)


def read_array(folder: Path, name: str) -> npt.NDArray[Any]:
    """Return an array whose memory is that of its file."""
    array: npt.NDArray[Any] = np.load(folder / f"{name}.npy", mmap_mode="r", allow_pickle=False)
    return np.asarray(array)


def read_source(folder: Path) -> Source:
    """Return the source in a folder, or raise one of `DAMAGED`."""
    if not (folder / COMMIT).is_file():
        raise FileNotFoundError(folder / COMMIT)
    content: Mapping[str, Any] = json.loads((folder / "set.json").read_bytes())
    names = tuple(ImageLocation(*place) for place in content["places"])
    columns = Columns(names=names, **{name: read_array(folder, name) for name in _ARRAYS})
    rows = read_array(folder, "rows")
    _require_consistent(columns, rows)
    spans = zip(content["splits"], pairwise(accumulate(content["splits"].values(), initial=0)), strict=True)
    return SOURCES.get(content["format"])(
        root=Path(content["root"]),
        classes=tuple(content["classes"]),
        splits={name: Records(columns, rows[start:end]) for name, (start, end) in spans},
        problems=tuple(Problem(**problem) for problem in content["problems"]),
    )


def _require_consistent(columns: Columns, rows: npt.NDArray[Any]) -> None:
    """Raise `ValueError` if the arrays cannot belong together."""
    num, num_objects = len(columns), len(columns.labels)
    if {len(columns.spans), len(columns.checksums)} - {0, num}:
        raise ValueError("spans or checksums of another number of images")
    shapes = (columns.sizes.shape, columns.key_ends.shape, columns.box_ends.shape, columns.boxes.shape)
    if shapes != ((num, 2), (num + 1,), (num + 1,), (num_objects, 4)) or len(columns.flags) != num_objects:
        raise ValueError("arrays of different lengths")
    if columns.key_ends[-1] != len(columns.keys) or columns.box_ends[-1] != num_objects:
        raise ValueError("arrays that end elsewhere")
    if len(rows) and not 0 <= rows.min() <= rows.max() < num:
        raise ValueError("rows that are not there")
