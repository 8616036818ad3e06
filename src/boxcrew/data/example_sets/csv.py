"""CSV: rows of numbers and categories, one column of which is the class."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from boxcrew.core.errors import DataError
from boxcrew.core.registry import suggest
from boxcrew.core.types import Bools, Floats, Ints
from boxcrew.core.units import counted
from boxcrew.data.columns import (
    Column,
    encode_columns,
    learn_column,
    missing_in,
    num_features,
    require_columns,
    unknown_in,
    unusable_in,
)
from boxcrew.data.examples import EXAMPLE_FORMATS, ExampleFormat, ExampleSet, InMemory, Wanted
from boxcrew.data.labelled import held_out, made_split, settle_classes
from boxcrew.data.layout import suffix_of
from boxcrew.data.problem import Action, Kind, Problem
from boxcrew.data.source import SPLITS
from boxcrew.data.table import Table, read_table

_SURELY_CLASSES = 100  # different labels: so many may be classes, if they are no measurements
_MEASURED = 1 / 3  # of the rows: labels with fractions that differ in more of them are measurements
_CHOOSE = "choose the column of the classes: task.label=…"


@EXAMPLE_FORMATS.register("csv")
class CsvFormat(ExampleFormat):
    """One file with a header, or train.csv with val.csv and test.csv. What is known about columns is learnt
    from the training rows alone.
    """

    name = "csv"

    @classmethod
    def detect(cls, path: Path) -> bool:
        return suffix_of(path.name) == ".csv" if path.is_file() else (path / "train.csv").is_file()

    @classmethod
    def looked_for(cls) -> str:
        return "a .csv file with a header, or train.csv"

    @classmethod
    def open(cls, path: Path, wanted: Wanted) -> ExampleSet:
        before = wanted.meaning if wanted.meaning and "columns" in wanted.meaning else None
        named = before["label"] if before else None
        tables, label, problems = _read(path, wanted.label or named)
        if not before:  # what was learnt from were classes, however few rows there are of them now
            _refuse_measurements(tables["train"], label)
        tables, mistyped = _without_mistyped(tables, label)
        problems += mistyped
        names, labels = _classes(tables, label)
        if "val" not in tables:
            chosen = held_out(_contents(tables["train"]), labels["train"], seed=wanted.seed)
            tables, labels = _divided(tables, labels, chosen)
            problems += made_split(path, chosen, seed=wanted.seed)
        settled = settle_classes(path, names, labels, problems)
        if before:
            columns = before["columns"]
            require_columns(tables["train"], columns)
        else:
            columns = _learnt_columns(tables["train"], label, problems)
        splits = {}
        for split in (split for split in SPLITS if split in tables):
            known = settled.numbers[labels[split]] >= 0
            table = tables[split].select(known)
            if len(table):
                problems += faults(table, columns)
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
            meaning={"columns": list(columns), "label": label},
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


def _contents(table: Table) -> list[str]:
    """What rows are held out by. Equal ones stay together: what is measured must not have been trained on, in
    a copy of the file either.
    """
    return ["\0".join(row) for row in table.rows]


def _read(path: Path, wanted: str | None) -> tuple[dict[str, Table], str, list[Problem]]:
    """The tables by split, without rows that have no label; and the name of the label's column."""
    files = {"train": path} if path.is_file() else {split: path / f"{split}.csv" for split in SPLITS}
    if not files["train"].is_file():
        raise DataError(f"{path}: no such CSV file", advice=f"looked for {CsvFormat.looked_for()}")
    tables: dict[str, Table] = {}
    problems: list[Problem] = []
    label = ""
    for split, file in files.items():
        if not file.is_file():
            continue
        table, malformed = read_table(file)
        label = label or _label(table, wanted)
        problems += malformed
        if label not in table.names:
            what = f"has no column {label!r}, the label"
            problems.append(
                Problem(
                    kind="label-missing",
                    file=file.name,
                    what=what,
                    action="left out",
                    count=max(1, len(table)),
                )
            )
            continue
        _require_same(tables.get("train", table), table)
        tables[split], unlabelled = _with_label(table, label)
        problems += unlabelled
    if not len(tables["train"]):
        first = f"the first problem: {problems[0]}" if problems else "give rows below the header"
        raise DataError(f"{files['train']}: has no rows to train on", advice=first)
    return {split: table for split, table in tables.items() if len(table)}, label, problems


def _label(table: Table, wanted: str | None) -> str:
    if wanted is None:
        return table.names[-1]
    if wanted not in table.names:
        raise DataError(f"{table.file}: has no column {wanted!r}", advice=suggest(wanted, table.names))
    return wanted


def _require_same(train: Table, table: Table) -> None:
    for name in train.names:
        if name not in table.names:
            what = f"{table.file}: has no column {name!r}, but {train.file.name} has"
            raise DataError(what, advice=suggest(name, table.names))


def _with_label(table: Table, label: str) -> tuple[Table, list[Problem]]:
    missing = missing_in(table.column(label))
    if not missing.any():
        return table, []
    what = f"no {label!r} in {counted(int(missing.sum()), 'row')}"
    return table.select(~missing), [_problem_at(table, missing, "label-missing", what)]


