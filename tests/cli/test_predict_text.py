"""What a language model goes on with by `boxcrew predict`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.untrained import untrained_run

Call = Callable[..., Any]
TEXT = "the tea is on the shelf, and the cup is beside it. "


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Which has learned nothing, but whose weights are large enough for it to care what came before."""
    folder = tmp_path_factory.mktemp("text")
    (folder / "tea.txt").write_text(TEXT * 10)
    task = {"name": "sequence", "net": {"hidden": 8, "initializer": "he"}, "length": 16}
    return untrained_run(folder / "run", {"task": task, "data": str(folder / "tea.txt")})


def continued(boxcrew: Call, run: Path, *words: str) -> dict[str, Any]:
    result = boxcrew("predict", f"run={run}", *words, "--json")
    assert result.code == 0, result.err
    report: dict[str, Any] = json.loads(result.out)
    return report


def test_a_text_is_continued_by_so_many_characters(boxcrew: Call, run: Path) -> None:
    for num in (1, 30):
        report = continued(boxcrew, run, "text=the cup", f"num={num}")
        assert report.keys() == {"text", "continued", "engine"}
        assert report["text"] == "the cup"
        assert len(report["continued"]) == num
        assert set(report["continued"]) <= set(TEXT)
    assert len(continued(boxcrew, run)["continued"]) == 400


def test_the_seed_decides_how(boxcrew: Call, run: Path) -> None:
    first, again, other = (
        continued(boxcrew, run, "text=the cup", "num=30", f"seed={seed}") for seed in (3, 3, 4)
    )
    assert first == again
    assert first["continued"] != other["continued"]


def test_without_chance_it_is_the_likeliest(boxcrew: Call, run: Path) -> None:
    reports = [continued(boxcrew, run, "temperature=0", "num=30", f"seed={seed}") for seed in (3, 4)]
    assert reports[0] == reports[1]


def test_all_of_a_text_is_read(boxcrew: Call, run: Path) -> None:
    """Not just its last word: the same numbers are drawn."""
    first, other = (continued(boxcrew, run, f"text={text}", "num=200") for text in ("a cup", "the tea cup"))
    assert first["continued"] != other["continued"]


def test_the_text_may_stand_in_a_file(boxcrew: Call, run: Path, tmp_path: Path) -> None:
    (tmp_path / "begun.txt").write_text("the cup")
    report = continued(boxcrew, run, f"source={tmp_path / 'begun.txt'}", "num=30")
    assert report == continued(boxcrew, run, "text=the cup", "num=30")
    result = boxcrew("predict", f"run={run}", f"source={tmp_path / 'none.txt'}")
    assert (result.code, "cannot be read" in result.err) == (3, True)


def test_one_text_is_continued(boxcrew: Call, run: Path, tmp_path: Path) -> None:
    result = boxcrew("predict", f"run={run}", f"source={tmp_path / 'begun.txt'}", "text=the cup")
    assert (result.code, "only one of them can be given" in result.err) == (2, True)


@pytest.mark.parametrize("text", ["[the cup]", "{the", "none"])
def test_any_text_can_be_given(boxcrew: Call, run: Path, text: str) -> None:
    assert continued(boxcrew, run, f"text={text}", "num=3")["text"] == text


def test_people_read_the_whole_of_it(boxcrew: Call, run: Path) -> None:
    more = continued(boxcrew, run, "text=the cup", "num=300")["continued"]
    result = boxcrew("predict", f"run={run}", "text=the cup", "num=300")
    assert (result.code, result.out) == (0, f"the cup{more}\n")


def test_characters_that_the_model_does_not_know_are_told(boxcrew: Call, run: Path) -> None:
    warning = (
        "warning: the text has 2 characters that the model does not know, all read as one unknown character: "
    )
    warning += "'z', 'Ü'\n"
    result = boxcrew("predict", f"run={run}", "text=Üzz the Ücup", "num=5", "--json")
    assert result.err.count("warning") == 1
    assert result.err.startswith(warning)
    assert json.loads(result.out)["text"] == "Üzz the Ücup"
    result = boxcrew("predict", f"run={run}", "text=Üzz the cup", "num=5")
    assert result.out.startswith(f"{warning}Üzz the cup")
    many = boxcrew("predict", f"run={run}", "text=ABCDEFGHIJKL", "num=5", "--json").err.splitlines()[0]
    assert "has 12 characters" in many
    assert many.endswith("'A', 'B', 'C', 'D', 'E', 'F', 'G', 'H', 'I', 'J', …")
    for text in ("", "the cup"):
        assert "warning" not in boxcrew("predict", f"run={run}", f"text={text}", "num=5", "--json").err


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("num=0", "num: input should be greater than or equal to 1, got '0'"),
        ("temperature=-1", "temperature: input should be greater than or equal to 0"),
        ("txt=the", "txt: no such setting; did you mean 'text'?"),
        ("score=0.5", "score: no such setting; did you mean 'source'?"),
    ],
)
def test_what_cannot_be_set_is_told(boxcrew: Call, run: Path, word: str, message: str) -> None:
    result = boxcrew("predict", f"run={run}", word, "--json")
    assert (result.code, json.loads(result.out)["exit"]) == (2, 2)
    assert f"error: {message}" in result.err
