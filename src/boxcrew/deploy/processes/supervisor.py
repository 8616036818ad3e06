"""The launcher's watch over the processes of a run: who has ended, who hangs, who wants to join or to leave.

It announces the members of each generation (membership.py). torch's elastic agent stops all workers and
starts them again when one is lost; here the others go on in the same processes, and another is started in its
place. If they cannot, because the chief is lost or no replica has the full state, all are started again, and
go on from the newest checkpoint (docs/decisions/0034).
"""

from __future__ import annotations

import signal
import socket
import sys
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from types import FrameType
from typing import Never

from torch.distributed import TCPStore  # type: ignore[attr-defined]

from boxcrew.core.errors import PREEMPTED, UsageError
from boxcrew.core.parent_process import MEMBER
from boxcrew.core.units import counted
from boxcrew.deploy.processes import heartbeat
from boxcrew.deploy.processes.elastic_group import beats_of
from boxcrew.deploy.processes.environments import process_name
from boxcrew.deploy.processes.heartbeat import DONE, FAILED, IS_LOST, Watch
from boxcrew.deploy.processes.membership import LOST, Generation, Membership, write_run
from boxcrew.deploy.processes.worker import Worker, end_all

SAVING = 120.0  # seconds to finish a step and to save
LEAVING = 10.0  # seconds for the other replicas to end after the chief
BUDGET_SECONDS = 600.0  # in which a run survives so many losses
_LOOK = 0.05  # seconds


class StoppedError(Exception):
    """The launcher was told to end, and all processes have ended."""


class FailedError(Exception):
    """A process of the run has failed. `workers` have all ended; `reason` is there if losses are to blame."""

    def __init__(self, workers: Sequence[Worker], folder: Path, reason: str | None = None) -> None:
        super().__init__(reason)
        self.workers, self.folder, self.reason = workers, folder, reason


@dataclass(frozen=True, kw_only=True)
class LaunchSpec:
    """The processes to start: `boxcrew` with these words, so many times."""

    words: Sequence[str]
    num_replicas: int
    num_servers: int
    most: int  # replicas at most, with those that join
    restarts: int  # losses within BUDGET_SECONDS that the run survives
    address: tuple[str, int]  # on which others may join; port 0 is any
    takes_output: bool  # whether the chief's stdout goes to a file

    @property
    def num(self) -> int:
        return self.num_replicas + self.num_servers


class Supervisor:
    """Starts the processes of a run on this host, and watches over them until they have ended."""

    def __init__(self, spec: LaunchSpec, folder: Path) -> None:
        self.spec = spec
        self.signal: int | None = None  # that has told the launcher to end
        self._folder = folder
        self._name = uuid.uuid4().hex
        host, port = spec.address
        try:
            listener = socket.create_server((host, port))
        except OSError as error:
            reason = f"deploy.listen={host}:{port}: {error.strerror}"
            raise UsageError(reason, advice="give an address of this computer, and a free port") from None
        self.store = TCPStore(
            host,
            listener.getsockname()[1],
            is_master=True,
            wait_for_workers=False,
            master_listen_fd=listener.detach(),
        )
        self._losses: list[tuple[float, str]] = []  # when, and what

    def run(self) -> Path:
        """Run to the end; return the folder with the output of the last start. Raise an error if it fails."""
        with _handled(self._stop):
            for number in count():
                attempt = _Attempt(self, f"{self._name}.{number}", self._folder / str(number))
                try:
                    if attempt.run():
                        return attempt.folder
                finally:
                    attempt.kill_all()
                attempt.end_others()
        raise AssertionError  # attempts do not end

    def _stop(self, number: int, _: FrameType | None) -> None:
        self.signal = number

    def count(self, loss: str) -> None:
        self._losses.append((time.monotonic(), loss))

    @property
    def has_lost_too_many(self) -> bool:
        return len(self._recent()) > self.spec.restarts

    def blame(self) -> str:
        """Return why the run ends after too many losses: the first, which may have caused the others."""
        recent = self._recent()
        if len(recent) == 1:
            return recent[0]
        limit = f"deploy.restarts={self.spec.restarts}"
        return f"{recent[0]}; it was the first of {len(recent)} losses within 10 minutes ({limit})"

    def _recent(self) -> list[str]:
        since = time.monotonic() - BUDGET_SECONDS
        return [loss for when, loss in self._losses if when >= since]


