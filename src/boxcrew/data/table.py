"""CSV files with a header, read as words."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np

from boxcrew.core.errors import DataError
from boxcrew.core.types import Bools
from boxcrew.data.plain_text import read_utf8
from boxcrew.data.problem import Action, Kind, Problem

_SEPARATORS = ",;\t"


@dataclass(frozen=True, kw_only=True, eq=False)
class Table:
    """The rows that have as many words as the header has names."""

    file: Path
    names: tuple[str, ...]
    rows: Sequence[Sequence[str]]  # words, stripped
    lines: Sequence[int]  # of the file, from 1 on, where each row begins

    def __len__(self) -> int:
        return len(self.rows)

    def column(self, name: str) -> list[str]:
        place = self.names.index(name)
        return [row[place] for row in self.rows]

    def named_rows(self) -> Iterator[tuple[int, dict[str, str]]]:
        """The line where each row begins, and its words by column."""
        for line, row in zip(self.lines, self.rows, strict=True):
            yield line, dict(zip(self.names, row, strict=True))

    def select(self, mask: Bools) -> Table:
        places = np.flatnonzero(mask).tolist()
        return Table(
            file=self.file,
            names=self.names,
            rows=[self.rows[place] for place in places],
            lines=[self.lines[place] for place in places],
        )


def problem_at(
    table: Table, where: Bools, kind: Kind, what: str, *, value: str = "", action: Action = "left out"
) -> Problem:
    """About several rows of a file, with the place of the first."""
    return Problem(
        kind=kind,
        file=table.file.name,
        at=f"from line {table.lines[int(np.argmax(where))]}",
        what=what,
        value=value,
        action=action,
        count=int(where.sum()),
    )


def read_table(file: Path) -> tuple[Table, list[Problem]]:
    """The separator is a comma, semicolon or tabulator, whichever the header has most of. Empty lines say
    nothing; rows of another length than the header are left out.
    """
    text = read_utf8(file)
    header = text.lstrip().split("\n", 1)[0]
    separator = max(_SEPARATORS, key=header.count)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator, skipinitialspace=True)
    rows, lines, problems = [], [], []
    names: tuple[str, ...] = ()
    line = 1
    try:
        for words in reader:
            row, begun, line = [word.strip() for word in words], line, reader.line_num + 1
            if not any(row):
                continue
            if not names:
                names = _checked(file, row)
            elif len(row) == len(names):
                rows.append(row)
                lines.append(begun)
            else:
                what = f"has {len(row)} values, not the {len(names)} of the header"
                shown = separator.join(row)[:80]
                problems.append(_malformed(file, begun, what, shown))
    except csv.Error as error:
        raise DataError(f"{file}: line {line}: {error}", advice="is a quotation mark missing?") from error
    if not names:
        raise DataError(f"{file}: is empty", advice="give a file with a header and rows")
    return Table(file=file, names=names, rows=rows, lines=lines), problems


def _malformed(file: Path, line: int, what: str, value: str) -> Problem:
    return Problem(
        kind="row-malformed", file=file.name, at=f"line {line}", what=what, value=value, action="left out"
    )


def _checked(file: Path, names: Sequence[str]) -> tuple[str, ...]:
    for place, name in enumerate(names):
        if not name:
            raise DataError(
                f"{file}: column {place + 1} has no name in the header",
                advice="name it, or take it out (pandas writes such a column unless index=False)",
            )
        if name in names[:place]:
            raise DataError(
                f"{file}: columns {names.index(name) + 1} and {place + 1} are both called {name!r}",
                advice="give each column a name of its own",
            )
    if _are_data(names):
        raise DataError(
            f"{file}: its first line is no header: {', '.join(names)[:80]}",
            advice="put a line with the names of the columns first",
        )
    return tuple(names)


def _are_data(names: Sequence[str]) -> bool:
    """Whether a name is a number that is not whole, or half of them are numbers, but not such that rise."""
    numbers = [number for name in names if (number := _number(name)) is not None]
    if not all(number.is_integer() and number >= 0 for number in numbers):
        return True
    return len(numbers) >= len(names) / 2 and not _rise(numbers)


def _rise(numbers: Sequence[float]) -> bool:
    """As the names of exported frames do, and years; one number alone only if such names begin with it."""
    if len(numbers) == 1:
        return numbers[0] in {0, 1}
    return all(before < after for before, after in pairwise(numbers))


def _number(word: str) -> float | None:
    try:
        return float(word)
    except ValueError:
        return None
