"""Detection of the format of a data set."""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path
from typing import ClassVar, TypeVar

from boxcrew.core.errors import DataError
from boxcrew.core.registry import Registry


class Format(ABC):
    """A way to store data sets on disk. Base of all readers."""

    expects: ClassVar[str]  # what `detect` looks for, in one line for the error that no format matches

    @classmethod
    @abstractmethod
    def detect(cls, path: Path) -> bool:
        """Return whether `path`, an existing file or directory, looks like this format. Must be cheap."""


class EmbeddedFormat(Format):
    """A data set that is part of the program, opened by its name and never by a path."""

    expects = "its name (an embedded set)"

    @classmethod
    def detect(cls, path: Path) -> bool:  # noqa: ARG003
        return False


AnyFormat = TypeVar("AnyFormat", bound=Format)


def format_of(
    path: str | Path, formats: Registry[type[AnyFormat]], *, named: str = "auto"
) -> type[AnyFormat]:
    """Return the format called `named`; if that is auto, detect it, or return the embedded set called `path`
    if there is no such file or directory.
    """
    if named != "auto":
        return formats.get(named)
    path = Path(path)
    if str(path) in formats.names() and not path.exists():
        return formats.get(str(path))
    if not path.exists():
        raise DataError(f"{path}: no such file or directory", advice="give data= the path of a data set")
    matches = [name for name in formats.names() if formats.get(name).detect(path)]
    if len(matches) == 1:
        return formats.get(matches[0])
    if matches:
        names = " and ".join(matches)
        raise DataError(f"{path}: looks like {names}", advice=f"choose one: data.format={matches[0]}")
    looked = "; ".join(f"{name}: {formats.get(name).expects}" for name in formats.names())
    raise DataError(f"{path}: not a data set in any known format", advice=f"looked for {looked}")
