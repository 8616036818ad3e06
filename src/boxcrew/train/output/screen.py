"""What a run says: on the screen, and word for word in its `train.log`."""

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

MAX_WAITING = 10_000  # lines


class Screen:
    """Lines and tables, of text that means nothing but itself. What is said before a log is opened is written
    to it when it is.

    A line that cannot be written never ends a run: on a full disk the lines of the log wait for room, and
    that is said once.
    """

    def __init__(self, console: Console | None = None) -> None:
        self.console = console or Console(stderr=True, quiet=True)
        self._log: Path | None = None
        self._waiting: list[str] = []  # lines that are not in the log yet
        self._num_lost = 0  # that there was no room for even here
        self._is_full = False

    def open_log(self, path: Path) -> None:
        self._log = path
        self._flush()

    def close_log(self) -> None:
        self._flush()
        lost = self._num_lost + len(self._waiting)
        if self._log is not None and lost:
            self._print(f"warning: {self._log}: {lost} lines could not be written", style="yellow")
        self._log, self._waiting, self._num_lost = None, [], 0

    def say(self, text: str, *, style: str | None = None) -> None:
        self._print(text, style=style)
        self._note(text)

    def warn(self, text: str) -> None:
        self.say(f"warning: {text}", style="yellow")

    def table(
        self, title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], *, numbers: bool = True
    ) -> None:
        """The first column is text, the others numbers, unless they are text too."""
        overflow: OverflowMethod = "crop" if self.console.options.ascii_only else "ellipsis"
        drawn = Table(box=None, pad_edge=False, header_style="bold")
        for i, column in enumerate(columns):
            justify: JustifyMethod = "right" if i and numbers else "left"
            drawn.add_column(self._cell(column), justify=justify, no_wrap=numbers, overflow=overflow)
        for row in rows:
            drawn.add_row(*map(self._cell, row))
        # Not as the table's own title, which is broken where the table is narrow.
        self._print(title, style="table.title")
        with contextlib.suppress(OSError):
            self.console.print(drawn)
        widths = [max(len(r[i]) for r in (columns, *rows)) for i in range(len(columns))]
        self._note(title)
        for row in (columns, *rows):
            self._note(
                "  ".join(
                    cell.rjust(w) if i and numbers else cell.ljust(w)
                    for i, (cell, w) in enumerate(zip(row, widths, strict=True))
                )
            )

    @contextlib.contextmanager
    def progress(self, title: str) -> Iterator[Callable[[int, int], None]]:
        """A bar, to be told (done, total), on a terminal while it lasts; elsewhere and in the log nothing."""
        bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            console=self.console,
            transient=True,
            disable=not self.console.is_terminal,
        )
        with bar:
            task = bar.add_task(title, total=None)
            yield lambda done, total: bar.update(task, completed=done, total=total)

    def _print(self, text: str, *, style: str | None) -> None:
        # As a segment: in text rich finds emojis, and it makes spaces of tabs.
        line = Segments([Segment(self._showable(text)), Segment.line()])
        with contextlib.suppress(OSError):  # a terminal that was closed, a file on a full disk
            self.console.print(line, style=style, soft_wrap=True)

    def _cell(self, text: str) -> Text:
        return Text(self._showable(text))

    def _showable(self, text: str) -> str:
        """With escapes for what it has no characters for, such as names of files that are not UTF-8."""
        encoding = self.console.encoding
        return text.encode(encoding, errors="backslashreplace").decode(encoding)

    def _note(self, text: str) -> None:
        self._waiting.append(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {text}\n")
        self._flush()

    def _flush(self) -> None:
        # Taken first: a signal may come while they are written, and say something too.
        lines, self._waiting = self._waiting, []
        if self._log is None or not lines:
            self._waiting = lines
            return
        missing = f"({self._num_lost} lines are missing here)\n" if self._num_lost else ""
        try:
            append(self._log, missing + "".join(lines))
        except OSError as error:
            self._keep(lines, error)
        else:
            self._num_lost, self._is_full = 0, False

    def _keep(self, lines: list[str], error: OSError) -> None:
        everything = lines + self._waiting
        self._waiting = everything[-MAX_WAITING:]
        self._num_lost += len(everything) - len(self._waiting)
        if not self._is_full:
            self._is_full = True
            why = error.strerror or str(error)
            self._print(
                f"warning: {self._log} could not be written: {why}; the run goes on, its lines wait",
                style="yellow",
            )
