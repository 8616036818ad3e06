"""A machine that takes trainings from a study on another one: it claims them in the study's directory."""

from __future__ import annotations

import os
import secrets
import signal
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from pathlib import Path
from typing import Self

from pydantic import Field

from boxcrew.core.config import Config
from boxcrew.core.errors import UsageError
from boxcrew.core.lock_owner import owner_of
from boxcrew.core.parent_process import LAUNCHER, die_with
from boxcrew.core.units import counted
from boxcrew.core.version import VERSION
from boxcrew.hardware.machine import Machine
from boxcrew.hardware.probe import probe_machine
from boxcrew.train.output.screen import Screen
from boxcrew.train.run.lock import locked
from boxcrew.tune.jobs import JOINED, KILL, Posted, unclaimed
from boxcrew.tune.ledger import Ledger
from boxcrew.tune.prepare import require_same_data
from boxcrew.tune.record import StudyRecord, read_study
from boxcrew.tune.runner import Interrupted
from boxcrew.tune.worker import OwnProcesses, Work, Worker, preload

_POLL = 0.2  # seconds between two checks for trainings
_LOOK = 2.0  # seconds between two checks whether the study has ended


class JoinConfig(Config):
    """The settings of `boxcrew tune join`."""

    study: Path
    """Directory of the study, as this machine sees it."""
    workers: int | None = Field(default=None, ge=1)
    """Trainings at once; none: as many as its cores allow, or one for each accelerator."""


def join(config: JoinConfig, screen: Screen) -> int:
    """Do trainings of a study until it has ended, and return how many. After a signal they save, others go on
    with them, and `Interrupted` is raised.
    """
    if LAUNCHER in os.environ:
        die_with(int(os.environ.pop(LAUNCHER)))
    folder = config.study.absolute()
    study = read_study(folder)
    if study.on == "machine":
        raise UsageError(
            f"study={folder}: trains on its own machine alone", advice="begin a study with on=join"
        )
    _require_same_versions(study)
    require_same_data(study)
    machine = probe_machine()
    if machine.devices[0].model != Machine.of(study.machine).devices[0].model:
        screen.warn("another kind of CPU than the study's: trainings may differ in the last digits")
    workers = config.workers or _room(study, machine)
    name = f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(2)}"
    with locked(folder / JOINED / name, screen.info):
        preload()
        devices = tuple(device.name for device in machine.accelerators) if workers > 1 else ()
        screen.info(f"joined: {folder}, {counted(workers, 'training')} at once")
        return _Joined(folder=folder, name=name, slots=workers, devices=devices, screen=screen).work()


def _require_same_versions(study: StudyRecord) -> None:
    """Raise `UsageError` if trainings here would not be those of the study's machine."""
    own = {"boxcrew": VERSION, "torch": version("torch")}
    for name, number in own.items():
        if study.versions.get(name, number) != number:
            raise UsageError(
                f"{name} {number}: the study was begun with {study.versions[name]}",
                advice="install the same on all machines: results would not compare",
            )


def _room(study: StudyRecord, machine: Machine) -> int:
    """Return how many trainings of a study this machine does at once."""
    base = study.base_config
    if machine.accelerators and not base.device.startswith("cpu"):
        return len(machine.accelerators)
    threads = base.deploy.threads if isinstance(base.deploy.threads, int) else 1
    return min(study.workers, max(1, int(machine.cores) // threads))


@dataclass(frozen=True, kw_only=True)
class _Claimed:
    """A training that this machine has claimed, and its process."""

    posted: Posted
    worker: Worker
    slot: int

    @classmethod
    def begin(cls, posted: Posted, work: Work, slot: int) -> Self:
        return cls(posted=posted, worker=Worker(work), slot=slot)


@dataclass(eq=False, kw_only=True)
class _Joined:
    """The part that this machine has in a study."""

    folder: Path
    name: str
    slots: int
    devices: tuple[str, ...]  # accelerators that trainings at once share out
    screen: Screen
    _claimed: list[_Claimed] = field(default_factory=list, init=False)
    _num_done: int = field(default=0, init=False)
    _signals: int = field(default=0, init=False)
    _is_waiting: bool = field(default=False, init=False)

    def work(self) -> int:
        looked = -_LOOK
        with self._signals_heard():
            try:
                while not self._signals or self._claimed:
                    self._collect()
                    if not self._signals:
                        self._claim()
                    if not self._claimed and time.monotonic() - looked > _LOOK:
                        looked = time.monotonic()
                        if self._is_over():
                            break
            finally:
                for each in self._claimed:
                    each.worker.kill()
        if self._signals:
            raise Interrupted
        return self._num_done

    def _claim(self) -> None:
        """Begin trainings that nobody does, as many as there is room for."""
        for posted in unclaimed(self.folder):
            free = set(range(self.slots)) - {each.slot for each in self._claimed}
            if not free:
                return
            if not posted.claim(self.name):
                continue
            work = posted.work()
            if work is None:  # the study has withdrawn it
                continue
            slot = min(free)
            end = "the end" if work.pause_at is None else f"step {work.pause_at}"
            self.screen.info(f"begins: {work.folder.relative_to(self.folder)}, up to {end}")
            self._claimed.append(_Claimed.begin(posted, self._on_device(work, slot), slot))

    def _on_device(self, work: Work, slot: int) -> Work:
        if not self.devices or work.config["device"] != "auto":
            return work
        return replace(work, config={**work.config, "device": self.devices[slot % len(self.devices)]})

    def _collect(self) -> None:
        """Wait a moment; end what the study wants to end, and note what has ended."""
        for each in self._claimed:
            asked = each.posted.asked()
            if asked == KILL:
                each.worker.kill()
            elif asked is not None:
                each.worker.stop()
        if not self._claimed:
            time.sleep(_POLL)
        ended = OwnProcesses().wait([each.worker for each in self._claimed], _POLL)
        for each in list(self._claimed):
            if each.worker in ended:
                failure = each.worker.failure()
                each.posted.end(failure, each.worker.seconds())
                self._claimed.remove(each)
                self._num_done += each.worker.work.is_done()
                if failure is not None:
                    self.screen.warn(f"{each.worker.work.folder.relative_to(self.folder)} failed: {failure}")

    def _is_over(self) -> bool:
        """Return whether the study has ended. One that was stopped may go on."""
        if Ledger.read(self.folder).is_finished:
            self.screen.info(f"the study has ended; done here: {counted(self._num_done, 'training')}")
            return True
        owner = owner_of(self.folder)
        is_waiting = owner is None or owner.is_dead()
        if is_waiting and not self._is_waiting:
            self.screen.info(f"waiting for the study: boxcrew tune resume study={self.folder}")
        self._is_waiting = is_waiting
        return False

    @contextmanager
    def _signals_heard(self) -> Iterator[None]:
        def stop(number: int, _: object) -> None:
            self._signals += 1
            if self._signals > 1:
                raise KeyboardInterrupt
            name = signal.Signals(number).name
            self.screen.info(f"{name}: leaving; trainings save first, a second signal stops at once")
            for each in self._claimed:
                each.worker.stop()

        numbers = (signal.SIGINT, signal.SIGTERM)
        before = {number: signal.signal(number, stop) for number in numbers}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
