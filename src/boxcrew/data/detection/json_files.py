"""Reads JSON files of annotations, whose content may be of any type where it is not what it should be."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from boxcrew.core.errors import DataError


def read_json(file: Path) -> Any:
    """Return the content of a file, or raise `DataError`."""
    try:
        return json.loads(file.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(f"{file}: cannot be parsed as JSON: {error}", advice="export it again") from error


def numbers_of(values: object, count: int) -> tuple[float, ...] | None:
    """Return `count` numbers, which some tools write as text; None if the value is anything else."""
    if not isinstance(values, list) or len(values) != count or any(isinstance(v, bool) for v in values):
        return None
    try:
        return tuple(map(float, values))
    except (TypeError, ValueError, OverflowError):
        return None


def items_of(value: object, key: str) -> list[Any] | None:
    """Return the list `key` of a dictionary, which is empty if there is none; None if it is anything else."""
    if not isinstance(value, dict):
        return None
    items = value.get(key)
    return [] if items is None else items if isinstance(items, list) else None
