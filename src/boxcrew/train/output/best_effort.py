"""Files that a run can do without for a while: a full disk must not end it."""

from __future__ import annotations

from collections.abc import Callable


class BestEffort:
    """Says once for each file that it cannot be written, until it can be again."""

    def __init__(self, warn: Callable[[str], None]) -> None:
        self._warn = warn
        self.trouble: dict[str, str] = {}  # name of a file -> why its last writing failed

    def write(self, name: str, write: Callable[[], object]) -> bool:
        """Whether it succeeded."""
        try:
            write()
        except OSError as error:
            known = name in self.trouble
            self.trouble[name] = error.strerror or str(error)
            if not known:
                self._warn(f"{name} could not be written: {self.trouble[name]}; the run goes on")
            return False
        self.trouble.pop(name, None)
        return True

    def sentences(self) -> list[str]:
        """What is not written as it should be, and why."""
        return [f"{name}: {why}" for name, why in self.trouble.items()]
