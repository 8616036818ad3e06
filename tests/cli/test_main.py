from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from boxcrew.cli.document import Document, Failure
from boxcrew.cli.output import Output
from boxcrew.core.errors import DataError
from boxcrew.core.version import VERSION

Call = Callable[..., Any]


def test_help_imports_nothing_heavy() -> None:
    """What makes `--help` quick: torch, OpenCV and the rest wait for a command that needs them."""
    heavy = "[m for m in ('torch', 'cv2', 'timm', 'matplotlib') if m in sys.modules]"
    code = f"import sys, boxcrew.cli.main; print({heavy})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_installed_script_says_its_version() -> None:
    script = Path(sys.executable).with_name("boxcrew")
    done = subprocess.run([script, "--version"], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == f"boxcrew {VERSION}"


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (("train", "detector.sise=3"), 2, "detector.sise: no such setting; did you mean 'size'?"),
        (("train", "epoch=3"), 2, "epoch: no such setting; did you mean 'epochs'?"),
        (("train", "--epohcs", "3"), 2, "did you mean 'epochs'?"),
        (("train", "startr"), 2, "startr: no such recipe; did you mean 'starter'?"),
        (("train", "optim.rate=-1"), 2, "optim.rate:"),
        (("train", "optim=adammw"), 2, "optim.name"),
        (("train", "detector=sdd"), 2, "sdd: no such detector"),
        (("train", "init=pretraind"), 2, "did you mean 'pretrained'?"),
        (("train", "device=cuda:7", "data=shelf"), 2, "device=cuda:7: not on this machine"),
        (("train", "starter", "again"), 2, "again: not understood"),
        (("train", "nosuch.yaml"), 2, "nosuch.yaml: no such file"),
        (("train", "data=nowhere"), 3, "nowhere: no such file or directory"),
        (("train", "data=."), 3, "not a data set in any known format"),
        (("resume",), 2, "run= is missing"),
        (("resume", "run=nowhere"), 2, "not a run directory"),
        (("val", "run=nowhere"), 4, "nowhere: no such run or weight file"),
        (("val", "run=x", "splt=test"), 2, "did you mean 'split'?"),
        (("predict", "source=photo.jpg"), 2, "run= is missing"),
        (("predict", "run=x", "source=photo.jpg"), 4, "no such run"),
        (("data",), 2, "data: which data set?"),
        (("data", "convert"), 2, "data convert: which data set?"),
        (("data", "convert", "shelf", "format=coco"), 2, "data convert: out= is missing"),
        (("data", "convert", "shelf", "out=x"), 2, "cvat, label_studio, labelme, voc, yolo"),
        (("data", "convert", "shelf", "out=x", "format=coc"), 2, "did you mean 'coco'?"),
        (("data", "convert", ".", "out=x/y", "format=coco"), 2, "is inside the data set"),
        (("data", "make", "shelf", "out=x", "format=coco"), 2, "boxcrew data convert"),
        (("recipes", "strter"), 2, "did you mean 'starter'?"),
        (("trian",), 2, "train"),
    ],
)
def test_bad_input_is_one_clear_error_and_writes_nothing(
    boxcrew: Call,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    words: tuple[str, ...],
    code: int,
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    result = boxcrew(*words)
    assert result.code == code
    assert message in result.err
    assert "Traceback" not in result.err
    assert list(tmp_path.iterdir()) == []


def test_an_error_of_ours_is_called_a_bug(boxcrew: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    _fail(monkeypatch, ZeroDivisionError("oops"))
    result = boxcrew("recipes")
    assert (result.code, result.out) == (1, "")
    assert result.err.startswith("error: ZeroDivisionError: oops\n  this looks like a bug in boxcrew")
    assert "Traceback" in boxcrew("recipes", "--debug").err


def _fail(monkeypatch: pytest.MonkeyPatch, error: BaseException, after: object = None) -> None:
    """Let `boxcrew recipes` fail, after a result if there is one."""

    def command(_: list[str], out: Output) -> None:
        out.result(after)
        raise error

    monkeypatch.setattr("boxcrew.cli.recipes.recipes_command", command)


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (("train", "data=nowhere", "--json"), 3, "nowhere: no such file or directory"),
        (("val", "--json", "run=nowhere"), 4, "nowhere: no such run or weight file"),
        (("data", "--json"), 2, "data: which data set?"),
        (("trian", "--json"), 2, "trian: no such command; did you mean 'train'?"),
        (("--color", "--json"), 2, "No such option: --color"),
        (("plan", "--json", "--assume"), 2, "Option '--assume' requires an argument."),
    ],
)
def test_an_error_is_a_json_document_too(
    boxcrew: Call,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    words: tuple[str, ...],
    code: int,
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    result = boxcrew(*words)
    document = json.loads(result.out)
    assert document.keys() == {"error", "advice", "exit"}
    assert document["error"].startswith(message)
    assert (document["exit"], result.code) == (code, code)
    assert f"error: {document['error']}\n" in result.err


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (ZeroDivisionError("oops"), 1, "ZeroDivisionError: oops"),
        (KeyboardInterrupt(), 130, "interrupted"),
        (SystemExit(130), 130, "interrupted"),
        (DataError("no photo", advice="add one"), 3, "no photo"),
    ],
)
def test_a_command_that_fails_after_its_result_prints_one_document(
    boxcrew: Call, monkeypatch: pytest.MonkeyPatch, error: BaseException, code: int, message: str
) -> None:
    _fail(monkeypatch, error, after={"out": "here", "exit": "of the result"})
    result = boxcrew("recipes", "--json")
    document = json.loads(result.out)
    assert (document["error"], document["exit"], document["out"]) == (message, code, "here")
    assert result.code == code


