"""What a classifier is given by `boxcrew predict` is made as in training."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.made_examples import make_csv
from tests.helpers.untrained import untrained_run

Call = Callable[..., Any]


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def predicted(boxcrew: Call, run: Path, source: Path) -> dict[str, dict[str, float]]:
    """By source, how likely each class is."""
    result = boxcrew("predict", f"run={run}", f"source={source}", "--json")
    assert result.code == 0, result.err
    return {
        Path(prediction["source"]).name: {each["name"]: each["probability"] for each in prediction["classes"]}
        for prediction in json.loads(result.out)["results"]
    }


def reader_of(folder: Path) -> Path:
    return untrained_run(
        folder.parent / "run", {"task": {"name": "sequence", "net": {"hidden": 8}}, "data": str(folder)}
    )


def test_a_table_must_have_the_columns_that_were_learned_from(boxcrew: Call, tmp_path: Path) -> None:
    task = {"name": "classification", "net": {"name": "fc", "widths": [8]}}
    run = untrained_run(tmp_path / "run", {"task": task, "data": str(make_csv(tmp_path))})
    new = tmp_path / "new.csv"
    new.write_text("color,height,more\ngreen,12.5,x\nred,11,y\n")
    assert list(predicted(boxcrew, run, new)) == ["new.csv:2", "new.csv:3"]
    new.write_text("hight,kind\n12.5,oak\n")
    result = boxcrew("predict", f"run={run}", f"source={new}")
    assert result.code == 3
    assert "has no columns 'height', 'color', which were learned from" in result.err


def test_values_that_are_missing_or_unknown_are_told(boxcrew: Call, tmp_path: Path) -> None:
    task = {"name": "classification", "net": {"name": "fc", "widths": [8]}}
    run = untrained_run(tmp_path / "run", {"task": task, "data": str(make_csv(tmp_path))})
    new = tmp_path / "new.csv"
    new.write_text("color,height\ngreen,\nmauve,12\nred,tall\n,11\n")
    result = boxcrew("predict", f"run={run}", f"source={new}")
    assert result.code == 0, result.err
    message = " ".join((result.err + result.out).split())
    assert "column 'height': 2 of 4 values are missing or no numbers" in message
    assert (
        "column 'color': 1 of 4 values are missing or no numbers (the first: ''); taken as no cat" in message
    )
    assert "column 'color': 1 of 4 values are not among those of training (the first: 'mauve')" in message
    new.write_text("color,height\ngreen,12.5\n")
    assert "values are" not in boxcrew("predict", f"run={run}", f"source={new}").err


def test_lines_are_read_as_in_training(boxcrew: Call, tmp_path: Path) -> None:
    words = tmp_path / "words"
    words.mkdir()
    for name, letter in (("one", "a"), ("two", "b")):
        (words / f"{name}.txt").write_text("".join(f"{letter * n}\n" for n in range(1, 20)))
    run = reader_of(words)
    new = tmp_path / "new.txt"
    new.write_text("aab\n  aab\t\n\nab\x0cba\n")
    probabilities = predicted(boxcrew, run, new)
    assert list(probabilities) == ["new.txt:1", "new.txt:2", "new.txt:4"]
    assert probabilities["new.txt:1"] == pytest.approx(probabilities["new.txt:2"])
    assert list(predicted(boxcrew, run, words))[18:20] == ["one.txt:19", "two.txt:1"]


def test_files_are_read_whole_where_they_were_in_training(boxcrew: Call, tmp_path: Path) -> None:
    letters = tmp_path / "letters"
    for name, word in (("pos", "good"), ("neg", "bad")):
        (letters / name).mkdir(parents=True)
        for index in range(6):
            (letters / name / f"{index}.txt").write_text(f"{word}\n{'x' * index}\nend")
    run = reader_of(letters)
    new = tmp_path / "new"
    new.mkdir()
    (new / "1.txt").write_text("\ngood\nx\nend\n")
    (new / "2.txt").write_text("good\nx\nend")
    (new / "3.txt").write_text(" \n")
    (new / "4.txt").write_bytes(b"\xff\xfe")
    probabilities = predicted(boxcrew, run, new)
    assert list(probabilities) == ["1.txt", "2.txt"]
    assert probabilities["1.txt"] == pytest.approx(probabilities["2.txt"])
    assert list(predicted(boxcrew, run, new / "2.txt")) == ["2.txt"]
    result = boxcrew("predict", f"run={run}", f"source={new / '4.txt'}")
    assert (result.code, "is not UTF-8" in result.err) == (3, True)


def test_texts_that_are_cut_are_told_once_for_a_file(boxcrew: Call, tmp_path: Path) -> None:
    words = tmp_path / "words"
    words.mkdir()
    for name, letter in (("one", "a"), ("two", "b")):
        (words / f"{name}.txt").write_text("".join(f"{letter * n}\n" for n in range(1, 20)))
    run = reader_of(words)
    new = tmp_path / "new"
    new.mkdir()
    (new / "1.txt").write_text(f"ab\n{'ab' * 10}\n{'ab' * 30}\n")
    (new / "2.txt").write_text(f"{'a' * 19}\n")
    (new / "3.txt").write_text("b" * 20)
    for mode in ((), ("--json",)):
        result = boxcrew("predict", f"run={run}", f"source={new}", *mode)
        assert result.code == 0, result.err
        message = result.err if mode else result.out
        assert message.count("cut to length") == 2
        assert (
            f"warning: {new}/1.txt: 2 texts cut to length=19; the first: {new}/1.txt:2 (repaired)" in message
        )
        assert (
            f"warning: {new}/3.txt: 1 text cut to length=19; the first: {new}/3.txt:1 (repaired)" in message
        )
    assert len(json.loads(result.out)["results"]) == 5
