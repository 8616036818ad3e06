"""The members of a run, in numbered generations: the launcher announces them, and replicas read them.

A replica has a number that it keeps; its rank is its place among the members of a generation. All words about
membership stand in the store that the launcher runs, so the end of no replica takes them along:

    generation      the newest: its number, and the numbers of its members, the chief's first
    session         what a joining replica must know of the run; there while replicas may come, go and be lost
    ending          why the run ends, if one of its replicas has failed by an error of its own
    asks/N, refused/N, ready/N, leaves/N    a replica wants to join; may not; has joined; is about to leave
    met/N, broken/N                         all members of a generation have met; a connection is broken
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

from torch.distributed import PrefixStore, Store  # type: ignore[attr-defined]

from boxcrew.core.errors import BoxcrewError
from boxcrew.core.parent_process import MEMBER

LOST = 76
"""Exit code of a replica that cannot go on because another is lost: the launcher starts all of them again."""
Mark = Literal["leaves", "ready", "met", "broken"]
_RUN, _NUMBERS = "boxcrew/run", "numbers"


class ReplicaLostError(BoxcrewError):
    """Another replica is gone, or was replaced: the others can go on, if they form a new group."""


class LeftError(BoxcrewError):
    """A replica does not belong to its run any more: it was asked to leave, or taken for lost."""


class Generation(NamedTuple):
    """The members of a run between two changes."""

    number: int
    members: tuple[int, ...]  # the chief first
    new: tuple[int, ...] = ()  # those of them that have no state of the run yet
    why: str = ""  # it was announced


class Membership:
    """The words about membership in a run's store."""

    def __init__(self, store: Store, job: str) -> None:
        self._store = PrefixStore(f"membership/{job}", store)

    def announce(self, generation: Generation) -> None:
        self._store.set("generation", json.dumps(generation))

    def newest(self) -> Generation | None:
        """Return the newest generation; None if none was announced: all are there that were started."""
        if not self._store.check(["generation"]):
            return None
        number, members, new, why = json.loads(self._store.get("generation"))
        return Generation(number, tuple(members), tuple(new), why)

    def new_number(self) -> int:
        """Return a number that no other replica has."""
        return self._store.add(_NUMBERS, 1) - 1

    def num_numbers(self) -> int:
        """Return how many numbers have been given."""
        return self._store.add(_NUMBERS, 0)

    def open(self, session: Mapping[str, Any]) -> None:
        """Let replicas come, go and be lost from now on."""
        self._store.set("session", json.dumps(session))

    def close(self) -> None:
        # Not deleted: who has just seen that it is there would wait minutes for its text.
        self._store.set("session", "")

    def session(self) -> dict[str, Any] | None:
        """Return what a joining replica must know; None if none can join now."""
        text = self._text("session")
        session: dict[str, Any] | None = json.loads(text) if text else None
        return session

    def end(self, reason: str) -> None:
        self._store.set("ending", reason)

    @property
    def ending(self) -> str | None:
        return self._text("ending")

    def ask(self, member: int, host: Mapping[str, Any]) -> None:
        """Ask to join, with what the launcher wants to know about the process."""
        self._store.set(f"asks/{member}", json.dumps(host))

    def asks(self, member: int) -> dict[str, Any] | None:
        text = self._text(f"asks/{member}")
        return None if text is None else json.loads(text)

    def refuse(self, member: int, reason: str) -> None:
        self._store.set(f"refused/{member}", reason)

    def refusal(self, member: int) -> str | None:
        return self._text(f"refused/{member}")

    def mark(self, what: Mark, number: int) -> None:
        """Say that a member `leaves` or is `ready`, or that a generation has `met` or is `broken`."""
        self._store.set(f"{what}/{number}", "yes")

    def is_marked(self, what: Mark, number: int) -> bool:
        return self._store.check([f"{what}/{number}"])

    def _text(self, key: str) -> str | None:
        return self._store.get(key).decode() if self._store.check([key]) else None


def own_number(environment: Mapping[str, str] = os.environ) -> int | None:
    """Return this process's number among the members; None if our launcher has not started it."""
    return int(environment[MEMBER]) if MEMBER in environment else None


def write_run(store: Store, job: str) -> None:
    """Tell who connects to the store which job is running."""
    store.set(_RUN, job)


def read_run(store: Store) -> str:
    return store.get(_RUN).decode()
