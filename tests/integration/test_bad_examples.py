"""What can be wrong with pictures, tables and texts of classes, by the command as a user calls it: a run
trains on what is left and names the problem, or stops before it begins, with the file and what to do.

Photos with boxes are in test_bad_data.py. Each defect by itself, and where it is, is tested with the formats
in tests/data/example_sets.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from boxcrew.cli.main import main
from boxcrew.data.checks.problem import Problem
from boxcrew.data.images.reading import write_image
from tests.helpers.made_examples import draw_blocks, make_csv, write_classes

WORDS = (
    "steps=1",
    "batch=4",
    "out=run",
    "device=cpu",
    "trial=false",
    "loader.workers=0",
    "deploy.threads=1",
    "summaries.tensorboard=false",
    "summaries.images=0",
    "evaluation.every_epochs=1000",
)
SMALL = {"fc": "net.widths=4", "cnn": "net.width=4", "rnn": "net.hidden=4", "gan": "task.width=4"}

Call = Callable[..., tuple[int, str, str]]
Plant = Callable[[Path], Path]
"""Writes a set with a defect into an empty folder, and gives its path."""


@pytest.fixture
def trained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Call:
    """`(recipe, data, *words)`: the exit code, and what was printed on stdout and stderr."""
    monkeypatch.chdir(tmp_path)
    hook = sys.excepthook

    def call(recipe: str, data: Path, *words: str) -> tuple[int, str, str]:
        monkeypatch.setattr(
            sys, "argv", ["boxcrew", "train", recipe, f"data={data}", SMALL[recipe], *WORDS, *words]
        )
        monkeypatch.setattr(sys, "excepthook", hook)
        with pytest.raises(SystemExit) as stop:
            main()
        captured = capsys.readouterr()
        assert "Traceback" not in captured.out + captured.err
        return int(stop.value.code or 0), captured.out, captured.err

    return call


def rows_that_do_not_fit(folder: Path) -> Path:
    """Ragged ones, values that are no numbers, and labels that are none of the classes."""
    file = folder / "trees.csv"
    rows = [f"{index},{index % 3}" for index in range(60)]
    rows[2], rows[5] = "12.5", "12.5,1,old"
    rows[10], rows[11], rows[12] = "NaN,1", "inf,2", ",0"
    rows[20], rows[21], rows[22] = "20,x", "21,1.5", "22,2.7"
    file.write_text("\n".join(["height,kind", *rows]) + "\n")
    return file


def a_table_for_validation_that_is_not_utf8(folder: Path) -> Path:
    make_csv(folder).rename(folder / "train.csv")
    (folder / "val.csv").write_bytes(b"height,color,kind\n12.5,gr\xfcn,oak\n")
    return folder


def an_empty_class(folder: Path) -> Path:
    write_classes(folder, {"cup": 6, "bowl": 6, "plate": 0})
    return folder


def pictures_of_different_sizes(folder: Path) -> Path:
    write_classes(folder, {"cup": 6})
    write_image(folder / "cup" / "large.png", draw_blocks(50, width=90, height=60))
    return folder / "cup"


def a_class_that_is_not_utf8_and_texts_that_are_long(folder: Path) -> Path:
    for name in ("one", "two"):
        (folder / f"{name}.txt").write_text("".join(f"{name * (1 + n % 3)}{n}\n" for n in range(12)))
    (folder / "three.txt").write_bytes("drei Größen".encode("latin-1"))
    return folder


def a_text_for_validation_that_is_not_utf8(folder: Path) -> Path:
    (folder / "train.txt").write_text("one two three four five, " * 20)
    (folder / "val.txt").write_bytes("Größe, ".encode("latin-1") * 20)
    return folder


@pytest.mark.parametrize(
    ("recipe", "words", "plant", "told"),
    [
        (
            "fc",
            "",
            rows_that_do_not_fit,
            (
                "trees.csv line 4: has 1 values, not the 2 of the header (left out)",
                "trees.csv line 7: has 3 values, not the 2 of the header (left out)",
                "(the first: 'NaN'); taken as the mean",
                "trees.csv from line 22: 'kind' is 'x' in 1 row; classes are whole numbers (left out)",
            ),
        ),
        ("fc", "", a_table_for_validation_that_is_not_utf8, ("val.csv val: is not UTF-8: byte 0xfc",)),
        ("cnn", "size=8", an_empty_class, ("training has no example of plate (noted)",)),
        ("gan", "", pictures_of_different_sizes, ("7 images of 2 sizes become 32 x 32; size= sets",)),
        (
            "rnn",
            "length=6",
            a_class_that_is_not_utf8_and_texts_that_are_long,
            (
                "three.txt: is not UTF-8: byte 0xf6 at offset 7 (left out)",
                "16 texts cut to length=6; the first: one.txt:2 (repaired)",
            ),
        ),
        (
            "rnn",
            "length=8",
            a_text_for_validation_that_is_not_utf8,
            ("val.txt val: is not UTF-8: byte 0xf6",),
        ),
    ],
)
def test_it_is_named_and_the_rest_is_trained_on(
    recipe: str, words: str, plant: Plant, told: tuple[str, ...], tmp_path: Path, trained: Call
) -> None:
    (tmp_path / "data").mkdir()
    code, out, err = trained(recipe, plant(tmp_path / "data"), *words.split())
    assert (code, err) == (0, "")
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["steps"] == 1
    report = json.loads((tmp_path / "run" / "data_report.json").read_text())
    named = "\n".join(str(Problem(**one)) for one in report["problems"])
    for each in told:
        assert each in out
        assert each in named


def one_class_of_pictures(folder: Path) -> Path:
    write_classes(folder, {"cup": 6})
    return folder


def one_class_of_rows(folder: Path) -> Path:
    file = folder / "trees.csv"
    file.write_text("height,kind\n" + "".join(f"{index},oak\n" for index in range(20)))
    return file


def one_class_of_texts(folder: Path) -> Path:
    (folder / "one").mkdir()
    for index in range(6):
        (folder / "one" / f"{index}.txt").write_text(f"one {index}")
    return folder


def labels_that_are_measurements(folder: Path) -> Path:
    file = folder / "trees.csv"
    file.write_text("height,girth\n" + "".join(f"{n},{n * 0.37:.2f}\n" for n in range(40)) + "7,wide\n")
    return file


def a_text_that_is_not_utf8(folder: Path) -> Path:
    file = folder / "talk.txt"
    file.write_bytes("Größe, ".encode("latin-1") * 20)
    return file


def a_table_that_is_not_utf8(folder: Path) -> Path:
    file = folder / "trees.csv"
    file.write_bytes(b"height,color,kind\n12.5,gr\xfcn,oak\n")
    return file


@pytest.mark.parametrize(
    ("recipe", "words", "plant", "told", "advice"),
    [
        ("cnn", "", one_class_of_pictures, "only one class to train on: 'cup'", "at least two classes"),
        ("fc", "", one_class_of_rows, "only one class to train on: 'oak'", "at least two classes"),
        ("rnn", "", one_class_of_texts, "only one class to train on: 'one'", "at least two classes"),
        ("fc", "task.label=kid", make_csv, "has no column 'kid'", "did you mean 'kind'?"),
        ("fc", "", labels_that_are_measurements, "such as 0.37 (line 3)", "turn ranges into classes"),
        ("rnn", "", a_text_that_is_not_utf8, "is not UTF-8: byte 0xf6 at offset 2", "save it as UTF-8"),
        ("fc", "", a_table_that_is_not_utf8, "is not UTF-8: byte 0xfc at offset 25", "save it as UTF-8"),
    ],
)
def test_what_cannot_be_trained_on_is_refused_with_advice(
    recipe: str, words: str, plant: Plant, told: str, advice: str, tmp_path: Path, trained: Call
) -> None:
    (tmp_path / "data").mkdir()
    data = plant(tmp_path / "data")
    code, _, err = trained(recipe, data, *words.split())
    assert code == 3
    error, offered = err.splitlines()
    assert error.startswith(f"error: {data}: ")
    assert told in error
    assert advice in offered
    assert not (tmp_path / "run").exists()
