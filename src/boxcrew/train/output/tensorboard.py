"""The TensorBoard log of a run. A run can do without it: a writer that fails is dropped with one warning."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from boxcrew.core.files import flush
from boxcrew.core.types import Image

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter

QUEUE = 1000  # events that may wait for a slow disk before the loop waits
_FAILURES = (OSError, RuntimeError, ValueError)  # of the file, of its thread, of a closed file
_GIVEN_UP = "TensorBoard is turned off; the run continues without it"


class TensorBoardLog:
    """Writes events to a folder; without a folder it does nothing."""

    def __init__(self, folder: Path | None, *, from_step: int, warn: Callable[[str], None]) -> None:
        self._folder = folder
        self._warn = warn
        self._writer: SummaryWriter | None = None
        self._open(from_step)

    @property
    def is_open(self) -> bool:
        return self._writer is not None

    def show(self, write: Callable[[SummaryWriter], object]) -> None:
        if self._writer is None:
            return
        try:
            write(self._writer)
        except _FAILURES as error:
            self._writer = None  # not closed: that would wait for a thread that may never end
            self._warn(f"{_GIVEN_UP}: {error}")

    def add_scalar(self, name: str, value: float, step: int) -> None:
        self.show(lambda writer: writer.add_scalar(name, value, step))

    def add_image(self, name: str, image: Image, step: int) -> None:
        self.show(lambda writer: writer.add_image(name, image, step, dataformats="HWC"))

    def forget_after(self, step: int) -> None:
        """Hide the events of all steps after this one."""
        if self._writer is not None:
            self.close()
            self._open(step)

    def sync(self) -> None:
        """Wait until all events are on disk, ignoring errors. It may be called from another thread."""
        writer, folder = self._writer, self._folder
        if writer is None or folder is None:
            return
        with contextlib.suppress(*_FAILURES):
            writer.flush()
            flush(_event_files(folder)[-1])
            flush(folder)

    def close(self) -> None:
        self.show(lambda writer: writer.close())
        self._writer = None

    def _open(self, from_step: int) -> None:
        if self._folder is None:
            return
        from torch.utils.tensorboard import SummaryWriter

        try:
            _rename_future_files(self._folder)
            self._writer = SummaryWriter(str(self._folder), purge_step=from_step + 1, max_queue=QUEUE)
        except _FAILURES as error:
            self._warn(f"{_GIVEN_UP}: {error}")


def _event_files(folder: Path) -> list[Path]:
    """Return the event files in the order in which TensorBoard reads them."""
    return sorted(folder.glob("events.out.tfevents.*"))


def _rename_future_files(folder: Path) -> None:
    """Rename event files dated in the future, which TensorBoard would read in the wrong order. They are there
    after a clock was set back, or if two files were begun in one second.
    """
    now = f"{int(time.time()):010d}"
    files = {file: file.name.split(".") for file in _event_files(folder)}  # events.out.tfevents.TIME…
    if any(name[3] >= now for name in files.values()):
        for number, (file, name) in enumerate(files.items()):
            file.rename(folder / ".".join([*name[:3], f"{number:010d}", *name[4:]]))
