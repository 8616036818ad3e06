"""The replicas of a training on a cluster of Ray, begun again when some are lost, or when there is more room.

Ray places the processes and notices machines that are gone. What a training needs to go on it has itself: the
newest checkpoint in its directory. So all replicas end and begin together, each time with those for which
there is room, and a training with a fixed number of clones learns the same bits with any of them.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import ray
from ray.exceptions import RayError

from boxcrew.core.errors import PREEMPTED, BoxcrewError, UsageError, first_line
from boxcrew.core.units import counted
from boxcrew.deploy.processes.environments import process_name
from boxcrew.deploy.processes.heartbeat import IS_LOST, RESUME_ADVICE
from boxcrew.deploy.processes.on_ray.process import ERR, Address
from boxcrew.deploy.processes.on_ray.slots import Slot, Slots
from boxcrew.plan.request import ReplicaRange

MOST_LOSSES = 3
"""Times in a row that replicas may be lost without a new checkpoint: then it is because of what they do."""
_INTERRUPTED = 130
_POLL = 0.5  # seconds after which signals are noticed at the latest
_SETTLING = 2.0  # seconds that a training waits for more slots than it needs
_PATIENCE = 10.0  # seconds without enough slots, after which that is said
_LOOK = 5.0  # seconds between two checks for more slots
_GRACE = 6.0  # seconds for the others to notice that one is lost, and to give up locks
_SAVING = 120.0  # seconds to finish a step and to save
_AGAIN = 2.0  # seconds until replicas that could not start are started again
_STARTING = 120.0  # seconds in which that may help


@dataclass(frozen=True, kw_only=True)
class RayJob:
    """A training on a cluster: its command, and what a slot for one of its replicas needs."""

    words: Sequence[str]
    replicas: ReplicaRange
    resources: Mapping[str, float]
    folder: str | None  # which every machine must see; None for a run in object storage
    cwd: str  # of the command, on machines that have such a directory
    progress: Callable[[], Hashable]  # another value whenever there is a new checkpoint
    show: Callable[[int, str], None]  # gets the chief's lines, with where they were printed
    info: Callable[[str], None]


def run_on_ray(job: RayJob) -> int:
    """Train until the end, and return the exit code of the chief, which has said why if it failed. Signals
    let all replicas save and end. `BoxcrewError` if replicas are lost again and again.
    """
    slots = Slots(job.replicas, job.resources)
    losses, before = 0, job.progress()
    failing_since: float | None = None
    try:
        with _signals() as signals:
            while not signals:
                end = _Attempt(job, slots, signals).run(_wait_for_slots(slots, job, signals))
                if end.cannot_start is not None:  # Ray may not know yet that a machine is gone
                    failing_since = failing_since or time.monotonic()
                    if time.monotonic() - failing_since > _STARTING:
                        raise BoxcrewError(f"on=ray: the replicas cannot start: {end.cannot_start}")
                    continue
                failing_since = None
                if end.loss is None and not end.goes_on:
                    return end.code
                now = job.progress()
                losses = 0 if end.loss is None else losses + 1 if now == before else 1
                before = now
                if end.loss is not None:
                    _tell(job, end.loss, losses)
            return _INTERRUPTED
    finally:
        slots.close()


def _tell(job: RayJob, loss: str, losses: int) -> None:
    """Say why all begin again; `BoxcrewError` if that has not helped before."""
    if losses >= MOST_LOSSES:
        raise BoxcrewError(
            f"{loss}, {losses} times in a row without a new checkpoint; perhaps memory ran out",
            advice=RESUME_ADVICE,
        )
    job.info(f"{loss}; all replicas begin again from the newest checkpoint")


def _wait_for_slots(slots: Slots, job: RayJob, signals: Sequence[int]) -> list[Slot]:
    """Return the slots of all replicas that there is room for, once they are enough; none after a signal."""
    begun = enough_since = time.monotonic()
    is_said = False
    while not signals:
        ready, now = slots.ready(), time.monotonic()
        if not ready:
            enough_since = now
        elif len(ready) == job.replicas.most or now - enough_since > _SETTLING:
            return ready
        if not ready and not is_said and now - begun > _PATIENCE:
            is_said = True
            each = ", ".join(f"{number:g} {name}" for name, number in job.resources.items())
            num = counted(job.replicas.least, "replica")
            job.info(f"waiting: the cluster has no room for {num}, each with {each}")
        time.sleep(_POLL / 2)
    return []


@dataclass(frozen=True, kw_only=True)
class _End:
    """The end of an attempt: an exit code of the training, or why it has to begin again."""

    code: int = 0
    loss: str | None = None
    goes_on: bool = False  # in order: all have saved
    cannot_start: str | None = None  # why nothing has begun


@dataclass(eq=False, kw_only=True)
class _Replica:
    """One replica of an attempt."""

    actor: Any
    code: int | None = None
    is_lost: bool = False  # with its machine, or with its actor
    errors: list[str] = field(default_factory=list)

    @property
    def has_ended(self) -> bool:
        return self.is_lost or self.code is not None

    def loss(self, name: str, *, is_stopped: bool) -> str | None:
        """Return how it was lost; None if it has ended by itself, or waits for others. `is_stopped`: it was
        signals to end.
        """
        if self.is_lost:
            return f"{name} is gone, with its machine or a process on it"
        if self.code is not None and self.code < 0 and not (is_stopped and self.code == -signal.SIGTERM):
            return f"{name} was killed by {signal.Signals(-self.code).name}"
        said = next((line for line in self.errors if IS_LOST in line), None)
        return None if said is None else said.removeprefix("error: ")


class _Attempt:
    """The replicas of one start of the training."""

    def __init__(self, job: RayJob, slots: Slots, signals: Sequence[int]) -> None:
        self._job, self._slots, self._told = job, slots, signals
        self._replicas: list[_Replica] = []
        self._held: list[tuple[int, str]] = []  # what the chief said after another had ended
        self._stopped_at: float | None = None
        self._is_resized = False

    def run(self, slots: Sequence[Slot]) -> _End:
        """Train in these slots, until all replicas have ended."""
        if not slots:  # a signal came first
            return _End(code=_INTERRUPTED)
        self._replicas = [_Replica(actor=self._slots.actor(slot)) for slot in slots]
        try:
            self._start()
            self._follow()
        except RayError as error:
            time.sleep(_AGAIN)
            return _End(cannot_start=first_line(error))
        finally:
            for replica in self._replicas:
                ray.kill(replica.actor)
        return self._end()

    def _start(self) -> None:
        num = len(self._replicas)
        addresses: list[Address] = ray.get(
            [replica.actor.address.remote(self._job.folder) for replica in self._replicas]
        )
        for address in addresses:
            if not address.has_folder:
                raise UsageError(
                    f"out={self._job.folder}: the machine {address.host} of the cluster does not see it",
                    advice="give a directory on a file system that all share, or a URL such as s3://bucket/a",
                )
        chief = addresses[0]
        self._job.info(f"ray: {counted(num, 'replica')} on {', '.join(_hosts(addresses))}")
        for rank, replica in enumerate(self._replicas):
            variables = {
                "RANK": str(rank),
                "WORLD_SIZE": str(num),
                "MASTER_ADDR": chief.host,
                "MASTER_PORT": str(chief.port),
            }
            replica.actor.start.remote(self._job.words, variables, self._job.cwd)

    def _follow(self) -> None:
        """Pass on what they print, stop them when they are to be stopped, and wait until all have ended."""
        asked = {replica.actor.news.remote(): replica for replica in self._replicas}
        looked = time.monotonic()
        first_end: float | None = None
        while asked:
            answered, _ = ray.wait(list(asked), timeout=_POLL)
            for news in answered:
                replica = asked.pop(news)
                self._take(replica, news)
                if not replica.has_ended:
                    asked[replica.actor.news.remote()] = replica
            now = time.monotonic()
            if first_end is None and any(replica.has_ended for replica in self._replicas):
                first_end = now
            if now - looked > _LOOK:
                looked = now
                self._is_resized = self._is_resized or len(self._slots.ready()) > len(self._replicas)
            if self._stopped_at is None and (self._told or self._is_resized):
                self._stop()
            begun = self._stopped_at or first_end
            patience = _GRACE if self._stopped_at is None else _SAVING
            if begun is not None and now - begun > patience:
                return

    def _take(self, replica: _Replica, news: Any) -> None:
        """Note what a replica has printed, and whether it has ended."""
        try:
            lines, replica.code = ray.get(news)
        except RayError:
            replica.is_lost = True
            return
        replica.errors += [line for where, line in lines if where == ERR]
        if replica is not self._replicas[0]:
            return
        if any(other.has_ended for other in self._replicas if other is not replica):
            self._held += lines
            return
        for where, line in lines:
            self._job.show(where, line)

    def _stop(self) -> None:
        """Let all finish their step, save and end."""
        self._stopped_at = time.monotonic()
        for replica in self._replicas:
            if not replica.has_ended:
                replica.actor.stop.remote()

    def _end(self) -> _End:
        """Return how it ended. What a replica reports of itself would come again, and ends the training."""
        code = self._replicas[0].code
        if self._told or code == 0:
            self._show_held()
            return _End(code=_INTERRUPTED if code is None or code < 0 else code)
        if (loss := self._loss()) is not None:
            return _End(loss=loss)
        if self._is_resized or PREEMPTED in {replica.code for replica in self._replicas}:
            return _End(goes_on=True)
        self._show_held()
        if code is None:  # the chief still waits for one that has failed
            raise BoxcrewError(self._failure(), advice=RESUME_ADVICE)
        return _End(code=code)

    def _loss(self) -> str | None:
        """Return which replica was lost, and how: rather one that was killed than who has noticed it."""
        is_stopped = self._stopped_at is not None
        losses = [
            replica.loss(process_name(rank, len(self._replicas)), is_stopped=is_stopped)
            for rank, replica in enumerate(self._replicas)
        ]
        named = [loss for loss in losses if loss is not None]
        return min(named, key=lambda loss: IS_LOST in loss, default=None)

    def _failure(self) -> str:
        failed = next(rank for rank, replica in enumerate(self._replicas) if replica.code)
        said = (line for line in self._replicas[failed].errors if line.startswith("error: "))
        reason = next(said, f"error: exit code {self._replicas[failed].code}").removeprefix("error: ")
        return f"{process_name(failed, len(self._replicas))} failed: {reason}"

    def _show_held(self) -> None:
        for where, line in self._held:
            self._job.show(where, line)


def _hosts(addresses: Sequence[Address]) -> list[str]:
    return list(dict.fromkeys(address.host for address in addresses))


@contextmanager
def _signals() -> Iterator[list[int]]:
    """Yield a list to which SIGTERM and SIGINT are added; a second one ends the command at once."""
    signals: list[int] = []

    def tell(number: int, _: object) -> None:
        signals.append(number)
        if len(signals) > 1:
            raise KeyboardInterrupt

    numbers = (signal.SIGTERM, signal.SIGINT)
    before = {number: signal.signal(number, tell) for number in numbers}
    try:
        yield signals
    finally:
        for number, handler in before.items():
            with suppress(TypeError):  # one that was not set from Python
                signal.signal(number, handler)
