from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

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


def test_a_fault_of_ours_is_said_to_be_one(boxcrew: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    from boxcrew.cli import main as module

    def fails(*_: object, **__: object) -> None:
        raise ZeroDivisionError("oops")

    monkeypatch.setattr("boxcrew.cli.recipes.recipes_command", fails)
    monkeypatch.setattr(sys, "argv", ["boxcrew", "recipes"])
    with pytest.raises(ZeroDivisionError):
        module.main()
    assert sys.excepthook is module._one_line
