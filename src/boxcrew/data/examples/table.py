"""CSV files with a header, read as words."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from pathlib import Path

import numpy as np

from boxcrew.core.errors import DataError
from boxcrew.core.types import Bools
from boxcrew.data.checks.problem import Action, Kind, Problem
from boxcrew.data.examples.label_parser import number_of
from boxcrew.data.examples.plain_text import read_utf8

_SEPARATORS = ",;\t"
_LONGEST_HEADER = 100_000  # characters: so many tell the separator
_QUOTED = re.compile(r'"[^"]*"')
_DECIMAL_COMMA = re.compile(r"([+-]?\d*),(\d+(?:[eE][+-]?\d+)?)")
_FIRST_ROWS = 1000  # so many tell whether a column has numbers


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
    """The separator is a comma, semicolon or tabulator, whichever the header has most of; where it is no
    comma, numbers may have one: 3,94 is read as 3.94. Empty lines say nothing; rows of another length than
    the header are left out.
    """
    text = read_utf8(file)
    separator = _separator(text)
    rows, lines, problems = [], [], []
    names: list[str] = []
    for line, row in _rows(file, text, separator):
        if not names:
            names = row
        elif len(row) == len(names):
            rows.append(row)
            lines.append(line)
        else:
            what = f"has {len(row)} values, not the {len(names)} of the header"
            problems.append(_malformed(file, line, what, separator.join(row)[:80]))
    if not names:
        raise DataError(f"{file}: is empty", advice="give a file with a header and rows")
    _check_names(file, names, rows[:_FIRST_ROWS])
    return Table(file=file, names=tuple(names), rows=rows, lines=lines), problems


def _separator(text: str) -> str:
    """Those inside of quotation marks do not count."""
    header = _QUOTED.sub("", text.lstrip()[:_LONGEST_HEADER]).split("\n", 1)[0]
    return max(_SEPARATORS, key=header.count)


def _rows(file: Path, text: str, separator: str) -> Iterator[tuple[int, list[str]]]:
    """The line where each row begins, and its words, stripped; without rows that have none."""
    text = text if text.endswith("\n") else f"{text}\n"
    num_lines = text.count("\n")
    # One empty line more: only a quotation that is not closed goes on into it.
    source = chain(io.StringIO(text, newline=""), [""])
    reader = csv.reader(source, delimiter=separator, skipinitialspace=True)
    line = 1
    try:
        for words in reader:
            if reader.line_num > num_lines and words:
                raise _unclosed(file, num_lines + 1 - words[-1].count("\n"))
            row, begun, line = [word.strip() for word in words], line, reader.line_num + 1
            if any(row):
                yield begun, row if separator == "," else [*map(_with_point, row)]
    except csv.Error as error:
        raise DataError(f"{file}: line {line}: {error}", advice="is a quotation mark missing?") from error


def _unclosed(file: Path, line: int) -> DataError:
    what = f"{file}: line {line}: a quotation begins that goes on to the end of the file"
    return DataError(what, advice="close the quotation mark")


def _with_point(word: str) -> str:
    """3.94 for 3,94; what is no such number stays as it is."""
    number = _DECIMAL_COMMA.fullmatch(word)
    return f"{number[1]}.{number[2]}" if number else word


def _malformed(file: Path, line: int, what: str, value: str) -> Problem:
    return Problem(
        kind="row-malformed", file=file.name, at=f"line {line}", what=what, value=value, action="left out"
    )


def _check_names(file: Path, names: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    if _are_data(names, rows):
        raise DataError(
            f"{file}: its first line is no header: {', '.join(names)[:80]}",
            advice="put a line with the names of the columns first",
        )
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


def _are_data(names: Sequence[str], rows: Sequence[Sequence[str]]) -> bool:
    """Whether a name is a number that is not whole; or, but for names that rise, half of them are numbers, or
    those of all columns of numbers are.
    """
    places = [place for place, name in enumerate(names) if number_of(name) is not None]
    numbers = [float(names[place]) for place in places]
    if not all(number.is_integer() and number >= 0 for number in numbers):
        return True
    if not numbers or _rise(numbers):
        return False
    numeric = _numeric(rows, len(names))
    return len(numbers) >= len(names) / 2 or (bool(numeric) and numeric <= {*places})


def _numeric(rows: Sequence[Sequence[str]], num_columns: int) -> set[int]:
    """The places of columns that have numbers in most rows."""
    counts = [sum(number_of(row[place]) is not None for row in rows) for place in range(num_columns)]
    return {place for place, count in enumerate(counts) if count > len(rows) / 2}


def _rise(numbers: Sequence[float]) -> bool:
    """As the names of exported frames do, and years; one number alone only if such names begin with it."""
    if len(numbers) == 1:
        return numbers[0] in {0, 1}
    return all(before < after for before, after in pairwise(numbers))
