"""CSV: rows of numbers and categories, one column of which is the class."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from boxcrew.core.errors import DataError
from boxcrew.core.registry import suggest
from boxcrew.core.types import Bools, Floats, Ints
from boxcrew.core.units import counted
from boxcrew.data.checks.problem import Kind, Problem
from boxcrew.data.detection.source import SPLITS
from boxcrew.data.examples.columns import (
    Column,
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
from boxcrew.data.examples.label_parser import LabelParser, are_few, number_of
from boxcrew.data.examples.labelled import hold_out_mask, made_split_problem, resolve_classes, unusable_split
from boxcrew.data.examples.table import Table, problem_at, read_table
from boxcrew.data.folders import names_in, split_of_folder, stem_of, suffix_of

_SURELY_CLASSES = 100  # different labels: so many may be classes, if they are no measurements
_MEASURED = 1 / 3  # of the rows: labels with fractions that differ in more of them are measurements
_CHOOSE = "choose the column of the classes: task.label=…"


@EXAMPLE_FORMATS.register("csv")
class CsvFormat(ExampleFormat):
    """One file with a header, or train.csv with val.csv (or valid.csv and the like) and test.csv, which are
    left out where they cannot be used. What is known about columns is learnt from the training rows alone.
    """

    name = "csv"

    @classmethod
    def detect(cls, path: Path) -> bool:
        if path.is_file():
            return suffix_of(path.name) == ".csv"
        return any(file.is_file() for files in _files(path).values() for file in files)

    @classmethod
    def looked_for(cls) -> str:
        return "a .csv file with a header, or train.csv"

    @classmethod
    def open(cls, path: Path, options: ExampleOptions) -> ExampleSet:
        before = options.encoding if options.encoding and "columns" in options.encoding else None
        named = before["label"] if before else None
        tables, label, problems = _read(path, options.label or named, eval_only=options.eval_only)
        main = next(iter(tables))  # "train", unless the set is only judged
        reading = _reading(tables[main], label, before)
        tables, mistaken = _without_mistakes(tables, label, reading)
        problems += mistaken
        names, labels = _classes(tables, label, reading)
        numbering = _numbering(tables[main], label, before)
        if "val" not in tables and main == "train":
            contents = _contents(tables["train"], numbering)
            chosen = hold_out_mask(contents, labels["train"], seed=options.seed)
            tables, labels = _divided(tables, labels, chosen)
            problems += made_split_problem(path, chosen, seed=options.seed)
        settled = resolve_classes(path, names, labels, problems, eval_only=options.eval_only)
        if before:
            columns = before["columns"]
            require_columns(tables[main], columns)
        else:
            columns = _learnt_columns(tables[main], label, numbering, problems)
        splits = {}
        for split in (split for split in SPLITS if split in tables):
            known = settled.numbers[labels[split]] >= 0
            table = tables[split].select(known)
            if len(table):
                problems += value_problems(table, columns)
                splits[split] = InMemory(
                    _inputs(table, columns), settled.numbers[labels[split][known]], _keys(table)
                )
        return ExampleSet(
            root=path,
            format=cls.name,
            kind="numbers",
            classes=settled.classes,
            shape=(num_features(columns),),
            splits=splits,
            problems=(*problems, *settled.problems),
            encoding={"columns": list(columns), "label": label, "reading": reading.to_json()},
        )


def _divided(
    tables: dict[str, Table], labels: dict[str, Ints], chosen: Bools
) -> tuple[dict[str, Table], dict[str, Ints]]:
    """With a validation split of the chosen training rows, if any are."""
    if not chosen.any():
        return tables, labels
    masks = {"train": ~chosen, "val": chosen}
    return (
        tables | {split: tables["train"].select(mask) for split, mask in masks.items()},
        labels | {split: labels["train"][mask] for split, mask in masks.items()},
    )


def _inputs(table: Table, columns: Sequence[Column]) -> Floats:
    words = {column["name"]: table.column(column["name"]) for column in columns}
    return encode_columns(columns, words, len(table))


def _keys(table: Table) -> list[str]:
    return [f"{table.file.name}:{line}" for line in table.lines]


def _contents(table: Table, numbering: Collection[str]) -> list[str]:
    """What rows are held out by. Equal ones, whatever their numbers, stay together: what is measured must not
    have been trained on, in a copy of the file either.
    """
    places = [place for place, name in enumerate(table.names) if name not in numbering]
    return ["\0".join([row[place] for place in places]) for row in table.rows]


def _numbering(train: Table, label: str, before: Mapping[str, Any] | None) -> list[str]:
    """Columns that number the rows: where rows are sorted, that tells their classes. None if there is nothing
    else to learn from, or they were learnt from before.
    """
    known = {column["name"] for column in before["columns"]} if before else set()
    names = [name for name in train.names if name != label and name not in known]
    found = [name for name in names if is_row_index(train.column(name))]
    others = (train.column(name) for name in train.names if name not in {label, *found})
    return found if any(len({*words}) > 1 for words in others) else []


def _read(path: Path, options: str | None, *, eval_only: bool) -> tuple[dict[str, Table], str, list[Problem]]:
    """The tables by split, that to train on first, without rows that have no label; and the name of the
    label's column. Of a set that is only `eval_only` any may be the first.
    """
    files = {"train": path} if path.is_file() else _one_each(path, _files(path))
    first = next(iter(files), None)
    if first is None or (first != "train" and not eval_only):
        raise DataError(f"{path}: has no CSV file to train on", advice=f"looked for {CsvFormat.looked_for()}")
    main, problems = read_table(files.pop(first))
    label = _label(main, options)
    main, unlabelled = _with_label(main, label)
    problems += unlabelled
    _require_rows(main, problems)
    tables = {first: main}
    for split, file in files.items():
        table, found = _read_beside(split, file, main, label)
        problems += found
        if table:
            tables[split] = table
    return tables, label, problems


def _files(folder: Path) -> dict[str, list[Path]]:
    """By split, those that are called after one."""
    files: dict[str, list[Path]] = defaultdict(list)
    for name in names_in(folder):
        if suffix_of(name) == ".csv" and (split := split_of_folder(stem_of(name))):
            files[split].append(folder / name)
    return {split: files[split] for split in SPLITS if split in files}


def _one_each(folder: Path, files: Mapping[str, Sequence[Path]]) -> dict[str, Path]:
    for split, found in files.items():
        if len(found) > 1:
            names = " and ".join(file.name for file in found)
            raise DataError(f"{folder}: {names} are files of one split, {split}", advice="leave one of them")
    return {split: file for split, (file,) in files.items()}


def _read_beside(split: str, file: Path, train: Table, label: str) -> tuple[Table | None, list[Problem]]:
    """Another split than that to train on; None where it cannot be used."""
    try:
        table, problems = read_table(file)
    except DataError as error:
        return None, [unusable_split(split, file, error.message, "text-unreadable")]
    for name in (label, *train.names):
        if name not in table.names:
            return None, [_without_column(split, table, name, train, label)]
    table, unlabelled = _with_label(table, label)
    problems += unlabelled
    return (table, problems) if len(table) else (None, [_without_rows(split, file, problems)])


def _without_rows(split: str, file: Path, problems: Sequence[Problem]) -> Problem:
    if not problems:
        return unusable_split(split, file, "has no rows", "text-unreadable")
    first, count = problems[0], sum(problem.count for problem in problems)
    what = f"has no row that can be used; {first.at}: {first.what}"
    return unusable_split(split, file, what, first.kind, count=count)


def _without_column(split: str, table: Table, name: str, train: Table, label: str) -> Problem:
    count = max(1, len(table))
    if name == label:
        what = f"has no column {label!r}, the label"
        return unusable_split(split, table.file, what, "label-missing", count=count)
    what = f"has no column {name!r}, but {train.file.name} has; {suggest(name, table.names)}"
    return unusable_split(split, table.file, what, "value-missing", count=count)


def _require_rows(train: Table, problems: Sequence[Problem]) -> None:
    if not len(train):
        first = f"the first problem: {problems[0]}" if problems else "give rows below the header"
        raise DataError(f"{train.file}: has no rows to train on", advice=first)


def _label(table: Table, options: str | None) -> str:
    if options is None:
        return table.names[-1]
    if options not in table.names:
        raise DataError(f"{table.file}: has no column {options!r}", advice=suggest(options, table.names))
    return options


def _with_label(table: Table, label: str) -> tuple[Table, list[Problem]]:
    missing = missing_mask(table.column(label))
    if not missing.any():
        return table, []
    what = f"no {label!r} in {counted(int(missing.sum()), 'row')}"
    return table.select(~missing), [problem_at(table, missing, "label-missing", what)]


def _reading(train: Table, label: str, before: Mapping[str, Any] | None) -> LabelParser:
    """As before, however few rows there are of each class now; else by the training rows."""
    if before and "reading" in before:
        return LabelParser.of(before["reading"])
    if not before:
        _refuse_measurements(train, label)
    return LabelParser.learn(train.column(label))


def _refuse_measurements(train: Table, label: str) -> None:
    """A few words among them do not make them names."""
    values = [number_of(word) for word in train.column(label)]
    numbers = [value for value in values if value is not None]
    fractional = [place for place, value in enumerate(values) if value is not None and not value.is_integer()]
    if not fractional or not are_few(len(values) - len(numbers), len(values)):
        return
    num_different = len({*numbers})
    if num_different > min(_SURELY_CLASSES, len(numbers) * _MEASURED):
        place = fractional[0]
        raise DataError(
            f"{train.file}: column {label!r} has labels that are not integers, such as {values[place]:g}"
            f" (line {train.lines[place]}), and {num_different} different ones in {len(numbers)} rows;"
            " regression is not done",
            advice=f"{_CHOOSE}, or make classes of ranges",
        )


def _without_mistakes(
    tables: Mapping[str, Table], label: str, reading: LabelParser
) -> tuple[dict[str, Table], list[Problem]]:
    """Without rows whose label is no class; each such label is told once for a file."""
    left: dict[str, Table] = {}
    problems: list[Problem] = []
    for split, table in tables.items():
        places: dict[str, list[int]] = defaultdict(list)
        for place, word in enumerate(table.column(label)):
            if reading.is_mistake(word):
                places[word].append(place)
        for word, rows in places.items():
            what = f"{label!r} is {word!r} in {counted(len(rows), 'row')}; classes are {reading.sort}"
            problems.append(problem_at(table, _mask(table, rows), "unknown-class", what, value=word))
        left[split] = table.select(~_mask(table, [row for rows in places.values() for row in rows]))
    _require_rows(next(iter(left.values())), problems)
    return {split: table for split, table in left.items() if len(table)}, problems


def _mask(table: Table, rows: Sequence[int]) -> Bools:
    mask = np.zeros(len(table), dtype=np.bool_)
    mask[rows] = True
    return mask


def _classes(
    tables: Mapping[str, Table], label: str, reading: LabelParser
) -> tuple[list[str], dict[str, Ints]]:
    """Their names, sorted; and the labels of each split."""
    named = {split: [*map(reading.name, table.column(label))] for split, table in tables.items()}
    main = next(iter(tables))
    _require_classes(tables[main], label, named[main])
    order = sorted({name for part in named.values() for name in part}, key=reading.place)
    places = {name: place for place, name in enumerate(order)}
    return order, {
        split: np.array([places[name] for name in part], dtype=np.int64) for split, part in named.items()
    }


def _require_classes(train: Table, label: str, names: Sequence[str]) -> None:
    """Refuses a column of names that hardly ever come twice."""
    count = len(set(names))
    if count > max(_SURELY_CLASSES, len(names) / 2):
        what = f"column {label!r} has {count} different values in {len(names)} rows: those are no classes"
        raise DataError(f"{train.file}: {what}", advice=_CHOOSE)


def _learnt_columns(
    train: Table, label: str, numbering: Collection[str], problems: list[Problem]
) -> list[Column]:
    """Those that are not the same everywhere and do not number the rows; the others are added to `problems`,
    and what is doubtful.
    """
    columns = []
    for name in (name for name in train.names if name != label):
        words = train.column(name)
        column = None if name in numbering else learn_column(name, words)
        if column is not None:
            columns.append(column)
            problems += column_doubts(train, column)
            continue
        problems.append(_idle(train, name, numbers=name in numbering))
    if not columns:
        raise DataError(
            f"{train.file}: has no column beside {label!r} to learn from",
            advice="give columns that differ between rows",
        )
    return columns


def _idle(train: Table, name: str, *, numbers: bool) -> Problem:
    """A column that tells nothing: it is the same in all rows, or numbers them."""
    kind: Kind = "column-numbering" if numbers else "column-constant"
    same = f"is the same in all training rows: {train.column(name)[0] or 'empty'}"
    what = f"column {name!r} {'numbers the rows, which tells nothing about others' if numbers else same}"
    return Problem(kind=kind, file=train.file.name, what=what, value=name, action="left out")
