"""Stops a process from writing to a directory that another process has taken over."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

_FENCES: list[tuple[Path, Callable[[], None]]] = []
"""Absolute directories of this process, and what raises an error if another process has taken one over."""


@contextmanager
def fenced(folder: Path, require_own: Callable[[], None]) -> Iterator[None]:
    """Let `require_own` be called before anything is written in a directory, or in one below it."""
    fence = folder.absolute(), require_own
    _FENCES.append(fence)
    try:
        yield
    finally:
        _FENCES.remove(fence)


def require_own(path: Path) -> None:
    """Raise an error if a file may not be written, because its directory has been taken over."""
    if _FENCES:
        path = path.absolute()
        for folder, require in tuple(_FENCES):
            if path.is_relative_to(folder):
                require()
