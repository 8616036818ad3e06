"""Things found by name. One kind of them lives in one package; importing its files registers its members."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Sequence
from difflib import get_close_matches
from typing import Generic, TypeVar

from boxcrew.core.errors import UsageError

T = TypeVar("T")
_MOST_LISTED = 40
_MOST_SUGGESTED = 3
_LEAST_PART = 3  # letters that are enough to know an option by a part of its name


def suggest(name: str, options: Sequence[str]) -> str:
    """Return the end of a 'no such' message: the nearest option if one is near, else all (or the first)."""
    if near := _nearest(name.lower(), options):
        return f"did you mean {' or '.join(map(repr, near))}?"
    listed = ", ".join(sorted(options)[:_MOST_LISTED])
    return f"there are: {listed}" + (f", … ({len(options)} in all)" if len(options) > _MOST_LISTED else "")


def _nearest(name: str, options: Sequence[str]) -> list[str]:
    """Return the option that is spelled like `name`; else those that contain it; else one that begins so."""
    lowered = {option.lower(): option for option in options}
    if near := get_close_matches(name, lowered, n=1, cutoff=0.6):
        return [lowered[near[0]]]
    if len(name) < _LEAST_PART:
        return []
    if inside := [option for low, option in lowered.items() if name in low]:
        return sorted(inside, key=len)[:_MOST_SUGGESTED]
    beginnings = {low[: len(name)]: option for low, option in sorted(lowered.items(), reverse=True)}
    return [beginnings[start] for start in get_close_matches(name, beginnings, n=1, cutoff=0.75)]


class Registry(Generic[T]):
    """The members of one kind by name. The first look-up imports every module of `package`."""

    def __init__(self, kind: str, package: str) -> None:
        self.kind = kind
        self._package = package
        self._members: dict[str, T] = {}
        self._discovered = False

    def register(self, name: str) -> Callable[[T], T]:
        """Return a decorator that registers its class or function under a name, which must be free."""

        def add(member: T) -> T:
            if name in self._members:
                raise ValueError(f"two {self.kind}s are named {name!r}: {self._members[name]} and {member}")
            self._members[name] = member
            return member

        return add

    def get(self, name: str) -> T:
        self._discover()
        try:
            return self._members[name]
        except KeyError:
            raise UsageError(f"{name}: no such {self.kind}; {suggest(name, self.names())}") from None

    def names(self) -> list[str]:
        self._discover()
        return sorted(self._members)

    def _discover(self) -> None:
        if self._discovered:
            return
        package = importlib.import_module(self._package)
        for module in pkgutil.iter_modules(package.__path__, f"{self._package}."):
            importlib.import_module(module.name)
        self._discovered = True
