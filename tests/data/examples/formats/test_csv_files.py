"""Which files and which columns of tables are taken."""

from __future__ import annotations

from pathlib import Path

import pytest

from boxcrew.core.errors import DataError
from boxcrew.data.examples.example_set import ExampleOptions, ExampleSet, open_examples
from boxcrew.data.examples.formats.csv import CsvFormat


def write(file: Path, *rows: str, header: str = "size,kind") -> Path:
    file.write_text("\n".join([header, *rows]) + "\n")
    return file


def plain_rows(count: int = 20) -> list[str]:
    return [f"{index * 7 % count},{'ab'[index % 2]}" for index in range(count)]


def columns(opened: ExampleSet) -> list[str]:
    return [column["name"] for column in opened.encoding["columns"]]


@pytest.mark.parametrize("name", ["val.csv", "valid.csv", "validation.csv", "Valid.CSV"])
def test_a_validation_file_by_any_of_its_names(tmp_path: Path, name: str) -> None:
    write(tmp_path / "train.csv", *plain_rows())
    write(tmp_path / name, "1,a", "2,b", "3,a")
    write(tmp_path / "submission.csv", "1,a")
    assert CsvFormat.detect(tmp_path)
    opened = open_examples(tmp_path, ExampleOptions())
    assert {split: len(part) for split, part in opened.splits.items()} == {"train": 20, "val": 3}
    assert opened.split("val").key(0) == f"{name}:2"


def test_files_of_training_and_testing(tmp_path: Path) -> None:
    write(tmp_path / "training.csv", *plain_rows())
    write(tmp_path / "testing.csv", "1,a")
    opened = open_examples(tmp_path, ExampleOptions())
    assert {split: len(part) for split, part in opened.splits.items()} == {"train": 16, "val": 4, "test": 1}


@pytest.mark.parametrize(("first", "second"), [("val.csv", "valid.csv"), ("train.csv", "training.csv")])
def test_two_files_for_one_split_are_refused(tmp_path: Path, first: str, second: str) -> None:
    for name in {"train.csv", first, second}:
        write(tmp_path / name, *plain_rows())
    assert CsvFormat.detect(tmp_path)
    with pytest.raises(DataError, match=f"{first} and {second} are both files of split") as raised:
        open_examples(tmp_path, ExampleOptions())
    assert raised.value.advice == "remove one of them"


def test_a_folder_without_a_file_to_train_on(tmp_path: Path) -> None:
    assert not CsvFormat.detect(tmp_path)
    write(tmp_path / "valid.csv", *plain_rows())
    (tmp_path / "train.csv").mkdir()
    assert CsvFormat.detect(tmp_path)
    with pytest.raises(DataError, match=r"train\.csv: cannot be read"):
        CsvFormat.open(tmp_path, ExampleOptions())
    (tmp_path / "train.csv").rmdir()
    with pytest.raises(DataError, match="has no CSV file to train on"):
        CsvFormat.open(tmp_path, ExampleOptions())


@pytest.mark.parametrize("first", [0, 1, 5000])
def test_a_column_that_numbers_the_rows_is_left_out(tmp_path: Path, first: int) -> None:
    rows = [f"{first + place},{row}" for place, row in enumerate(plain_rows(40))]
    rows[3], rows[30] = f"{first + 3},4", f"{first + 30},7,"  # two rows that are left out
    opened = open_examples(write(tmp_path / "a.csv", *rows, header="Unnamed: 0,size,kind"), ExampleOptions())
    assert columns(opened) == ["size"]
    (problem,) = [problem for problem in opened.problems if problem.value == "Unnamed: 0"]
    assert problem.action == "left out"
    assert problem.message == "column 'Unnamed: 0' only counts the rows"


def test_what_numbers_the_rows_is_learned_from_if_there_is_nothing_else(tmp_path: Path) -> None:
    rows = [f"{place},same,{'ab'[place // 10]}" for place in range(20)]
    opened = open_examples(write(tmp_path / "a.csv", *rows, header="Id,colour,kind"), ExampleOptions())
    assert columns(opened) == ["Id"]


def test_rows_that_only_their_numbers_tell_apart_are_in_one_split(tmp_path: Path) -> None:
    twice = [*plain_rows(30), *plain_rows(30)]
    rows = [f"{place},{row}" for place, row in enumerate(twice)]
    file = write(tmp_path / "a.csv", *rows, header="Id,size,kind")
    opened = open_examples(file, ExampleOptions())
    places = {
        split: {(int(part.key(index).split(":")[1]) - 2) % 30 for index in range(len(part))}
        for split, part in opened.splits.items()
    }
    assert not places["train"] & places["val"]
    again = open_examples(file, ExampleOptions(encoding=opened.encoding))
    assert [len(part) for part in again.splits.values()] == [len(part) for part in opened.splits.values()]
    assert columns(again) == ["size"]


def test_a_number_of_rows_that_was_learned_from_before_still_is(tmp_path: Path) -> None:
    rows = [f"{place},{row}" for place, row in enumerate(plain_rows(30))]
    file = write(tmp_path / "a.csv", *rows, header="Id,size,kind")
    learned = [{"name": name, "mean": 0.0, "deviation": 1.0} for name in ("Id", "size")]
    opened = open_examples(file, ExampleOptions(encoding={"columns": learned, "label": "kind"}))
    assert opened.shape == (2,)


def test_decimal_commas_and_doubtful_columns(tmp_path: Path) -> None:
    rows = [f"{place * 7 % 40},{place % 10};t{place};{'ab'[place % 2]}" for place in range(60)]
    opened = open_examples(write(tmp_path / "a.csv", *rows, header="size;text;kind"), ExampleOptions())
    assert "mean" in opened.encoding["columns"][0]
    (problem,) = [problem for problem in opened.problems if problem.kind == "column-doubtful"]
    assert "column 'text': 48 different words in 48 rows" in problem.message


def test_labels_with_underscores_are_names(tmp_path: Path) -> None:
    rows = [f"{place * 7 % 40},{('1_0', '10', '11')[place % 3]}" for place in range(60)]
    assert open_examples(write(tmp_path / "a.csv", *rows), ExampleOptions()).classes == ("10", "11", "1_0")