def _problem_at(
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


def _refuse_measurements(train: Table, label: str) -> None:
    values = [_number(word) for word in train.column(label)]
    different, fractional = {*values}, _fractional(values)
    if None in different or not fractional.any():
        return
    if len(different) > min(_SURELY_CLASSES, len(values) * _MEASURED):
        place = int(np.argmax(fractional))
        raise DataError(
            f"{train.file}: column {label!r} has labels that are not integers, such as {values[place]:g}"
            f" (line {train.lines[place]}), and {len(different)} different ones in {len(values)} rows;"
            " regression is not done",
            advice=f"{_CHOOSE}, or make classes of ranges",
        )


def _without_mistyped(tables: dict[str, Table], label: str) -> tuple[dict[str, Table], list[Problem]]:
    """Without a row that alone has a fraction for a label, where all others have whole numbers."""
    values = {split: [_number(word) for word in table.column(label)] for split, table in tables.items()}
    where = {split: _fractional(part) for split, part in values.items()}
    is_alone = sum(int(mask.sum()) for mask in where.values()) == 1
    if not is_alone or any(None in part for part in values.values()):
        return tables, []
    (split,) = (split for split, mask in where.items() if mask.any())
    table, mask = tables[split], where[split]
    word = table.column(label)[int(np.argmax(mask))]
    what = f"{label!r} is {word} in this row alone, and a whole number in all others"
    problem = _problem_at(table, mask, "unknown-class", what, value=word)
    left = {**tables, split: table.select(~mask)}
    return {split: table for split, table in left.items() if len(table)}, [problem]


def _fractional(values: Sequence[float | None]) -> Bools:
    return np.array([value is not None and not value.is_integer() for value in values], dtype=np.bool_)


def _classes(tables: Mapping[str, Table], label: str) -> tuple[list[str], dict[str, Ints]]:
    """Their names, sorted, as numbers if they are all numbers; and the labels of each split."""
    words = {split: table.column(label) for split, table in tables.items()}
    numbers = {word: _number(word) for part in words.values() for word in part}
    values = list(numbers.values())
    named = {word: word for word in numbers}
    if all(value is not None and value.is_integer() for value in values):
        named = {word: f"{value:.0f}" for word, value in numbers.items()}  # 1.0 is 1
    _require_classes(tables["train"], label, [named[word] for word in words["train"]])
    order = sorted(set(named.values()), key=lambda name: (0.0 if None in values else float(name), name))
    places = {name: place for place, name in enumerate(order)}
    return order, {
        split: np.array([places[named[word]] for word in part], dtype=np.int64)
        for split, part in words.items()
    }


def _number(word: str) -> float | None:
    """None also for what is not finite."""
    try:
        number = float(word)
    except ValueError:
        return None
    return number if np.isfinite(number) else None


def _require_classes(train: Table, label: str, names: Sequence[str]) -> None:
    """Refuses a column of names that hardly ever come twice."""
    count = len(set(names))
    if count > max(_SURELY_CLASSES, len(names) / 2):
        what = f"column {label!r} has {count} different values in {len(names)} rows: those are no classes"
        raise DataError(f"{train.file}: {what}", advice=_CHOOSE)


def _learnt_columns(train: Table, label: str, problems: list[Problem]) -> list[Column]:
    """Those that are not the same everywhere; the others are added to `problems`."""
    columns = []
    for name in (name for name in train.names if name != label):
        words = train.column(name)
        column = learn_column(name, words)
        if column is not None:
            columns.append(column)
            continue
        what = f"column {name!r} is the same in all training rows: {words[0] or 'empty'}"
        problems.append(
            Problem(kind="column-constant", file=train.file.name, what=what, value=name, action="left out")
        )
    if not columns:
        raise DataError(
            f"{train.file}: has no column beside {label!r} to learn from",
            advice="give columns that differ between rows",
        )
    return columns


def faults(table: Table, columns: Sequence[Column]) -> Iterator[Problem]:
    """Values that are missing, cannot be used or were not in training, told once for each column."""
    for column in columns:
        words = table.column(column["name"])
        for where, told in ((unusable_in(column, words), _unusable), (unknown_in(column, words), _unknown)):
            if where.any():
                yield told(table, column, words, where)


def _unusable(table: Table, column: Column, words: Sequence[str], where: Bools) -> Problem:
    first = words[int(np.argmax(where))]
    what = (
        f"column {column['name']!r}: {where.sum()} of {len(words)} values are missing or no numbers"
        f" (the first: {first!r}); taken as {_stand_in(column)}"
    )
    return _problem_at(table, where, "value-missing", what, value=first, action="repaired")


def _stand_in(column: Column) -> str:
    """What a value that is not there is taken as."""
    if "categories" not in column:
        return f"the mean, {column['mean']:.4g}"
    return "a category of its own" if column["missing"] else "no category"


def _unknown(table: Table, column: Column, words: Sequence[str], where: Bools) -> Problem:
    first = words[int(np.argmax(where))]
    what = (
        f"column {column['name']!r}: {where.sum()} of {len(words)} values are not among those of training"
        f" (the first: {first!r})"
    )
    return _problem_at(table, where, "value-unknown", what, value=first, action="noted")
