"""Ctrl-C and SIGTERM: finish the step, save, leave; a second one leaves at once."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from boxcrew.train.loop.trainer import Hook, Trainer
from boxcrew.train.output.screen import Screen

GRACE = 5.0


@contextmanager
def left_to_others() -> Iterator[None]:
    """For a process that ends when others do, who get the same signals: here they are not heard."""
    kinds = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.signal(number, signal.SIG_IGN) for number in kinds}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class StopOnSignal(Hook):
    """Of several replicas each may be told twice, by the system and by who started them: a second signal
    within `grace` seconds of the first is the same one.
    """

    name = "stop"

    def __init__(self, screen: Screen, *, grace: float = 0.0) -> None:
        self._screen = screen
        self._grace = grace
        self._first: float | None = None  # when the first signal came
        self._before: dict[int, object] = {}

    def begin(self, trainer: Trainer) -> None:
        if threading.current_thread() is not threading.main_thread():
            return  # only the main thread may handle signals: the embedding program keeps its own ways

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
            self._screen.say(f"{name}: finishing the step and saving; once more stops at once")
            trainer.interrupt(f"stopped by {name}")

        for number in (signal.SIGINT, signal.SIGTERM):
            self._before[number] = signal.signal(number, stop)

    def end(self, trainer: Trainer) -> None:  # noqa: ARG002
        self.restore()

    def restore(self) -> None:
        while self._before:
            number, handler = self._before.popitem()
            signal.signal(number, handler)  # type: ignore[arg-type]  # what signal.signal itself gave
