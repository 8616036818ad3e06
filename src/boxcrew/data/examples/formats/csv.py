"""CSV tables: columns of numbers and categories, one of which is the class."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Self

import numpy as np

from boxcrew.core.errors import DataError
from boxcrew.core.registry import suggest
from boxcrew.core.types import Bools, Ints
from boxcrew.core.units import counted
from boxcrew.data.checks.problem import Problem, ProblemKind
from boxcrew.data.detection.source import SPLITS
from boxcrew.data.examples.columns import (
    Column,
    LabelParser,
    are_few,
    column_doubts,
    encode_columns,
    is_row_index,
    learn_column,
    missing_mask,
    num_features,
    require_columns,
    value_problems,
)
from boxcrew.data.examples.example_set import (
    EXAMPLE_FORMATS,
    ExampleFormat,
    ExampleOptions,
    ExampleSet,
    InMemory,
)
from boxcrew.data.examples.labeled import hold_out, resolve_splits, unusable_split
from boxcrew.data.examples.table import Table, number_of, problem_at, read_table
from boxcrew.data.folders import names_in, split_of_folder, stem_of, suffix_of

_MOST_CLASSES = 100  # up to so many different labels are always classes, unless they are measurements
_MEASURED = 1 / 3  # of the rows: if more than this share of fractional labels differ, they are measurements
_CHOOSE = "choose the column with the classes: task.label=…"


@EXAMPLE_FORMATS.register("csv")
class CsvFormat(ExampleFormat):
    """One file with a header, or train.csv with val.csv (or valid.csv and the like) and test.csv. Validation
    and test files that cannot be used are left out. Columns are learned from the training rows alone.
    """

    name = "csv"
    expects = "a .csv file with a header, or train.csv"

    @classmethod
    def detect(cls, path: Path) -> bool:
        if path.is_file():
            return suffix_of(path.name) == ".csv"
        return any(file.is_file() for files in _files(path).values() for file in files)

    @classmethod
    def open(cls, path: Path, options: ExampleOptions) -> ExampleSet:
        known = options.encoding if options.encoding and "columns" in options.encoding else None
        label, eval_only = options.label or (known["label"] if known else None), options.eval_only
        tables, label, problems = _read(path, label, eval_only=eval_only)
        main = next(iter(tables))  # "train", unless the set is only evaluated
        parser = _label_parser(tables[main], label, known)
        tables = _without_mistakes(tables, label, parser, problems)
        names, labeled = _classes(tables, label, parser)
        indices = _row_index_columns(tables[main], label, known)
        keys = partial(_contents, row_indices=indices)
        labeled = hold_out(path, labeled, keys, problems, seed=options.seed)
        classes, labeled, absent = resolve_splits(path, names, labeled, problems, eval_only=eval_only)
        columns = known["columns"] if known else _learn_columns(labeled[main], label, indices, problems)
        require_columns(labeled[main], columns)
        splits = {}
        for split, table in labeled.items():
            problems += value_problems(table, columns)
            words = {column["name"]: table.column(column["name"]) for column in columns}
            lines = [f"{table.file.name}:{line}" for line in table.lines]
            splits[split] = InMemory(encode_columns(columns, words, len(table)), table.labels, lines)
        encoding = {"columns": list(columns), "label": label, "reading": parser.to_json()}
        shape, reported = (num_features(columns),), (*problems, *absent)
        return ExampleSet(
            path, cls.name, "numbers", classes, shape, splits, problems=reported, encoding=encoding
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class _LabeledTable(Table):
    labels: Ints  # (N,) of the rows

    def select(self, mask: Bools) -> Self:
        return replace(super().select(mask), labels=self.labels[mask])

    def with_labels(self, labels: Ints) -> Self:
        return replace(self, labels=labels)


def _contents(table: Table, row_indices: Collection[str]) -> list[str]:
    """Return the keys by which rows are held out. Rows that differ only in row indices share a key, so that a
    copy of a training row is never evaluated on.
    """
    indices = [index for index, name in enumerate(table.names) if name not in row_indices]
    return ["\0".join([row[index] for index in indices]) for row in table.rows]


def _row_index_columns(train: Table, label: str, known: Mapping[str, Any] | None) -> list[str]:
    """Return the columns that only count the rows, which gives the classes away if rows are sorted. Columns
    that a network was trained on are kept, and so are all if there is nothing else to learn from.
    """
    learned = {column["name"] for column in known["columns"]} if known else set()
    names = [name for name in train.names if name != label and name not in learned]
    row_indices = [name for name in names if is_row_index(train.column(name))]
    others = (train.column(name) for name in train.names if name not in {label, *row_indices})
    return row_indices if any(len({*words}) > 1 for words in others) else []


def _read(path: Path, label: str | None, *, eval_only: bool) -> tuple[dict[str, Table], str, list[Problem]]:
    """Return the tables by split, without unlabeled rows, the name of the label column, and the problems.
    The training table comes first; with `eval_only` it may be absent.
    """
    by_split = {"train": [path]} if path.is_file() else _files(path)
    for split, of_split in by_split.items():
        if len(of_split) > 1:
            names = " and ".join(file.name for file in of_split)
            raise DataError(f"{path}: {names} are both files of split {split}", advice="remove one of them")
    files = {split: file for split, (file,) in by_split.items()}
    first = next(iter(files), None)
    if first is None or (first != "train" and not eval_only):
        raise DataError(f"{path}: has no CSV file to train on", advice=f"looked for {CsvFormat.expects}")
    main, problems = read_table(files.pop(first))
    label = main.names[-1] if label is None else label
    if label not in main.names:
        raise DataError(f"{main.file}: has no column {label!r}", advice=suggest(label, main.names))
    tables = {first: _labeled_rows(main, label, problems)}
    _require_rows(tables[first], problems)
    for split, file in files.items():
        table = _read_split(split, file, main, label, problems)
        if isinstance(table, Problem):
            problems.append(table)
        else:
            tables[split] = table
    return tables, label, problems


def _files(folder: Path) -> dict[str, list[Path]]:
    """Return the CSV files of a folder that are named after a split, by split."""
    files: dict[str, list[Path]] = defaultdict(list)
    for name in names_in(folder):
        if suffix_of(name) == ".csv" and (split := split_of_folder(stem_of(name))):
            files[split].append(folder / name)
    return {split: files[split] for split in SPLITS if split in files}


def _read_split(split: str, file: Path, train: Table, label: str, problems: list[Problem]) -> Table | Problem:
    """Read the file of another split than training. Return the problem if it cannot be used at all."""
    unusable = partial(unusable_split, split, file)
    try:
        table, own_problems = read_table(file)
    except DataError as error:
        return unusable(error.message, "text-unreadable")
    if label not in table.names:
        return unusable(f"has no column {label!r}, the label", "label-missing", count=max(1, len(table)))
    if absent := [name for name in train.names if name not in table.names]:
        but = f"but {train.file.name} has; {suggest(absent[0], table.names)}"
        return unusable(f"has no column {absent[0]!r}, {but}", "value-missing", count=max(1, len(table)))
    table = _labeled_rows(table, label, own_problems)
    if len(table):
        problems += own_problems
        return table
    if not own_problems:
        return unusable("has no rows", "text-unreadable")
    first, count = own_problems[0], sum(problem.count for problem in own_problems)
    return unusable(f"has no usable row; {first.at}: {first.message}", first.kind, count=count)


def _require_rows(train: Table, problems: Sequence[Problem]) -> None:
    if not len(train):
        first = f"the first problem: {problems[0]}" if problems else "give rows below the header"
        raise DataError(f"{train.file}: has no rows to train on", advice=first)


def _labeled_rows(table: Table, label: str, problems: list[Problem]) -> Table:
    missing = missing_mask(table.column(label))
    if missing.any():
        message = f"no {label!r} in {counted(int(missing.sum()), 'row')}"
        problems.append(problem_at(table, missing, "label-missing", message))
    return table.select(~missing)


def _label_parser(train: Table, label: str, known: Mapping[str, Any] | None) -> LabelParser:
    """Return the parser a network was trained with, or learn one from the training rows."""
    if known and "reading" in known:
        return LabelParser.from_json(known["reading"])
    if not known:
        _refuse_measurements(train, label)
    return LabelParser.learn(train.column(label))


def _refuse_measurements(train: Table, label: str) -> None:
    """Raise `DataError` if the labels are measurements, even with a few words among them."""
    values = [number_of(word) for word in train.column(label)]
    numbers = [value for value in values if value is not None]
    fractional = [row for row, value in enumerate(values) if value is not None and not value.is_integer()]
    if not fractional or not are_few(len(values) - len(numbers), len(values)):
        return
    num_different, first = len({*numbers}), fractional[0]
    if num_different > min(_MOST_CLASSES, len(numbers) * _MEASURED):
        labels = f"labels that are not integers, such as {values[first]:g} (line {train.lines[first]})"
        counts = f"{num_different} different ones in {len(numbers)} rows"
        message = f"column {label!r} has {labels}, and {counts}; regression is not supported"
        raise DataError(f"{train.file}: {message}", advice=f"{_CHOOSE}, or turn ranges into classes")


def _without_mistakes(
    tables: Mapping[str, Table], label: str, parser: LabelParser, problems: list[Problem]
) -> dict[str, Table]:
    """Leave out rows whose label is no class, and report each such label once for a file."""
    kept, mistaken = dict[str, Table](), list[Problem]()
    for split, table in tables.items():
        mistakes: dict[str, list[int]] = defaultdict(list)
        for row, word in enumerate(table.column(label)):
            if parser.is_mistake(word):
                mistakes[word].append(row)
        for word, rows in mistakes.items():
            message = f"{label!r} is {word!r} in {counted(len(rows), 'row')}; classes are {parser.label_type}"
            mistaken.append(problem_at(table, _mask(table, rows), "unknown-class", message, value=word))
        kept[split] = table.select(~_mask(table, [row for rows in mistakes.values() for row in rows]))
    _require_rows(next(iter(kept.values())), mistaken)
    problems += mistaken
    return {split: table for split, table in kept.items() if len(table)}


def _mask(table: Table, rows: Sequence[int]) -> Bools:
    mask = np.zeros(len(table), dtype=np.bool_)
    mask[rows] = True
    return mask


def _classes(
    tables: Mapping[str, Table], label: str, parser: LabelParser
) -> tuple[list[str], dict[str, _LabeledTable]]:
    """Return the class names, sorted, and the labeled tables. Raises `DataError` if names hardly repeat."""
    names = {split: [*map(parser.class_name, table.column(label))] for split, table in tables.items()}
    main = next(iter(tables))
    num_classes, num_rows = len(set(names[main])), len(names[main])
    if num_classes > max(_MOST_CLASSES, num_rows / 2):
        values = f"{num_classes} different values in {num_rows} rows: too many for classes"
        raise DataError(f"{tables[main].file}: column {label!r} has {values}", advice=_CHOOSE)
    classes = sorted({name for of_split in names.values() for name in of_split}, key=parser.sort_key)
    numbers = {name: number for number, name in enumerate(classes)}
    labels = {split: np.array([numbers[name] for name in names[split]], dtype=np.int64) for split in tables}
    return classes, {split: _LabeledTable(**vars(tables[split]), labels=labels[split]) for split in tables}


def _learn_columns(
    train: Table, label: str, row_indices: Collection[str], problems: list[Problem]
) -> list[Column]:
    """Learn the encoding of every column but the label. Row indices and constant columns are left out; they
    and doubtful columns are added to `problems`.
    """
    columns = []
    for name in (name for name in train.names if name != label):
        words = train.column(name)
        column = None if name in row_indices else learn_column(name, words)
        if column is not None:
            columns.append(column)
            problems += column_doubts(train, column)
            continue
        constant = f"is the same in all training rows: {words[0] or 'empty'}"
        message = f"column {name!r} {'only counts the rows' if name in row_indices else constant}"
        kind: ProblemKind = "column-numbering" if name in row_indices else "column-constant"
        problems.append(Problem(kind, train.file.name, message, "left out", value=name))
    if not columns:
        message = f"{train.file}: has no column besides {label!r} to learn from"
        raise DataError(message, advice="give columns that differ between rows")
    return columns