class _Attempt:
    """One start of all processes, until they have ended or must be started again."""

    def __init__(self, parent: Supervisor, job: str, folder: Path) -> None:
        self.folder = folder
        self._parent, self._spec, self._job = parent, parent.spec, job
        self._membership = Membership(parent.store, job)
        self._watch = Watch(beats_of(parent.store, job), self._spec.num_replicas)
        self._generation = Generation(0, tuple(range(self._spec.num_replicas)))
        self._answered: set[int] = set()  # who asked to join
        self._looked_at = time.monotonic()
        self._was_open = False
        for _ in range(self._spec.num):
            self._membership.new_number()
        write_run(parent.store, job)
        self._workers = {rank: self._start(rank) for rank in range(self._spec.num)}

    @property
    def _chief(self) -> Worker:
        return self._workers[0]

    def _start(self, rank: int) -> Worker:
        size = self._spec.num
        variables = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": size, "LOCAL_WORLD_SIZE": size}
        own = {name: str(value) for name, value in variables.items()}
        if not self._spec.num_servers:
            own[MEMBER] = str(rank)
        is_shown, takes = rank == 0, self._spec.takes_output
        place = self.folder / str(rank)
        out = None if is_shown and not takes else place / "stdout.log"
        return Worker(
            rank,
            self._spec.words,
            self._common() | own,
            out=out,
            err=None if is_shown else place / "stderr.log",
        )

    def _common(self) -> dict[str, str]:
        return {
            "MASTER_ADDR": self._spec.address[0],
            "MASTER_PORT": str(self._parent.store.port),
            "TORCHELASTIC_RUN_ID": self._job,
            "TORCHELASTIC_USE_AGENT_STORE": "True",
        }

    def _replace(self) -> None:
        """Start another replica, which joins the others."""
        number = self._membership.new_number()
        place = self.folder / str(number)
        words = ("join", f"{self._spec.address[0]}:{self._parent.store.port}")
        files = {"out": place / "stdout.log", "err": place / "stderr.log"}
        self._workers[number] = Worker(number, words, self._common() | {MEMBER: str(number)}, **files)

    def run(self) -> bool:
        """Return True once the run is over, and False if all must be started again."""
        while True:
            time.sleep(_LOOK)
            if self._parent.signal is not None:
                end_all(self._all(), first=self._parent.signal, seconds=SAVING)
                raise StoppedError
            self._was_open |= self._membership.session() is not None
            ended = self._ended()
            if self._chief.code == 0:
                self._wait_for_members()
                return True
            lost = {worker.number: self._loss_of(worker) for worker in ended if worker.is_lost}
            lost |= self._silent()
            if lost:
                if not self._go_on_without(lost):
                    return False
            elif failed := [worker for worker in ended if self._is_failure(worker)]:
                self._fail(failed[0])
            for worker in ended:
                self._say_if_not_joined(worker)
            self._let_in_and_out()

    def kill_all(self) -> None:
        end_all(self._all(), first=None, seconds=0.0)

    def end_others(self) -> None:
        """Tell replicas on other hosts that they have no others any more."""
        self._membership.end("all replicas were started again: join them again")

    def _all(self) -> list[Worker]:
        return list(self._workers.values())

    def _ended(self) -> list[Worker]:
        """Return who has just ended. If one has failed, another that was killed before is found too."""
        ended = [worker for worker in self._all() if worker.poll() is not None]
        if ended:
            ended += [worker for worker in self._all() if worker.poll() is not None]
        return ended

    def _is_failure(self, worker: Worker) -> bool:
        """Return whether the run cannot go on because this process has ended."""
        if worker.code == 0 or worker.is_lost:
            return False
        has_left = worker.code == PREEMPTED and self._membership.is_marked("leaves", worker.number)
        has_not_joined = worker.number >= self._spec.num and worker.number not in self._generation.members
        return not has_left and not has_not_joined

    def _say_if_not_joined(self, worker: Worker) -> None:
        """Warn if a replica has ended that was started in the place of a lost one, before it could join."""
        number = worker.number
        if worker.code and number >= self._spec.num and number not in self._generation.members:
            left = self._membership.is_marked("ready", number) or self._membership.is_marked("leaves", number)
            reason = self._watch.beat_of(number).removeprefix(FAILED) or f"exit code {worker.code}"
            if not left:
                _say(f"replica {number} could not join: {reason}")

    def _loss_of(self, worker: Worker) -> str:
        name = process_name(worker.number, self._spec.num_replicas if self._spec.num_servers else sys.maxsize)
        if worker.loss is not None:
            return worker.loss
        if worker.code == LOST:
            return f"{name} could not go on without the others"
        assert worker.code is not None
        return f"{name} was killed by {signal.Signals(-worker.code).name}"

    def _silent(self) -> dict[int, str]:
        """Kill a member that is silent or hangs; return it if it runs on another host, where it cannot be
        killed: nothing that it says counts any more.
        """
        if time.monotonic() - self._looked_at < heartbeat.INTERVAL:
            return {}
        self._looked_at = time.monotonic()
        beating = [number for number in self._generation.members if self._watch.beat_of(number)]
        number, message = self._watch.find_lost(beating) or (0, "")
        if IS_LOST in message and number in self._workers:
            self._workers[number].kill(message)
        elif message and number not in self._workers:
            if IS_LOST not in message:  # it has failed by an error of its own
                self._end(message)
            return {number: message}
        if not self._membership.is_marked("broken", self._generation.number):
            return {}
        silences = {each: self._watch.silent_for(each) for each in beating if each not in self._workers}
        lost = {each: self._watch.silence(each, seconds) for each, seconds in silences.items()}
        return {each: lost[each] for each in lost if silences[each] >= heartbeat.SHORT_SILENCE}

    def _end(self, reason: str) -> Never:
        """End the run with this reason."""
        self._membership.end(reason)
        end_all(self._all(), first=signal.SIGTERM, seconds=SAVING)
        raise FailedError(self._all(), self.folder, reason)

    def _go_on_without(self, lost: Mapping[int, str]) -> bool:
        """Let the others go on; return False if they cannot, and all are to be started again."""
        self._answered |= lost.keys()  # whatever they have asked for
        lost = {number: loss for number, loss in lost.items() if self._is_needed(number)}
        if not lost:
            return True
        is_open = self._membership.session() is not None
        has_chief = self._chief.code is None
        if has_chief and self._was_open and not is_open:
            return True  # the chief writes the last files
        for loss in lost.values():
            self._parent.count(loss)
        if self._parent.has_lost_too_many:
            self._end(self._parent.blame())
        reason = "; ".join(lost.values())
        if not (has_chief and is_open):
            _say(f"{reason}: all replicas restart from the newest checkpoint")
            return False
        unready = {each for each in self._generation.new if not self._membership.is_marked("ready", each)}
        self._answered -= unready - lost.keys()  # they have no state yet: they join again
        left = tuple(each for each in self._generation.members if each not in {*lost, *unready})
        _say(f"{reason}: {counted(len(left), 'replica')} continue, and another starts in its place")
        if left != self._generation.members:
            self._announce(left, why=reason)
        for number in lost:
            if number in self._workers:
                self._replace()
        return True

    def _is_needed(self, number: int) -> bool:
        """Return whether a process is a part of the run, or was started to become one, and has not left."""
        num = self._spec.num
        is_member = number in self._generation.members or self._spec.num_replicas <= number < num
        return is_member or (number >= num and not self._membership.is_marked("leaves", number))

    def _announce(self, members: tuple[int, ...], *, new: tuple[int, ...] = (), why: str) -> None:
        self._generation = Generation(self._generation.number + 1, members, new, why)
        self._membership.announce(self._generation)

    def _let_in_and_out(self) -> None:
        """Announce who joins and who leaves, once all have met after the change before."""
        number, members, *_ = self._generation
        session = self._membership.session()
        if session is None or (number and not self._membership.is_marked("met", number)):
            return
        leaving = [each for each in members[1:] if self._membership.is_marked("leaves", each)]
        staying = [each for each in members if each not in leaving]
        room = min(self._spec.most, session["num_clones"]) - len(staying)
        joining: list[int] = []
        for each in range(self._spec.num, self._membership.num_numbers()):
            if each in self._answered or self._membership.asks(each) is None:
                continue
            self._answered.add(each)
            if len(joining) < room:
                joining.append(each)
            else:
                self._membership.refuse(
                    each, f"no room: {counted(len(staying), 'replica')} of at most {len(staying) + room}"
                )
        if leaving or joining:
            texts = [f"replica {each} leaves" for each in leaving] + [
                f"replica {each} joins" for each in joining
            ]
            self._announce((*staying, *joining), new=tuple(joining), why=", ".join(texts))

    def _fail(self, worker: Worker) -> None:
        """End all because one has failed by an error of its own, or has ended in order."""
        if worker.number:
            beat = self._watch.beat_of(worker.number)
            self._membership.end(
                f"replica {worker.number} {beat if beat.startswith(FAILED) else 'has ended'}"
            )
        end_all(self._all(), first=signal.SIGTERM, seconds=SAVING)
        raise FailedError(self._all(), self.folder)

    def _wait_for_members(self) -> None:
        """Let the others end after the chief, those on other hosts too. Who has not joined yet is killed."""
        members = [
            self._workers[each]
            for each in self._workers
            if each in self._generation.members or each < self._spec.num
        ]
        end_all(members, first=None, seconds=SAVING)
        end = time.monotonic() + LEAVING
        remote = [each for each in self._generation.members if each not in self._workers]
        while time.monotonic() < end and any(self._watch.beat_of(each) != DONE for each in remote):
            time.sleep(_LOOK)


def _say(text: str) -> None:
    print(f"warning: {text}", file=sys.stderr, flush=True)


@contextmanager
def _handled(handler: object) -> Iterator[None]:
    """Let SIGTERM and SIGINT call the handler: not SIGHUP, which nohup keeps away from us."""
    before = {number: signal.signal(number, handler) for number in (signal.SIGTERM, signal.SIGINT)}  # type: ignore[arg-type]
    try:
        yield
    finally:
        for number, earlier in before.items():
            signal.signal(number, earlier)
