"""The errors a user can meet, each with the exit code of the command that met it.

BoxcrewError (1)          something failed while running
├── UsageError (2)        a setting, recipe, class or argument that does not exist or cannot be
├── DataError (3)         a data set, image or annotation that cannot be used
├── ModelError (4)        a network, checkpoint or weight file that cannot be used
└── ExportError (5)       a model that cannot be exported
"""

from __future__ import annotations

from typing import ClassVar

PREEMPTED = 75
"""Exit code after some replicas got the signal to leave: all is saved, and the run can continue elsewhere."""


class BoxcrewError(Exception):
    """An error in one line (with file and value), and in `advice` what to do about it."""

    exit_code: ClassVar[int] = 1

    def __init__(self, message: str, *, advice: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.advice = advice


class UsageError(BoxcrewError):
    exit_code = 2


class UnknownSettingError(UsageError):
    """A setting that does not exist; `key` is its full key, which may be another tool's word for one."""

    def __init__(self, key: str, hint: str) -> None:
        super().__init__(f"{key}: no such setting; {hint}")
        self.key = key


class DataError(BoxcrewError):
    exit_code = 3


class ModelError(BoxcrewError):
    exit_code = 4


class ExportError(BoxcrewError):
    exit_code = 5


def first_line(error: BaseException) -> str:
    """Return what an error of a library says, in one line: its kind if it says nothing."""
    lines = (line.strip() for line in str(error).splitlines())
    return next(filter(None, lines), type(error).__name__)
