"""One training of a study in a process of its own: a trial up to a rung, or to its end.

The run directory is the truth: whether a rung is reached, and with what value, is read from it. So a process
may be killed at any time, and is started again.
"""

from __future__ import annotations

import multiprocessing
import os
import shutil
import signal
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing import forkserver
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Protocol

from boxcrew.core.config import Tree
from boxcrew.core.errors import BoxcrewError
from boxcrew.core.lock_owner import owner_of
from boxcrew.train.config import RunConfig
from boxcrew.train.output.screen import Screen
from boxcrew.train.run import train
from boxcrew.train.run.lease import is_renewed
from boxcrew.train.run.lock import locked
from boxcrew.tune.run_state import evaluations, is_begun, is_finished, newest_step, solved_value

_context = multiprocessing.get_context("forkserver")


@dataclass(frozen=True, kw_only=True)
class Work:
    """A training to do: settings with a directory, and the step to pause after; None trains to the end."""

    config: Tree
    pause_at: int | None

    @property
    def folder(self) -> Path:
        return Path(self.config["out"])

    def is_done(self) -> bool:
        """Return whether the run has got so far, and was evaluated there: a signal may come in between."""
        if is_finished(self.folder):
            return True
        if self.pause_at is None or newest_step(self.folder) < self.pause_at:
            return False
        return any(row["step"] >= self.pause_at for row in evaluations(self.folder))

    def value(self, metric: str, *, higher_is_better: bool) -> float | None:
        """Return the best value of the metric so far, or that of the last closed form; None if it was not
        measured.
        """
        if self.pause_at is None and (solved := solved_value(self.folder, metric)) is not None:
            return solved
        end = self.config["steps"] if self.pause_at is None else self.pause_at
        rows = evaluations(self.folder)
        values = [row[metric] for row in rows if metric in row and row["step"] <= end]
        return (max if higher_is_better else min)(values, default=None)


class Training(Protocol):
    """A training of a study that has begun somewhere."""

    work: Work

    def seconds(self) -> float:
        """Return for how long its process has run."""

    def stop(self) -> None:
        """Let it finish its step, save and end."""

    def kill(self) -> None: ...

    def failure(self) -> str | None:
        """Return why the work failed, after the end; None if it did not, or was cut off."""


class TrainingBackend(Protocol):
    """The backend where the trainings of a study are done."""

    def begin(self, job: int, work: Work) -> Training:
        """Begin a training, or find the one that was begun for this job before the study was stopped."""

    def wait(self, trainings: Sequence[Training], seconds: float) -> Sequence[Training]:
        """Return those that have ended, after at most so many seconds."""


class OwnProcesses:
    """Processes of this one."""

    def begin(self, job: int, work: Work) -> Training:  # noqa: ARG002  nothing else is known of a job here
        return Worker(work)

    def wait(self, trainings: Sequence[Training], seconds: float) -> Sequence[Training]:
        workers = [training for training in trainings if isinstance(training, Worker)]
        ready = wait([worker.sentinel for worker in workers], timeout=seconds)
        return [worker for worker in workers if worker.sentinel in ready]


class Worker:
    """A process that does some work. It ends with this one, however that happens."""

    def __init__(self, work: Work) -> None:
        self.work = work
        self._reply, theirs = _context.Pipe(duplex=False)
        self._process: BaseProcess = _context.Process(target=_do, args=(work, theirs))
        self._process.start()  # which waits until the process that it is forked from is ready
        theirs.close()
        self._began = time.monotonic()

    @property
    def sentinel(self) -> int:
        return self._process.sentinel

    def seconds(self) -> float:
        """Return for how long it has run."""
        return time.monotonic() - self._began

    def stop(self) -> None:
        """Let it finish its step, save and end."""
        if self._process.pid is not None and self._process.exitcode is None:
            os.kill(self._process.pid, signal.SIGTERM)

    def kill(self) -> None:
        self._process.kill()
        self._process.join()

    def failure(self) -> str | None:
        """Return why the work failed, after the end of the process; None if it did not, or was cut off."""
        self._process.join()
        try:
            reply: str | None = self._reply.recv() if self._reply.poll() else None
        except EOFError:
            reply = None
        self._reply.close()
        return reply


def preload() -> None:
    """Start the process that those of all trainings are forked from. It imports everything meanwhile."""
    _context.set_forkserver_preload(["boxcrew.tune.preloaded"])
    forkserver.ensure_running()


def _do(work: Work, reply: Connection) -> None:
    """Do the work in the new process; send back the reason if it fails."""
    os.setsid()  # Ctrl-C reaches the study alone, which stops its workers
    threading.Thread(target=_die_with_parent, daemon=True).start()
    try:
        _train(work)
    except BoxcrewError as error:
        reply.send(error.message)
    except MemoryError:
        reply.send("out of memory")
    except KeyboardInterrupt:
        pass
    except Exception as error:  # noqa: BLE001 - of a trial, which must not end the others
        reply.send(f"{type(error).__name__}: {error}")


def _die_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os.kill(os.getpid(), signal.SIGKILL)


def _train(work: Work) -> None:
    _wait_for_lock(work.folder)
    if work.is_done():
        return
    folder = work.folder
    if folder.is_dir() and not is_begun(folder):
        with locked(folder, lambda _: None):  # of a process that was killed before its first checkpoint
            pass
        shutil.rmtree(folder)
    train(RunConfig.of(work.config), Screen(), pause_at=work.pause_at)


def _wait_for_lock(folder: Path) -> None:
    """Wait while another process has the run: one that was killed with an earlier study, and is about to end,
    one of a machine that was taken for lost, or one that a user has started.
    """
    while (owner := owner_of(folder)) is not None and not owner.is_dead():
        if owner.is_here():
            time.sleep(0.05)
        elif not is_renewed(folder):
            return
