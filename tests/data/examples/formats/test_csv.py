from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from boxcrew.core.errors import DataError
from boxcrew.data.checks.problem import Problem
from boxcrew.data.examples.columns import encode_rows
from boxcrew.data.examples.example_set import ExampleOptions, ExampleSet, open_examples
from boxcrew.data.examples.table import read_table

HEADER = "size,colour,kind"


def write(file: Path, *rows: str, header: str = HEADER) -> Path:
    file.write_text("\n".join([header, *rows]) + "\n")
    return file


def plain_rows(count: int = 20) -> list[str]:
    """Of sizes that do not number the rows."""
    return [
        f"{2 * index},{('red', 'blue')[index % 2]},{('a', 'b')[index // 2 % 2]}" for index in range(count)
    ]


def only(opened: ExampleSet, kind: str) -> Problem:
    (problem,) = [problem for problem in opened.problems if problem.kind == kind]
    return problem


def refused(path: Path, options: ExampleOptions | None = None) -> DataError:
    with pytest.raises(DataError) as raised:
        open_examples(path, options or ExampleOptions())
    assert str(path) in raised.value.message
    assert raised.value.advice
    return raised.value


def whole(opened: ExampleSet, split: str) -> np.ndarray:
    part = opened.split(split)
    return part.fetch(range(len(part))).inputs


