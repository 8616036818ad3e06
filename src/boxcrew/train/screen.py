"""What a run says: on the screen, and word for word in its `train.log`."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table


class Screen:
    """Lines and tables. Everything said before a log is opened is written to it when it is."""

    def __init__(self, console: Console | None = None) -> None:
        self.console = console or Console(stderr=True, quiet=True)
        self._log: TextIO | None = None
        self._early: list[str] = []

    def open_log(self, path: Path) -> None:
        self._log = path.open("a", encoding="utf-8")
        for line in self._early:
            self._write(line)
        self._early.clear()

    def close_log(self) -> None:
        if self._log is not None:
            self._log.close()
            self._log = None

    def say(self, text: str, *, style: str | None = None) -> None:
        self.console.print(text, style=style, markup=False, highlight=False, soft_wrap=True)
        self._note(text)

    def warn(self, text: str) -> None:
        self.say(f"warning: {text}", style="yellow")

    def table(self, title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """The first column is text, the others numbers."""
        drawn = Table(title=title, title_justify="left", box=None, pad_edge=False, header_style="bold")
        for i, column in enumerate(columns):
            drawn.add_column(column, justify="left" if i == 0 else "right", no_wrap=True)
        for row in rows:
            drawn.add_row(*row)
        self.console.print(drawn)
        widths = [max(len(r[i]) for r in (columns, *rows)) for i in range(len(columns))]
        self._note(title)
        for row in (columns, *rows):
            self._note(
                "  ".join(
                    cell.ljust(w) if i == 0 else cell.rjust(w)
                    for i, (cell, w) in enumerate(zip(row, widths, strict=True))
                )
            )

    @contextmanager
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

    def _note(self, text: str) -> None:
        line = f"{time.strftime('%Y-%m-%d %H:%M:%S')} {text}"
        if self._log is None:
            self._early.append(line)
        else:
            self._write(line)

    def _write(self, line: str) -> None:
        assert self._log is not None
        self._log.write(line + "\n")
        self._log.flush()