def test_the_document_of_the_chief_is_passed_on(capsys: pytest.CaptureFixture[str]) -> None:
    stopped = Failure(exit_code=3)  # the launcher says nothing: the chief has said why
    killed = Failure(message="replica 1 was killed", exit_code=1)
    chiefs = '{"error": "no photo", "advice": "add one", "exit": 3}'
    for text, failure, error in (
        (chiefs, stopped, "no photo"),
        (chiefs, killed, "replica 1 was killed"),
        ("", killed, "replica 1 was killed"),
        ('{"run": "r', stopped, "exit code 3"),
        ('{"run": "runs/detect/train"}', None, None),
    ):
        document = Document(is_wanted=True)
        document.take(text)
        document.print(failure)
        printed = json.loads(capsys.readouterr().out)
        assert printed.get("error") == error, text


def test_only_the_chief_of_started_processes_prints_a_document(
    boxcrew: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    variables = {"WORLD_SIZE": "2", "MASTER_ADDR": "localhost", "MASTER_PORT": "29500", "LOCAL_RANK": "0"}
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    for rank, is_printed in (("0", True), ("1", False)):
        monkeypatch.setenv("RANK", rank)
        result = boxcrew("train", "epohcs=3", "--json")
        assert (result.code, bool(result.out)) == (2, is_printed)


@pytest.mark.parametrize("columns", ["80", "120"])
@pytest.mark.parametrize(
    "command",
    ["train", "plan", "resume", "val", "predict", "data", "doctor", "devices", "recipes", "settings"],
)
def test_help_fits_the_terminal_and_has_usage_and_examples(
    boxcrew: Call, monkeypatch: pytest.MonkeyPatch, columns: str, command: str
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    result = boxcrew(command, "--help")
    assert result.code == 0
    assert max(map(len, result.out.splitlines())) <= 80
    assert f"Usage:\n  boxcrew {command}" in result.out
    _, _, examples = result.out.partition("\nExamples:\n")
    assert examples.count(f"  boxcrew {command}") >= 2
    assert "  --json" in examples
    assert "\b" not in result.out


def test_help_is_found_wherever_it_is_looked_for(boxcrew: Call) -> None:
    of_train = boxcrew("train", "--help")
    assert boxcrew("help", "train").out == of_train.out
    assert boxcrew("train", "-h").out == of_train.out
    assert boxcrew("train", "data=x", "--help").out == of_train.out
    of_all = boxcrew("--help").out
    assert boxcrew("help").out == of_all
    alone = boxcrew()
    assert (alone.code, alone.err) == (2, of_all)
    assert "and what it" in " ".join(of_all.split())  # no line is cut off


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("evaluate", "here it is: boxcrew val"),
        ("detect", "here it is: boxcrew predict"),
        ("data=photos", "for example: boxcrew train data=photos"),
        ("photos", "no such command; there are: compare, data, devices"),
    ],
)
def test_a_wrong_command_gets_a_hint(boxcrew: Call, word: str, message: str) -> None:
    result = boxcrew(word)
    assert result.code == 2
    assert message in result.err
