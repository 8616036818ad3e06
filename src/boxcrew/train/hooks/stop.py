"""Ctrl-C and SIGTERM: finish the step, save, leave; a second one leaves at once."""

from __future__ import annotations

import signal
import threading
from types import FrameType

from boxcrew.train.screen import Screen
from boxcrew.train.trainer import Hook, Trainer


class StopOnSignal(Hook):
    name = "stop"

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self._before: dict[int, object] = {}

    def begin(self, trainer: Trainer) -> None:
        if threading.current_thread() is not threading.main_thread():
            return  # only the main thread may handle signals: the embedding program keeps its own ways

        def stop(number: int, frame: FrameType | None) -> None:  # noqa: ARG001
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
