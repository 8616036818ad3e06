"""Ctrl-C and SIGTERM finish the step, save and end the run; a second signal ends it at once."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from boxcrew.train.loop.trainer import Hook, Trainer
from boxcrew.train.output.screen import Screen

GRACE = 5.0  # seconds in which a second signal is taken for the first one


@contextmanager
def ignore_stop_signals() -> Iterator[None]:
    """Ignore SIGINT and SIGTERM in a process that the chief ends; the chief gets the same signals."""
    before = {number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class StopOnSignal(Hook):
    """Interrupts the run on SIGINT or SIGTERM. Each of several replicas may get a signal twice, from the
    system and from its launcher: a second one within `grace` seconds is ignored.
    """

    name = "stop"

    def __init__(self, screen: Screen, *, grace: float = 0.0) -> None:
        self._screen = screen
        self._grace = grace
        self._first: float | None = None  # when the first signal came
        self._before: dict[int, object] = {}

    def begin(self, trainer: Trainer) -> None:
        if threading.current_thread() is not threading.main_thread():
            return  # only the main thread may handle signals: an embedding program keeps its own handlers

        def stop(number: int, _: FrameType | None) -> None:
            if self._first is not None:
                if time.monotonic() - self._first > self._grace:
                    self.restore()
                    signal.raise_signal(number)
                return
            self._first = time.monotonic()
            if not self._grace:
                self.restore()
            name = signal.Signals(number).name
            if number == signal.SIGTERM and trainer.leave():
                self._screen.info(f"{name}: leaving after this step; the other replicas continue")
                return
            self._screen.info(f"{name}: finishing the step and saving; a second signal stops at once")
            trainer.interrupt(f"stopped by {name}", by_signal=True)

        for number in (signal.SIGINT, signal.SIGTERM):
            self._before[number] = signal.signal(number, stop)

    def end(self, trainer: Trainer) -> None:  # noqa: ARG002
        self.restore()

    def restore(self) -> None:
        while self._before:
            number, handler = self._before.popitem()
            signal.signal(number, handler)  # type: ignore[arg-type]  # what signal.signal itself gave