def test_numbers_are_standardized_by_training_rows_and_words_become_features(tmp_path: Path) -> None:
    opened = open_examples(write(tmp_path / "a.csv", *plain_rows(50)), ExampleOptions(seed=1))
    assert (opened.kind, opened.shape, opened.classes) == ("numbers", (3,), ("a", "b"))
    assert {name: len(part) for name, part in opened.splits.items()} == {"train": 40, "val": 10}
    train = whole(opened, "train")
    assert train.dtype == np.float32
    assert train[:, 0].mean() == pytest.approx(0, abs=1e-6)
    assert train[:, 0].std() == pytest.approx(1, abs=1e-6)
    part = opened.split("val")
    line = int(part.key(0).removeprefix("a.csv:"))
    row = line - 2
    column = opened.encoding["columns"][0]
    expected = [(2 * row - column["mean"]) / column["deviation"], row % 2 == 1, row % 2 == 0]  # blue, red
    assert whole(opened, "val")[0] == pytest.approx(np.array(expected, dtype=np.float32), rel=1e-5)
    assert opened.classes[part.labels[0]] == "ab"[row // 2 % 2]


def test_new_rows_become_the_same_inputs(tmp_path: Path) -> None:
    opened = open_examples(write(tmp_path / "a.csv", *plain_rows()), ExampleOptions())
    part = opened.split("train")
    lines = [int(part.key(index).removeprefix("a.csv:")) for index in range(len(part))]
    rows = [{"size": 2 * line - 4, "colour": ("red", "blue")[line % 2], "more": "x"} for line in lines]
    assert np.array_equal(encode_rows(opened.encoding, rows), whole(opened, "train"))
    absent = encode_rows(opened.encoding, [{"size": None, "colour": "mauve"}, {"size": "1e99"}])
    assert not absent.any()
    far = encode_rows(opened.encoding, [{"size": 1e29}])
    assert np.isfinite(far).all()


def test_the_label_may_be_another_column_than_the_last(tmp_path: Path) -> None:
    file = write(tmp_path / "a.csv", *plain_rows())
    opened = open_examples(file, ExampleOptions(label="colour"))
    assert opened.classes == ("blue", "red")
    assert opened.encoding["label"] == "colour"
    assert [column["name"] for column in opened.encoding["columns"]] == ["size", "kind"]
    error = refused(file, ExampleOptions(label="color"))
    assert "has no column 'color'" in error.message
    assert error.advice == "did you mean 'colour'?"


def test_classes_that_are_integers_are_in_their_order(tmp_path: Path) -> None:
    rows = [f"{index},red,{(10, 9, '2.0')[index % 3]}" for index in range(12)]
    assert open_examples(write(tmp_path / "a.csv", *rows), ExampleOptions()).classes == ("2", "9", "10")


def test_labels_that_are_measurements_are_refused(tmp_path: Path) -> None:
    rows = [f"{index},red,{index * 0.37:.2f}" for index in range(150)]
    error = refused(write(tmp_path / "a.csv", *rows))
    assert "labels that are not integers" in error.message
    assert "regression is not supported" in error.message
    rows = [f"{index},red,name{index}" for index in range(150)]
    assert "150 different values in 150 rows" in refused(write(tmp_path / "b.csv", *rows)).message


def test_labels_of_a_short_table_that_are_measurements_are_refused(tmp_path: Path) -> None:
    rows = [f"{index},red,{index * 0.37:.2f}" for index in range(90)]
    error = refused(write(tmp_path / "a.csv", *rows))
    assert "column 'kind' has labels that are not integers, such as 0.37 (line 3)" in error.message
    assert "90 different ones in 90 rows" in error.message
    assert "task.label=" in error.advice
    assert "turn ranges into classes" in error.advice
    halves = [f"{index},red,{index % 6 / 2}" for index in range(90)]
    opened = open_examples(write(tmp_path / "b.csv", *halves), ExampleOptions())
    assert opened.classes == ("0", "0.5", "1", "1.5", "2", "2.5")
    few = write(tmp_path / "few.csv", *halves[:8])
    assert (
        open_examples(few, ExampleOptions(encoding=opened.encoding)).classes == opened.classes
    )  # as was learned


def test_a_word_among_labels_that_are_measurements_does_not_make_them_classes(tmp_path: Path) -> None:
    rows = [f"{index},red,{index * 0.37:.2f}" for index in range(90)]
    rows[4] = "4,red,x"
    error = refused(write(tmp_path / "a.csv", *rows))
    assert "such as 0.37 (line 3), and 89 different ones in 89 rows" in error.message


def told_of_labels(opened: ExampleSet) -> list[tuple[str, str, str, int]]:
    """Of labels that are no classes: where, what, and of how many rows."""
    problems = [problem for problem in opened.problems if problem.kind == "unknown-class"]
    assert all(problem.action == "left out" for problem in problems)
    return [(problem.file, problem.at, problem.value, problem.count) for problem in problems]


def test_a_fraction_among_labels_that_are_integers_is_left_out(tmp_path: Path) -> None:
    rows = [f"{index},red,{index % 3}" for index in range(30)]
    rows[7] = "7,red,2.5"
    opened = open_examples(write(tmp_path / "a.csv", *rows), ExampleOptions())
    assert opened.classes == ("0", "1", "2")
    assert told_of_labels(opened) == [("a.csv", "from line 9", "2.5", 1)]
    assert only(opened, "unknown-class").message == "'kind' is '2.5' in 1 row; classes are whole numbers"
    assert sum(len(part) for part in opened.splits.values()) == 29
    rows[8] = "8,red,2.5"  # of two rows that agree, one at most is left to train on: no class either
    again = open_examples(write(tmp_path / "b.csv", *rows), ExampleOptions())
    assert again.classes == ("0", "1", "2")
    assert told_of_labels(again) == [("b.csv", "from line 9", "2.5", 2)]


def test_a_few_fractions_and_words_among_labels_that_are_integers_are_left_out(tmp_path: Path) -> None:
    labels = ["1", "9", "10", "1.0", "9.0"] * 12
    for place, word in ((7, "1.5"), (20, "x"), (21, "inf"), (33, "2.7"), (50, "x")):
        labels[place] = word
    rows = [f"{index},red,{label}" for index, label in enumerate(labels)]
    opened = open_examples(write(tmp_path / "a.csv", *rows), ExampleOptions())
    assert opened.classes == ("1", "9", "10")
    assert told_of_labels(opened) == [
        ("a.csv", "from line 9", "1.5", 1),
        ("a.csv", "from line 22", "x", 2),
        ("a.csv", "from line 23", "inf", 1),
        ("a.csv", "from line 35", "2.7", 1),
    ]
    assert sum(len(part) for part in opened.splits.values()) == 55


def test_labels_of_another_sort_that_are_as_common_as_others_are_classes(tmp_path: Path) -> None:
    labels = [*(str(index % 10) for index in range(95)), *["none"] * 7, "x"]
    rows = [f"{index},red,{label}" for index, label in enumerate(labels)]
    opened = open_examples(write(tmp_path / "a.csv", *rows), ExampleOptions())
    assert opened.classes == (*map(str, range(10)), "none")
    assert told_of_labels(opened) == [("a.csv", "from line 104", "x", 1)]
    few = write(tmp_path / "few.csv", "1,red,none", "2,red,0", *["3,red,1.0"] * 20, "4,red,x")
    again = open_examples(few, ExampleOptions(encoding=opened.encoding))
    assert again.classes == ("0", "1", "none")  # as was learned, however rare it is here
    assert [problem[2] for problem in told_of_labels(again)] == ["x"]


def test_where_words_are_as_common_as_numbers_all_labels_are_names(tmp_path: Path) -> None:
    labels = ["1", "1.0", "10", "9", "a", "b", "2.5", "c"] * 4
    rows = [f"{index},red,{label}" for index, label in enumerate(labels)]
    opened = open_examples(write(tmp_path / "a.csv", *rows), ExampleOptions())
    assert opened.classes == ("1", "1.0", "10", "2.5", "9", "a", "b", "c")
    assert told_of_labels(opened) == []
    two = write(tmp_path / "b.csv", *[f"{index},red,{'x' if index % 30 == 0 else 7}" for index in range(60)])
    assert open_examples(two, ExampleOptions()).classes == ("7", "x")  # without it there would be one class


def test_equal_numbers_are_one_class(tmp_path: Path) -> None:
    labels = ["0.5", "1", "1.0", "1e0", "1.50", "-0", "0", "x"] * 2 + ["0.50"] * 15
    rows = [f"{index},red,{label}" for index, label in enumerate(labels)]
    opened = open_examples(write(tmp_path / "a.csv", *rows), ExampleOptions())
    assert opened.classes == ("0", "0.5", "1", "1.5")
    assert told_of_labels(opened) == [("a.csv", "from line 9", "x", 2)]
    (tmp_path / "set").mkdir()
    write(tmp_path / "set" / "train.csv", *[f"{index},red,{index % 3}" for index in range(30)])
    write(tmp_path / "set" / "val.csv", "1,red,1.0", "2,red,2", "3,red,two")
    opened = open_examples(tmp_path / "set", ExampleOptions())
    assert opened.classes == ("0", "1", "2")
    assert opened.split("val").labels.tolist() == [1, 2]
    assert told_of_labels(opened) == [("val.csv", "from line 4", "two", 1)]


def test_a_table_without_any_label_that_was_learned_is_refused(tmp_path: Path) -> None:
    rows = [f"{index},{('red', 'blue')[index % 2]},{index % 3}" for index in range(30)]
    learned = open_examples(write(tmp_path / "a.csv", *rows), ExampleOptions())
    error = refused(write(tmp_path / "b.csv", *plain_rows()), ExampleOptions(encoding=learned.encoding))
    assert "has no rows to train on" in error.message
    assert "'kind' is 'a' in 10 rows; classes are whole numbers" in error.advice


def test_a_fraction_that_is_all_of_a_split_leaves_none(tmp_path: Path) -> None:
    write(tmp_path / "train.csv", *[f"{index},red,{index % 3}" for index in range(30)])
    write(tmp_path / "test.csv", "7,red,2.5")
    opened = open_examples(tmp_path, ExampleOptions())
    assert only(opened, "unknown-class").file == "test.csv"
    assert "test" not in opened.splits


def test_missing_values_are_repaired_and_counted(tmp_path: Path) -> None:
    rows = plain_rows(40)
    for place, text in ((3, ",red,a"), (5, "NaN,red,b"), (7, "inf,?,b"), (9, "n/a,NA,a")):
        rows[place] = text
    opened = open_examples(write(tmp_path / "a.csv", *rows), ExampleOptions(seed=4))
    assert np.isfinite(whole(opened, "train")).all()
    problems = [problem for problem in opened.problems if problem.kind == "value-missing"]
    counts = [
        int(problem.message.split(": ")[1].split()[0]) for problem in problems if "'size'" in problem.message
    ]
    assert sum(counts) == 4
    assert sum(problem.count for problem in problems) == 6
    assert all(problem.action == "repaired" for problem in problems)
    colour = opened.encoding["columns"][1]
    assert colour["categories"] == ["blue", "red"]
    assert colour["missing"]
    assert encode_rows(opened.encoding, [{"size": opened.encoding["columns"][0]["mean"]}]).tolist() == [
        [0, 0, 0, 1]
    ]


def test_a_word_among_numbers_is_a_missing_value(tmp_path: Path) -> None:
    rows = plain_rows(100)
    rows[30] = "about 30,red,b"
    opened = open_examples(write(tmp_path / "a.csv", *rows), ExampleOptions())
    problem = only(opened, "value-missing")
    assert problem.at == "from line 32"
    assert problem.value == "about 30"
    assert "mean" in opened.encoding["columns"][0]


def test_rows_that_cannot_be_used_are_left_out_with_their_lines(tmp_path: Path) -> None:
    rows = plain_rows()
    rows[4], rows[6], rows[8], rows[9] = "4,red", "6,red,a,b", "8,red,", "9,red,"
    rows[10] = '10,"a ""quoted""\nred",a'
    opened = open_examples(write(tmp_path / "a.csv", *rows), ExampleOptions())
    ragged = [problem for problem in opened.problems if problem.kind == "row-malformed"]
    assert [problem.at for problem in ragged] == ["line 6", "line 8"]
    assert "has 2 values, not the 3 of the header" in ragged[0].message
    assert ragged[0].action == "left out"
    unlabeled = only(opened, "label-missing")
    assert (unlabeled.at, unlabeled.count) == ("from line 10", 2)
    keys = {part.key(index) for part in opened.splits.values() for index in range(len(part))}
    assert len(keys) == 16
    assert "a.csv:12" in keys
    assert "a.csv:13" not in keys
    assert "a.csv:14" in keys


def test_constant_columns_are_left_out(tmp_path: Path) -> None:
    rows = [f"0.1,same,{index},{'ab'[index % 2]}" for index in range(20)]
    opened = open_examples(write(tmp_path / "a.csv", *rows, header="v,w,x,y"), ExampleOptions())
    assert [column["name"] for column in opened.encoding["columns"]] == ["x"]
    constant = [problem.value for problem in opened.problems if problem.kind == "column-constant"]
    assert constant == ["v", "w"]
    rows = [f"0.1,same,{'ab'[index % 2]}" for index in range(20)]
    assert "no column besides 'kind'" in refused(write(tmp_path / "b.csv", *rows)).message


def test_rare_categories_share_a_feature(tmp_path: Path) -> None:
    names = [index % 50 if index < 50 else index % 30 for index in range(400)]
    rows = [f"{2 * index},c{name},{'ab'[index % 2]}" for index, name in enumerate(names)]
    opened = open_examples(write(tmp_path / "a.csv", *rows), ExampleOptions())
    column = opened.encoding["columns"][1]
    assert len(column["categories"]) == 32
    assert column["other"]
    assert {f"c{index}" for index in range(30)} <= set(column["categories"])
    assert opened.shape == (1 + 33,)
    assert encode_rows(opened.encoding, [{"colour": "never seen"}])[0, 33] == 1


@pytest.mark.parametrize(
    ("header", "message"),
    [
        ("size,size,kind", "columns 1 and 2 are both called 'size'"),
        ("size,,kind", "column 2 has no name"),
        ("5.1,3.5,setosa", "its first line is data, not a header: 5.1, 3.5, setosa"),
        ("3,1,0", "its first line is data, not a header"),
        ("5,3,1,0,setosa", "its first line is data, not a header: 5, 3, 1, 0, setosa"),
        ("5,3,setosa,large", "its first line is data, not a header"),
        ("5,setosa", "its first line is data, not a header"),
    ],
)
def test_wrong_headers_are_refused(tmp_path: Path, header: str, message: str) -> None:
    assert message in refused(write(tmp_path / "a.csv", *plain_rows(), header=header)).message


@pytest.mark.parametrize("header", ["0,1,2", "1,2,3", "0,1,kind", "1990,2000,kind", "size,7,kind"])
def test_names_that_rise_are_a_header(tmp_path: Path, header: str) -> None:
    opened = open_examples(write(tmp_path / "a.csv", *plain_rows(), header=header), ExampleOptions())
    assert sum(len(part) for part in opened.splits.values()) == 20
    assert opened.encoding["label"] == header.rsplit(",", maxsplit=1)[-1]


def test_files_that_are_no_text_or_have_no_rows_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    file.write_bytes(f"{HEADER}\n1,caf".encode() + b"\xe9,a\n")
    assert "is not UTF-8: byte 0xe9 at offset 22" in refused(file).message
    file.write_text("")
    assert "is empty" in refused(file).message
    file.write_text(f"{HEADER}\n1,2\n")
    error = refused(file)
    assert "has no rows to train on" in error.message
    assert "line 2" in error.advice
    write(file, *plain_rows(), '1,"' + "x" * 200_000)
    assert "line 22: field larger" in refused(file).message


def test_other_separators(tmp_path: Path) -> None:
    rows = [row.replace(",", ";") for row in plain_rows()]
    opened = open_examples(
        write(tmp_path / "a.csv", *rows, header=HEADER.replace(",", "; ")), ExampleOptions()
    )
    assert opened.shape == (3,)


def contents(file: Path, seed: int = 3) -> dict[str, set[str]]:
    """By split, the rows as they stand in the file."""
    lines = file.read_text().splitlines()
    opened = open_examples(file, ExampleOptions(seed=seed))
    return {
        split: {lines[int(part.key(index).split(":")[1]) - 1] for index in range(len(part))}
        for split, part in opened.splits.items()
    }


def test_equal_rows_are_in_one_split(tmp_path: Path) -> None:
    file = write(tmp_path / "a.csv", *plain_rows(60), *plain_rows(60), *plain_rows(30))
    rows_by_split = contents(file)
    assert not rows_by_split["train"] & rows_by_split["val"]
    assert len(rows_by_split["train"] | rows_by_split["val"]) == 60


def test_the_split_depends_on_the_rows_and_the_seed_alone(tmp_path: Path) -> None:
    rows = plain_rows(100)
    rows_by_split = contents(write(tmp_path / "a.csv", *rows))
    assert len(rows_by_split["val"]) == 20
    assert contents(write(tmp_path / "renamed.csv", *rows)) == rows_by_split
    assert contents(write(tmp_path / "moved.csv", *rows[50:], "", *rows[:50])) == rows_by_split
    assert contents(tmp_path / "a.csv", seed=4) != rows_by_split
    for index in range(10):  # a row more takes at most the place of one
        more = contents(write(tmp_path / "more.csv", f"{index}.5,red,a", *rows))
        assert len(more["val"] & rows_by_split["val"]) >= 19
        assert len(more["train"] & rows_by_split["train"]) >= 79


def test_a_folder_with_splits(tmp_path: Path) -> None:
    write(tmp_path / "train.csv", *plain_rows())
    write(tmp_path / "val.csv", "a,,mauve", "c,3,red", header="kind,size,colour")
    write(tmp_path / "test.csv", "3,red", header="size,colour")
    opened = open_examples(tmp_path, ExampleOptions())
    assert {name: len(part) for name, part in opened.splits.items()} == {"train": 20, "val": 1}
    assert opened.classes == ("a", "b")
    assert opened.split("val").key(0) == "val.csv:2"
    assert whole(opened, "val")[0, 1:].tolist() == [0, 0]
    kinds = {problem.kind: problem for problem in opened.problems}
    assert kinds["label-missing"].file == "test.csv"
    assert kinds["value-unknown"].value == "mauve"
    assert kinds["value-missing"].at == "from line 2"
    assert kinds["class-empty"].value == "c"


@pytest.mark.parametrize(
    ("content", "kind", "what"),
    [
        (
            b"siz,kind\n1,a\n2,b\n",
            "value-missing",
            "has no column 'size', but train.csv has; did you mean 'siz'?",
        ),
        (b"size,colour\n1,red\n", "label-missing", "has no column 'kind', the label"),
        (b"size,colour,kind\n1,caf\xe9,a\n", "text-unreadable", "is not UTF-8: byte 0xe9 at offset 22"),
        (
            b"size,colour,kind\n1,a\n2,a\n",
            "row-malformed",
            "has no usable row; line 2: has 2 values, not the 3 of the header",
        ),
        (
            b"size,colour,kind\n1,red,\n",
            "label-missing",
            "has no usable row; from line 2: no 'kind' in 1 row",
        ),
        (b"size,colour,kind\n", "text-unreadable", "has no rows"),
        (b"", "text-unreadable", "is empty"),
        (b"5.1,3.5,setosa\n", "text-unreadable", "its first line is data, not a header: 5.1, 3.5, setosa"),
        (None, "text-unreadable", "cannot be read: Is a directory"),
    ],
)
@pytest.mark.parametrize("split", ["val", "test"])
def test_a_split_that_cannot_be_used_is_left_out(
    tmp_path: Path, split: str, content: bytes | None, kind: str, what: str
) -> None:
    write(tmp_path / "train.csv", *plain_rows())
    file = tmp_path / f"{split}.csv"
    if content is None:
        file.mkdir()
    else:
        file.write_bytes(content)
    opened = open_examples(tmp_path, ExampleOptions())
    problem, made = opened.problems
    assert (problem.kind, problem.file, problem.at, problem.action) == (kind, file.name, split, "left out")
    assert problem.message == what
    assert made.kind == "made-split"
    assert {name: len(part) for name, part in opened.splits.items()} == {"train": 16, "val": 4}
    with pytest.raises(DataError, match="has no split 'test'") as raised:
        opened.split("test")
    assert (what in raised.value.advice) is (split == "test")


@pytest.mark.parametrize("content", [b"size,colour,kind\n1,caf\xe9,a\n", b"size,colour,kind\n1,a\n", b""])
def test_what_is_to_train_on_must_be_good(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "train.csv").write_bytes(content)
    write(tmp_path / "val.csv", *plain_rows())
    assert str(tmp_path / "train.csv") in refused(tmp_path).message


def test_rows_are_made_like_those_of_a_set_before(tmp_path: Path) -> None:
    first = open_examples(write(tmp_path / "a.csv", *plain_rows()), ExampleOptions(label="kind"))
    other = write(tmp_path / "b.csv", *[f"b,{100 + n},mauve" if n % 2 else f"a,{n},red" for n in range(10)])
    other.write_text(other.read_text().replace(HEADER, "kind,size,colour"))
    opened = open_examples(other, ExampleOptions(encoding=first.encoding))
    assert opened.encoding == first.encoding
    assert opened.classes == ("a", "b")
    for part in opened.splits.values():
        rows = [int(part.key(index).removeprefix("b.csv:")) - 2 for index in range(len(part))]
        words = [{"size": 100 + n if n % 2 else n, "colour": "mauve" if n % 2 else "red"} for n in rows]
        inputs = part.fetch(range(len(part))).inputs
        assert np.array_equal(inputs, encode_rows(first.encoding, words))
    assert open_examples(other, ExampleOptions(label="kind", encoding={})).shape == (3,)
    write(other, "1,a", "2,b", header="siz,kind")
    error = refused(other, ExampleOptions(encoding=first.encoding))
    assert "has no columns 'size', 'colour', which were learned from" in error.message
    assert error.advice == "did you mean 'siz'?"


def test_rows_by_their_names(tmp_path: Path) -> None:
    table, problems = read_table(write(tmp_path / "a.csv", "1,red,a", "2", " 3 , blue ,b"))
    assert list(table.named_rows()) == [
        (2, {"size": "1", "colour": "red", "kind": "a"}),
        (4, {"size": "3", "colour": "blue", "kind": "b"}),
    ]
    assert [problem.at for problem in problems] == ["line 3"]
