"""Every command and every piece of Python in the documentation runs."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import numpy as np
import pytest

from boxcrew.cli.main import main
from boxcrew.data.detection.formats.shelf import ShelfSource
from boxcrew.data.examples.formats.embedded import ProductScenes
from boxcrew.data.images.video import VideoFile
from boxcrew.tasks import frechet_features
from tests.helpers.copies import copied
from tests.helpers.once import MakeOnce
from tests.helpers.served import Served, served
from tests.helpers.tiny import TINY, TINY_NET, replaced

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]


def blocks(language: str) -> Iterator[tuple[str, str]]:
    for page in PAGES:
        for i, text in enumerate(re.findall(rf"```{language}\n(.*?)```", page.read_text(), re.DOTALL)):
            yield f"{page.relative_to(ROOT)}:{i}", text


def commands() -> list[tuple[str, str]]:
    """Lines that begin with `$`; the others show what is printed."""
    return [
        (where, line.removeprefix("$ "))
        for where, text in blocks("console")
        for line in text.splitlines()
        if line.startswith("$ ")
    ]


OTHERS = {"fc", "cnn", "rnn", "gan"}
QUICK = ["steps=1", "batch=4", "loader.workers=0", "evaluation.batch=64"]
SHORT = ["task.length=16"]  # texts: what a step of longer ones costs takes long to work out


pytestmark = pytest.mark.usefixtures("undrawn")


def make_small(patch: pytest.MonkeyPatch) -> None:
    """The embedded sets of pictures, and what is learned from one to compare pictures by."""
    patch.setattr(frechet_features, "STEPS", 1)
    patch.setattr(ShelfSource, "num_images", {"train": 12, "val": 4, "test": 4})
    patch.setattr(ProductScenes, "num_images", {"train": 12, "val": 4, "test": 4})


@pytest.fixture(scope="module")
def other_runs(make_once: MakeOnce) -> Path:
    """Of recipes that are not for detectors."""

    def run(folder: Path) -> None:
        with pytest.MonkeyPatch.context() as patch:
            make_small(patch)
            patch.setattr("boxcrew.api.runs._draw", lambda outcome: None)
            for words, place in ((["rnn", *SHORT], "sequence/talk"), (["gan"], "gan/made")):
                patch.setattr(sys, "argv", ["boxcrew", "train", *words, *QUICK, f"out={folder / place}"])
                with pytest.raises(SystemExit):
                    main()

    return make_once("docs", run)


@pytest.fixture
def desk(
    tmp_path: Path,
    tiny_set: Path,
    tiny_run: Path,
    other_runs: Path,
    exported_run: Path,
    traced: None,
    monkeypatch: pytest.MonkeyPatch,
) -> Path:
    """A directory with all that the documentation speaks of."""
    make_small(monkeypatch)
    monkeypatch.setattr("boxcrew.export.costs._SECONDS", 0.001)
    copied(other_runs, tmp_path / "runs")
    shutil.copytree(tiny_set, tmp_path / "photos")
    new = tmp_path / "photos" / "new"
    new.mkdir()
    photo = sorted((tiny_set / "JPEGImages").iterdir())[0]
    shutil.copy(photo, new / "one.png")
    shutil.copy(photo, tmp_path / "photo.jpg")
    write_clip(tmp_path / "clip")
    for name in ("model.onnx", "model-nms.onnx"):
        shutil.copy(exported_run / name, tmp_path / name)
    copied(tiny_run, tmp_path / "runs" / "detect" / "train")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write_clip(stem: Path) -> None:
    """A video of a few frames."""
    clip = VideoFile(stem, (96, 64), 5.0)
    for gray in (0, 100, 200):
        clip.add(np.full((64, 96, 3), gray, dtype=np.uint8))
    clip.close()


def shortened(words: list[str]) -> list[str]:
    """The same command on a network that trains in seconds."""
    if words[0] == "train" and words[1] in OTHERS:
        words = [word for word in words if not word.startswith("name=")]  # they are there
        return replaced(words, [*QUICK, *(SHORT if words[1] == "rnn" else [])])
    if words[0] == "train":
        shared_out = any(word.startswith("deploy.shares=") for word in words)
        batch = "batch=8" if shared_out else "batch=4"  # the starter's, which the shares add up to
        return replaced(words, [*TINY_NET, batch, "steps=1", "loader.workers=0"])
    if words[0] in {"plan", "submit"}:
        return replaced(words, [*TINY, "trial=false"])
    if words[0] == "tune":
        return replaced(words, [*QUICK, "trials=2"])
    if words[0] == "resume":
        return replaced(words, ["epochs=2"])
    return words


@pytest.mark.parametrize(("where", "line"), commands(), ids=lambda value: value[:60])
def test_command(where: str, line: str, desk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = shlex.split(line, comments=True)
    match words[0].removeprefix(".venv/bin/"):
        case "make":
            makefile = (ROOT / "Makefile").read_text()
            for target in words[1:]:
                if "=" not in target:
                    assert re.search(rf"^{target}:", makefile, re.MULTILINE), (where, target)
        case "boxcrew" if words[1] == "serve":
            assert serve(words[2:], desk) == 0, where
        case "boxcrew" if words[1] == "watch":
            settings = [word for word in words[2:] if not word.startswith("port=")]
            with served(*settings, command="watch", ready=False) as page:
                assert page.ask("/").status == 200, where
                assert page.end() == 0, where
        case "curl":
            with served_photos(desk) as service:
                line = line.replace("http://127.0.0.1:8000", service.url)
                subprocess.run(
                    [*shlex.split(line), "--fail", "--silent"], check=True, stdout=subprocess.DEVNULL
                )
        case "boxcrew":
            if "plan=mine.json" in words:  # which the page writes before
                shutil.copy(desk / "runs" / "detect" / "train" / "plan.json", "mine.json")
            monkeypatch.setattr(sys, "argv", ["boxcrew", *shortened(words[1:])])
            with pytest.raises(SystemExit) as stop:
                main()
            assert stop.value.code in {0, None}, where
        case "git" | "cd" | "pip":
            assert len(words) > 1
        case "tensorboard":
            assert shutil.which("tensorboard", path=str(Path(sys.executable).parent)), where
        case other:
            pytest.fail(f"{where}: a command that no test knows: {other}")


def serve(words: list[str], desk: Path) -> int:
    """Begin a service and end it. A run has its exported file already, so that it need not be made."""
    run = desk / "runs" / "detect" / "train"
    if f"run={run.relative_to(desk)}" in words:
        (run / "export" / "model.samples").mkdir(parents=True)
        shutil.copy(desk / "model.onnx", run / "export")
    with served(*words) as service:
        return service.end()


def served_photos(desk: Path) -> AbstractContextManager[Served]:
    """Serve the model that the documentation speaks of."""
    return served(f"run={desk / 'model.onnx'}")


@pytest.mark.parametrize(("where", "text"), list(blocks("python")), ids=lambda value: value[:40])
def test_python(where: str, text: str, desk: Path) -> None:
    with served_photos(desk) if "127.0.0.1:8000" in text else nullcontext() as service:
        text = text.replace("http://127.0.0.1:8000", service.url if service else "")
        exec(compile(text, where, "exec"), {})
    assert desk.is_dir()
