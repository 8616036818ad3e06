"""A process of a run that our launcher has started, in a session of its own."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from torch.distributed.elastic.multiprocessing.subprocess_handler import SubprocessHandler

from boxcrew.deploy.processes.membership import LOST

_LOOK = 0.02  # seconds


class Worker:
    """One process of a run; `number` is that of the replica or server in it. `code` is there once it has
    ended. What it prints goes to files in `folder`, if they are given.
    """

    def __init__(
        self,
        number: int,
        words: Sequence[str],
        variables: Mapping[str, str],
        *,
        out: Path | None,
        err: Path | None,
    ) -> None:
        self.number = number
        self.code: int | None = None
        self.ended_at = 0.0
        self.loss: str | None = None  # why we have killed it, if we have
        for file in (out, err):
            if file is not None:
                file.parent.mkdir(parents=True, exist_ok=True)
        handler = SubprocessHandler(
            sys.executable,
            ("-m", "boxcrew", *words),
            dict(variables),
            None if out is None else str(out),
            None if err is None else str(err),
            local_rank_id=number,
            numa_options=None,
        )
        self._process = handler.proc
        self.pid = self._process.pid

    def poll(self) -> int | None:
        """Return the exit code of a process that has just ended; None before and after that."""
        if self.code is not None:
            return None
        self.code = self._process.poll()
        self.ended_at = time.monotonic()
        return self.code

    @property
    def is_lost(self) -> bool:
        """True if the process has ended through no error of its own."""
        return self.code is not None and (self.code < 0 or self.code == LOST)

    def send(self, number: int) -> None:
        """Send a signal to the process and to those that it has started."""
        if self.code is not None:
            return
        for send in (os.killpg, os.kill):  # it may not have a session yet
            with suppress(ProcessLookupError):
                send(self.pid, number)
                return

    def kill(self, loss: str | None = None) -> None:
        self.loss = self.loss or loss
        self.send(signal.SIGKILL)


def end_all(workers: Sequence[Worker], *, first: int | None, seconds: float) -> None:
    """Send a signal, if any, to all that live, wait for them, and kill those that still live."""
    for worker in workers:
        if first is not None:
            worker.send(first)
    end = time.monotonic() + seconds
    while time.monotonic() < end and any(worker.code is None for worker in workers):
        for worker in workers:
            worker.poll()
        time.sleep(_LOOK)
    for worker in workers:
        worker.kill()
    while any(worker.code is None for worker in workers):
        for worker in workers:
            worker.poll()
        time.sleep(_LOOK)
