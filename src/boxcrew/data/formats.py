"""How the format of a data set is found out."""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path
from typing import TypeVar

from boxcrew.core.errors import DataError
from boxcrew.core.registry import Registry


class Format(ABC):
    """A way in which data sets are stored."""

    @classmethod
    @abstractmethod
    def detect(cls, path: Path) -> bool:
        """Whether `path` (a file or directory that exists) looks like this format. Cheap."""

    @classmethod
    @abstractmethod
    def looked_for(cls) -> str:
        """One line for the message that no format fits: what `detect` looks for."""


AnyFormat = TypeVar("AnyFormat", bound=Format)


def format_of(
    path: str | Path, formats: Registry[type[AnyFormat]], *, named: str = "auto"
) -> type[AnyFormat]:
    """The one of that name; else the one that `path` is the name of, if it is embedded; else by looking."""
    if named != "auto":
        return formats.get(named)
    path = Path(path)
    if str(path) in formats.names() and not path.exists():
        return formats.get(str(path))
    if not path.exists():
        raise DataError(f"{path}: no such file or directory", advice="give data= the path of a data set")
    fitting = [name for name in formats.names() if formats.get(name).detect(path)]
    if len(fitting) == 1:
        return formats.get(fitting[0])
    if fitting:
        names = " and ".join(fitting)
        raise DataError(f"{path}: looks like {names}", advice=f"say which: data.format={fitting[0]}")
    looked = "; ".join(f"{name}: {formats.get(name).looked_for()}" for name in formats.names())
    raise DataError(f"{path}: not a data set in any known format", advice=f"looked for {looked}")
