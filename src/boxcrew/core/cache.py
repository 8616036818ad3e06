"""Results that are kept between runs as JSON files in the user's home, and can be computed again."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from boxcrew.core.config import Config
from boxcrew.core.errors import UsageError
from boxcrew.core.files import write_text

C = TypeVar("C", bound=Config)


def cache_folder(name: str) -> Path | None:
    """Return a folder in the user's home; None if there is no home."""
    try:  # whatever XDG_CACHE_HOME says: only commands read the environment
        return Path.home() / ".cache" / "boxcrew" / name
    except RuntimeError:
        return None


def read_cached(kind: type[C], file: Path | None) -> C | None:
    """Return what is stored in a file; None if it is missing or damaged."""
    with suppress(UsageError):
        return None if file is None else kind.read(file, setting="cache")
    return None


def write_cached(file: Path | None, value: object) -> None:
    """Store a JSON value; where that fails, it is computed again the next time."""
    with suppress(OSError):
        if file is not None:
            file.parent.mkdir(parents=True, exist_ok=True)
            write_text(file, json.dumps(value))
