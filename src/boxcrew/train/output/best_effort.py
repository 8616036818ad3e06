"""Files that a run can do without for a while: a full disk must not end it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager


class BestEffort:
    """Writes files without failing: it warns once for each that cannot be written, until it can be again."""

    def __init__(self, warn: Callable[[str], None]) -> None:
        self.warn = warn
        self._errors: dict[str, str] = {}  # file name -> why the last attempt failed

    @contextmanager
    def writing(self, name: str) -> Iterator[None]:
        """Suppress an `OSError` raised while the file `name` is written, and record the outcome."""
        try:
            yield
        except OSError as error:
            is_known = name in self._errors
            self._errors[name] = error.strerror or str(error)
            if not is_known:
                self.warn(f"{name} could not be written: {self._errors[name]}; the run continues")
        else:
            self._errors.pop(name, None)

    def is_written(self, name: str) -> bool:
        """Return whether the last attempt to write a file succeeded."""
        return name not in self._errors

    def problems(self) -> list[str]:
        """Return a line for each file whose last attempt failed, with the reason."""
        return [f"{name}: {reason}" for name, reason in self._errors.items()]
