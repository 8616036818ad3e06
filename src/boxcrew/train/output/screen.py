"""The screen output of a run, which is also written to its `train.log`."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from rich.console import Console, JustifyMethod, OverflowMethod
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.segment import Segment, Segments
from rich.table import Table
from rich.text import Text

from boxcrew.core.files import append

MAX_PENDING = 10_000  # lines


class Screen:
    """Prints lines and tables of plain text (no markup). Lines printed before a log is opened are written to
    it when it is.

    A line that cannot be written never ends a run: on a full disk the lines of the log wait for room, with
    one warning.
    """

    def __init__(self, console: Console | None = None) -> None:
        self.console = console or Console(stderr=True, quiet=True)
        self._log: Path | None = None
        self._pending: list[str] = []  # lines that are not in the log yet
        self._num_lost = 0  # lines beyond MAX_PENDING, which are dropped
        self._is_full = False

    def open_log(self, path: Path) -> None:
        self._log = path
        self._flush()

    def close_log(self) -> None:
        self._flush()
        lost = self._num_lost + len(self._pending)
        if self._log is not None and lost:
            self._print(f"warning: {self._log}: {lost} lines could not be written", style="yellow")
        self._log, self._pending, self._num_lost = None, [], 0

    def info(self, text: str, *, style: str | None = None) -> None:
        self._print(text, style=style)
        self._log_line(text)

    def warn(self, text: str) -> None:
        self.info(f"warning: {text}", style="yellow")

    def table(
        self, title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], *, numbers: bool = True
    ) -> None:
        """Print a table. The first column is text; the others are numbers, aligned right, if `numbers`."""
        overflow: OverflowMethod = "crop" if self.console.options.ascii_only else "ellipsis"
        drawn = Table(box=None, pad_edge=False, header_style="bold")
        for i, column in enumerate(columns):
            justify: JustifyMethod = "right" if i and numbers else "left"
            drawn.add_column(self._cell(column), justify=justify, no_wrap=numbers, overflow=overflow)
        for row in rows:
            drawn.add_row(*map(self._cell, row))
        # Not as the title of the rich table, which wraps it to the width of the table.
        self._print(title, style="table.title")
        with contextlib.suppress(OSError):
            self.console.print(drawn)
        widths = [max(map(len, column)) for column in zip(columns, *rows, strict=True)]
        self._log_line(title)
        for row in (columns, *rows):
            cells = enumerate(zip(row, widths, strict=True))
            aligned = (cell.rjust(w) if i and numbers else cell.ljust(w) for i, (cell, w) in cells)
            self._log_line("  ".join(aligned))

    @contextlib.contextmanager
    def progress(self, title: str) -> Iterator[Callable[[int, int], None]]:
        """Show a bar on a terminal; yield the function that sets it to (done, total). Nothing is logged."""
        columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
        hidden = not self.console.is_terminal
        with Progress(*columns, console=self.console, transient=True, disable=hidden) as bar:
            task = bar.add_task(title, total=None)
            yield lambda done, total: bar.update(task, completed=done, total=total)

    def _print(self, text: str, *, style: str | None) -> None:
        # As a segment: rich would replace emoji codes and tabs in text.
        line = Segments([Segment(self._showable(text)), Segment.line()])
        with contextlib.suppress(OSError):  # a closed terminal, a file on a full disk
            self.console.print(line, style=style, soft_wrap=True)

    def _cell(self, text: str) -> Text:
        return Text(self._showable(text))

    def _showable(self, text: str) -> str:
        """Return the text with escapes for characters that the console cannot show."""
        encoding = self.console.encoding
        return text.encode(encoding, errors="backslashreplace").decode(encoding)

    def _log_line(self, text: str) -> None:
        self._pending.append(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {text}\n")
        self._flush()

    def _flush(self) -> None:
        # Swapped first: a signal handler may print while they are written.
        lines, self._pending = self._pending, []
        if self._log is None or not lines:
            self._pending = lines[-MAX_PENDING:]
            self._num_lost += len(lines) - len(self._pending)
            return
        missing = f"({self._num_lost} lines are missing here)\n" if self._num_lost else ""
        try:
            append(self._log, missing + "".join(lines))
        except OSError as error:
            self._keep(lines, error)
        else:
            self._num_lost, self._is_full = 0, False

    def _keep(self, lines: list[str], error: OSError) -> None:
        pending = lines + self._pending
        self._pending = pending[-MAX_PENDING:]
        self._num_lost += len(pending) - len(self._pending)
        if not self._is_full:
            self._is_full = True
            reason = f"{error.strerror or error}; the run continues, and the lines are written later"
            self._print(f"warning: {self._log} could not be written: {reason}", style="yellow")
