"""The directory that a run gets, and those that it may not use."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from boxcrew.core.errors import UsageError
from boxcrew.train.run.directory import choose_folder, locked_folder, require_run

USUAL = Path("detect/train")


def make_run(folder: Path) -> Path:
    folder.mkdir(parents=True)
    for name in ("config.yaml", "plan.json"):
        (folder / name).write_text("{}")
    return folder


def test_the_first_free_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names = []
    for _ in range(3):
        folder = choose_folder(None, USUAL)
        assert not folder.exists(), "nothing is made yet"
        folder.mkdir(parents=True)
        names.append(folder.as_posix())
    assert names == ["runs/detect/train", "runs/detect/train-2", "runs/detect/train-3"]
    assert choose_folder(None, Path("detect/cups")).as_posix() == "runs/detect/cups"


def test_runs_that_begin_at_once_get_a_name_each(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Eight processes, all of which have seen that the first names are free."""
    monkeypatch.chdir(tmp_path)
    release, answers = os.pipe(), os.pipe()
    children = []
    for _ in range(8):
        child = os.fork()
        if child == 0:
            monkeypatch.setattr(Path, "exists", lambda self: False)
            os.read(release[0], 1)
            with locked_folder(None, Path("detect/cups"), print) as folder:
                os.write(answers[1], f"{folder.name}\n".encode())
                (folder / "config.yaml").touch()
                time.sleep(0.5)  # so that none takes a name that another has given back
            os._exit(0)
        children.append(child)
    os.write(release[1], b"." * 8)
    for child in children:
        assert os.waitpid(child, 0)[1] == 0
    names = os.read(answers[0], 4096).decode().split()
    assert sorted(names) == ["cups", *(f"cups-{number}" for number in range(2, 9))]
    assert sorted(p.name for p in (tmp_path / "runs" / "detect").iterdir()) == sorted(names)


def test_a_name_that_leads_nowhere_is_not_free(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs" / "detect").mkdir(parents=True)
    (tmp_path / "runs" / "detect" / "train").symlink_to("gone")
    with locked_folder(None, USUAL, print) as folder:
        assert folder.name == "train-2"
    assert not folder.exists(), "nothing came into it"


def test_runs_that_lead_nowhere_are_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs").symlink_to("not-mounted")
    with pytest.raises(UsageError, match="cannot be written to"), locked_folder(None, USUAL, print):
        pass


def test_out_is_the_directory_itself(tmp_path: Path) -> None:
    assert choose_folder(tmp_path / "new", USUAL) == tmp_path / "new"
    assert choose_folder(tmp_path, USUAL) == tmp_path, "an empty one may be used"
    run = make_run(tmp_path / "run")
    assert choose_folder(run, USUAL) == run


@pytest.mark.parametrize("name", ["photo.jpg", "config.yaml", ".hidden"])
def test_a_directory_with_something_else_in_it_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("mine")
    with pytest.raises(UsageError, match="not empty, and not a run") as caught:
        choose_folder(tmp_path, USUAL)
    assert str(tmp_path) in caught.value.message
    with pytest.raises(UsageError, match="is a file"):
        choose_folder(tmp_path / name, USUAL)


def test_only_a_run_is_a_run(tmp_path: Path) -> None:
    assert require_run(make_run(tmp_path / "run")) == tmp_path / "run"
    for place in (tmp_path, tmp_path / "absent"):
        with pytest.raises(UsageError, match="not a run directory") as caught:
            require_run(place)
        assert str(place) in caught.value.message
