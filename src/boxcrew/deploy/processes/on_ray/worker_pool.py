"""Processes on a cluster of Ray that do the same work beside each other, begun again when they are lost."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import RayError

from boxcrew.core.errors import BoxcrewError, first_line
from boxcrew.deploy.processes.on_ray.process import ERR, Address, News
from boxcrew.deploy.processes.on_ray.slots import Slot, Slots
from boxcrew.plan.request import ReplicaRange

_POLL = 0.5  # seconds between two checks for slots
_AGAIN = 2.0  # seconds until one that was lost begins again
_LEAVING = 10.0  # seconds that they have to end in order


@dataclass(eq=False)
class _Member:
    """One of the processes, which a thread follows."""

    slot: Slot
    thread: threading.Thread | None = None
    actor: Any = None
    trouble: str | None = field(default=None)  # its own error, which would come again


class WorkerPool:
    """Processes with the same words: as many as there is room for, at most `num`."""

    def __init__(
        self,
        words: Sequence[str],
        num: int,
        resources: Mapping[str, float],
        *,
        folder: Path,
        info: Callable[[str], None],
    ) -> None:
        """Begin them. All machines have to see `folder`."""
        self._words, self._folder, self._info = words, str(folder), info
        self._slots = Slots(ReplicaRange(1, num), resources)
        self._members: list[_Member] = []
        self._is_closed = threading.Event()
        self._filler = threading.Thread(target=self._fill, daemon=True)
        self._filler.start()

    def require_sound(self) -> None:
        """Raise `BoxcrewError` if there are processes, and none of them can do its work."""
        troubles = [member.trouble for member in self._members]
        if troubles and None not in troubles:
            raise BoxcrewError(
                f"on=ray: {troubles[0]}", advice="every machine needs the same boxcrew[train,tune,ray]"
            )

    def close(self) -> None:
        """End all processes, in order if they do so soon."""
        self._is_closed.set()
        self._filler.join()
        for member in self._members:
            if member.actor is not None:
                member.actor.stop.remote()
        for member in self._members:
            if member.thread is not None:
                member.thread.join(_LEAVING)
            if member.actor is not None:
                ray.kill(member.actor)
        self._slots.close()

    def _fill(self) -> None:
        """Begin a process in each slot, once it is there."""
        while not self._is_closed.wait(_POLL):
            filled = {member.slot for member in self._members}
            for slot in self._slots.ready():
                if slot not in filled:
                    member = _Member(slot)
                    member.thread = threading.Thread(target=self._keep, args=(member,), daemon=True)
                    self._members.append(member)
                    member.thread.start()

    def _keep(self, member: _Member) -> None:
        """Run a process in a slot, and again when it was lost, until it has ended by itself."""
        while not self._is_closed.is_set() and member.trouble is None:
            try:
                if self._run(member) == 0:
                    return
            except RayError as error:  # its machine is gone, or it was killed; Ray finds another slot for it
                self._info(f"ray: a process was lost: {first_line(error)}")
            self._is_closed.wait(_AGAIN)

    def _run(self, member: _Member) -> int:
        """Return the exit code of a process that was run in a slot, once that is there."""
        while member.slot not in self._slots.ready():
            if self._is_closed.wait(_POLL):
                return 0
        member.actor = actor = self._slots.actor(member.slot)
        address = Address(*ray.get(actor.address.remote(self._folder)))
        if not address.has_folder:
            member.trouble = f"the machine {address.host} does not see {self._folder}"
            return 1
        actor.start.remote(self._words, {}, self._folder)
        errors: list[str] = []
        while True:
            news = News(*ray.get(actor.news.remote()))
            errors += [line.removeprefix("error: ") for where, line in news.lines if where == ERR]
            if news.code is not None:
                ray.kill(actor)
                if news.code > 0 and not self._is_closed.is_set():
                    member.trouble = next(iter(errors[-2:]), f"exit code {news.code}")
                return news.code
