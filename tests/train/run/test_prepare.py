"""What cannot work is refused before the data is read."""

from __future__ import annotations

from pathlib import Path

import pytest

from boxcrew.core.errors import BoxcrewError, ModelError, UsageError
from boxcrew.train.config import RunConfig
from boxcrew.train.output.screen import Screen
from boxcrew.train.run import resume, train


@pytest.fixture(autouse=True)
def unread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading the data is an error."""

    def open_task(*_: object) -> None:
        raise AssertionError("the data was read")

    monkeypatch.setattr("boxcrew.train.run.prepare.open_task", open_task)


def write_weights(folder: Path) -> dict[str, Path]:
    """Files that are no weights, by what they are."""
    contents = {
        "film.mp4": b"\x00\x00\x00\x20ftypisom" + bytes(100),
        "words.txt": b"not weights",
        "words.pth": b"not weights",
        "empty.safetensors": b"",
        "without.safetensors": (2).to_bytes(8, "little") + b"{}",
    }
    files = {name: folder / name for name in contents}
    for name, path in files.items():
        path.write_bytes(contents[name])
    return files


@pytest.mark.parametrize(
    "name", ["film.mp4", "words.txt", "words.pth", "empty.safetensors", "without.safetensors"]
)
@pytest.mark.parametrize("setting", ["weights", "checkpoint"])
def test_a_file_that_is_no_weights_is_refused_before_data_is_read(
    tmp_path: Path, name: str, setting: str
) -> None:
    file = write_weights(tmp_path)[name]
    kind = {"weights": "pretrained", "checkpoint": "finetune"}[setting]
    config = RunConfig(steps=1, out=tmp_path / "run").changed({"init": {"kind": kind, setting: str(file)}})
    with pytest.raises(ModelError) as caught:
        train(config, Screen())
    assert caught.value.message.startswith(str(file))
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("init", "message"),
    [
        ({"kind": "finetune", "checkpoint": "nope"}, "nope: no such run or weight file"),
        ({"kind": "pretrained", "weights": "nope"}, "init.weights=nope: neither a weight file nor a network"),
        ({"kind": "pretrained", "weights": "nope.pth"}, "nope.pth: no such weight file"),
        ({"kind": "resume", "run": "nope"}, "nope: not a run directory"),
    ],
)
def test_weights_that_do_not_exist_are_refused_before_data_is_read(
    tmp_path: Path, init: dict[str, str], message: str
) -> None:
    with pytest.raises(BoxcrewError, match=message):
        train(RunConfig(steps=1, out=tmp_path / "run").changed({"init": init}), Screen())


def test_a_finished_run_is_refused_before_data_is_read(tiny_run: Path) -> None:
    with pytest.raises(UsageError, match="already finished at step 3"):
        resume(tiny_run, {}, Screen())
