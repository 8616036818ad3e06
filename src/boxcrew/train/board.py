"""TensorBoard, which a run can do without: a writer that fails is dropped, and that is said once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter

QUEUE = 1000  # events that may wait for a slow disk before the loop has to
_FAILURES = (OSError, RuntimeError, ValueError)  # of the file, of its thread, of a file that was closed


class Board:
    """Without a folder it shows nothing."""

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
            self._writer = None  # not closed: that would wait for a thread that may never come back
            self._warn(f"TensorBoard is given up, the run goes on without it: {error}")

    def forget_after(self, step: int) -> None:
        """Hides what was shown after it."""
        if self._writer is not None:
            self.close()
            self._open(step)

    def close(self) -> None:
        self.show(lambda writer: writer.close())
        self._writer = None

    def _open(self, from_step: int) -> None:
        if self._folder is None:
            return
        from torch.utils.tensorboard import SummaryWriter

        try:
            self._writer = SummaryWriter(str(self._folder), purge_step=from_step + 1, max_queue=QUEUE)
        except _FAILURES as error:
            self._warn(f"TensorBoard is given up, the run goes on without it: {error}")
