"""Reads CSV files with a header as words, and reports where they are malformed."""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, compress, pairwise
from pathlib import Path
from typing import Self

import numpy as np

from boxcrew.core.errors import DataError
from boxcrew.core.types import Bools
from boxcrew.data.checks.problem import Action, Problem, ProblemKind
from boxcrew.data.folders import read_utf8

_SEPARATORS = ",;\t"
_NAMED_SEPARATOR = re.compile(r'"?sep=([,;\t])"?\n', re.IGNORECASE)
_LONGEST_HEADER = 100_000  # characters that are searched for the separator
_QUOTED = re.compile(r'"[^"]*"')  # separators within quotation marks do not count
_DECIMAL_COMMA = re.compile(r"([+-]?\d*),(\d+(?:[eE][+-]?\d+)?)")
_FIRST_ROWS = 1000  # rows that decide whether a column has numbers


def number_of(word: str) -> float | None:
    """Return the finite number that a word is, or None. 1_0, which Python reads as 10, is no number."""
    try:
        number = float(word)
    except ValueError:
        return None
    return number + 0.0 if math.isfinite(number) and "_" not in word else None  # -0 is 0


@dataclass(frozen=True, kw_only=True, eq=False)
class Table:
    """The rows of a file that have as many words as its header has names."""

    file: Path
    names: tuple[str, ...]
    rows: Sequence[Sequence[str]]  # words, stripped
    lines: Sequence[int]  # the line of the file, from 1, where each row begins

    def __len__(self) -> int:
        return len(self.rows)

    def column(self, name: str) -> list[str]:
        index = self.names.index(name)
        return [row[index] for row in self.rows]

    def named_rows(self) -> Iterator[tuple[int, dict[str, str]]]:
        """Yield the line where each row begins, and its words by column name."""
        for line, row in zip(self.lines, self.rows, strict=True):
            yield line, dict(zip(self.names, row, strict=True))

    def select(self, mask: Bools) -> Self:
        return replace(self, rows=[*compress(self.rows, mask)], lines=[*compress(self.lines, mask)])


def problem_at(
    table: Table,
    mask: Bools,
    kind: ProblemKind,
    message: str,
    *,
    value: str = "",
    action: Action = "left out",
) -> Problem:
    """Report a problem of the rows in `mask`, with the line of the first."""
    at = f"from line {table.lines[int(np.argmax(mask))]}"
    return Problem(kind, table.file.name, message, action, at=at, value=value, count=int(mask.sum()))


def read_table(file: Path) -> tuple[Table, list[Problem]]:
    """Read a CSV file, and report rows of another length than the header, which are left out. The separator
    is the comma, semicolon or tab that the header has most of, or that a first line such as Excel's sep=;
    names. Unless it is the comma, numbers may have decimal commas: 3,94 is read as 3.94. Empty lines, and an
    empty column after the last separator, are skipped.
    """
    text, separator = _separated(read_utf8(file))
    rows, lines, problems, names = [], [], list[Problem](), list[str]()
    for line, row in _rows(file, text, separator):
        if not names:
            names = row
        elif len(row) == len(names):
            rows.append(row)
            lines.append(line)
        else:
            message = f"has {len(row)} values, not the {len(names)} of the header"
            at, value = f"line {line}", separator.join(row)[:80]
            problems.append(Problem("row-malformed", file.name, message, "left out", at=at, value=value))
    if not names:
        raise DataError(f"{file}: is empty", advice="give a file with a header and rows")
    if len(names) > 1 and not names[-1] and not any(row[-1] for row in rows):
        names, rows = names[:-1], [row[:-1] for row in rows]
    _check_names(file, names, rows[:_FIRST_ROWS])
    return Table(file=file, names=tuple(names), rows=rows, lines=lines), problems


def _separated(text: str) -> tuple[str, str]:
    """Return the text, in which Excel's line about the separator is empty, and the separator."""
    if named := _NAMED_SEPARATOR.match(text):
        return text[named.end() - 1 :], named[1]
    header = _QUOTED.sub("", text.lstrip()[:_LONGEST_HEADER]).split("\n", 1)[0]
    return text, max(_SEPARATORS, key=header.count)


def _rows(file: Path, text: str, separator: str) -> Iterator[tuple[int, list[str]]]:
    """Yield the line where each row begins, and its words, stripped; empty rows are skipped."""
    text = text if text.endswith("\n") else f"{text}\n"
    num_lines = text.count("\n")
    # An extra empty line at the end, which only an unclosed quotation reaches.
    source = chain(io.StringIO(text, newline=""), [""])
    reader = csv.reader(source, delimiter=separator, skipinitialspace=True)
    line = 1
    try:
        for words in reader:
            if reader.line_num > num_lines and words:
                line = num_lines + 1 - words[-1].count("\n")
                message = f"{file}: line {line}: a quotation begins here and is never closed"
                raise DataError(message, advice="close the quotation mark")
            row, start, line = [word.strip() for word in words], line, reader.line_num + 1
            if any(row):
                yield start, row if separator == "," else [*map(_with_point, row)]
    except csv.Error as error:
        raise DataError(f"{file}: line {line}: {error}", advice="is a quotation mark missing?") from error


def _with_point(word: str) -> str:
    """Replace a decimal comma by a point; other words stay as they are."""
    number = _DECIMAL_COMMA.fullmatch(word)
    return f"{number[1]}.{number[2]}" if number else word


def _check_names(file: Path, names: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    if _are_data(names, rows):
        message = f"{file}: its first line is data, not a header: {', '.join(names)[:80]}"
        raise DataError(message, advice="put a line with the names of the columns first")
    for index, name in enumerate(names):
        if not name:
            advice = "name it, or remove it (pandas writes such a column unless index=False)"
            raise DataError(f"{file}: column {index + 1} has no name in the header", advice=advice)
        if name in names[:index]:
            message = f"{file}: columns {names.index(name) + 1} and {index + 1} are both called {name!r}"
            raise DataError(message, advice="give each column its own name")


def _are_data(names: Sequence[str], rows: Sequence[Sequence[str]]) -> bool:
    """Return whether the first line is a row of data. It is if one of its names is a fraction or negative. It
    also is if half of the names are numbers, or those of all numeric columns are, unless the numbers increase
    as column names do.
    """
    indices = [index for index, name in enumerate(names) if number_of(name) is not None]
    numbers = [float(names[index]) for index in indices]
    if not all(number.is_integer() and number >= 0 for number in numbers):
        return True
    # Numbers may be column names: years, or those of exported frames, from 0 or 1 on.
    may_be_names = all(before < after for before, after in pairwise(numbers))
    if not numbers or (may_be_names if len(numbers) > 1 else numbers[0] in {0, 1}):
        return False
    counts = [sum(number_of(row[index]) is not None for row in rows) for index in range(len(names))]
    numeric = {index for index, count in enumerate(counts) if count > len(rows) / 2}
    return len(numbers) >= len(names) / 2 or (bool(numeric) and numeric <= {*indices})
