"""A run's past is guarded: files that were edited or damaged after it began do not change it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from boxcrew.core.config import Tree, read_yaml, to_yaml
from boxcrew.core.errors import ModelError, UsageError
from boxcrew.train.config import RunConfig
from boxcrew.train.output.screen import Screen
from boxcrew.train.run import resume
from boxcrew.train.run.directory import STAGES
from boxcrew.train.run.record import FILES, newest_stored, warn_of_damage
from boxcrew.train.run.stored_settings import resumed_settings, stored_settings
from tests.helpers.copies import copied


def _fail(text: str) -> None:
    raise AssertionError(f"nothing is wrong, but: {text}")


@pytest.fixture
def run(tiny_run: Path, tmp_path: Path) -> Path:
    """A copy of a finished run, whose files may be damaged."""
    return copied(tiny_run, tmp_path / "run")


@pytest.fixture
def began(tiny_run: Path) -> Tree:
    return read_yaml(tiny_run / "config.yaml")


def _edit(run: Path, change: Callable[[Tree], object]) -> None:
    tree = read_yaml(run / "config.yaml")
    change(tree)
    (run / "config.yaml").write_text(yaml.safe_dump(tree, sort_keys=False))


def test_a_checkpoint_carries_the_settings_it_was_made_with(tiny_run: Path, began: Tree) -> None:
    stored = newest_stored(tiny_run)
    assert stored is not None
    assert RunConfig.of(stored.config) == RunConfig.of(began)
    assert stored_settings(tiny_run, _fail) == RunConfig.of(began)


@pytest.mark.parametrize("part", [0.0, 0.3, 0.5, 0.8, 0.97])
def test_a_cut_config_yaml_is_said_and_changes_nothing(run: Path, began: Tree, part: float) -> None:
    file = run / "config.yaml"
    text = file.read_text()
    file.write_text(text[: int(part * len(text))])
    warnings: list[str] = []
    assert stored_settings(run, warnings.append) == RunConfig.of(began)
    (warning,) = warnings
    assert warning.startswith(f"{file}: ")
    assert warning.endswith(f"the settings in {run / 'checkpoints' / '00000003'} are used")


@pytest.mark.parametrize("content", [None, b"\xff\x00\x81", b"a: [", b"just words"])
def test_a_lost_or_unreadable_config_yaml_is_said_and_changes_nothing(
    run: Path, began: Tree, content: bytes | None
) -> None:
    (run / "config.yaml").unlink()
    if content is not None:
        (run / "config.yaml").write_bytes(content)
    warnings: list[str] = []
    config = resumed_settings(run, {"steps": 4}, warnings.append)
    assert len(warnings) == 1
    assert config == RunConfig.of(began).changed({"steps": 4, "out": str(run)})


def test_an_edited_config_yaml_that_would_change_the_past_is_refused_by_name(run: Path, began: Tree) -> None:
    _edit(run, lambda tree: tree["optim"].update(rate=0.7))
    rate = began["optim"]["rate"]
    with pytest.raises(UsageError) as caught:
        resume(run, {"steps": 4}, Screen())
    expected = f"{run / 'config.yaml'}: optim.rate: 0.7: the run was started with {rate}"
    assert caught.value.message.startswith(expected)
    assert f"remove {run / 'config.yaml'}" in caught.value.advice
    assert "init=resume" in caught.value.advice
    restored = resumed_settings(run, {"steps": 4, "optim": {"rate": rate}}, _fail)
    assert restored.optim.rate == rate, "the command line can take the edit back"


def test_a_setting_that_does_not_exist_is_refused_with_the_file(run: Path) -> None:
    _edit(run, lambda tree: tree["optim"].update(speed=3))
    with pytest.raises(UsageError, match=r"optim\.speed: no such setting") as caught:
        stored_settings(run, _fail)
    assert caught.value.message.startswith(str(run / "config.yaml"))
    assert "remove" in caught.value.advice


def test_an_edit_that_says_nothing_about_the_past_is_accepted_and_recorded(run: Path, began: Tree) -> None:
    """Also a word of the command line beside it; damaged records are said and written again."""

    def change(tree: Tree) -> None:
        tree["steps"] = 4

    _edit(run, change)
    wrong = {name: (run / name).read_text() for name in FILES}
    for name in FILES:
        (run / name).write_text("{")
    (run / "evaluation.json").write_text("")
    resume(run, {"saver": {"keep": 3}}, Screen())
    (line,) = (run / "changes.jsonl").read_text().splitlines()
    changes = {"saver.keep": {"from": 2, "to": 3}, "steps": {"from": 3, "to": 4}}
    assert json.loads(line)["changes"] == changes
    log = (run / "train.log").read_text()
    for name, text in wrong.items():
        assert f"{run / name}: missing or damaged; it is written again" in log
        assert json.loads((run / name).read_text()).keys() == json.loads(text).keys()
    assert (run / "init.json").read_text() == wrong["init.json"], "that of the first start"
    assert f"{run / 'evaluation.json'}: damaged" in log
    assert json.loads((run / "summary.json").read_text())["steps"] == 4


def test_whole_files_are_not_complained_about(tiny_run: Path) -> None:
    warn_of_damage(tiny_run, _fail)


@pytest.fixture
def staged(tmp_path: Path) -> RunConfig:
    """The settings of a run with stages, of which none has a checkpoint yet."""
    config = RunConfig(epochs=7, out=tmp_path)
    stages = {"stages": [{"folder": "1-one"}], "config": config.tree()}
    (tmp_path / STAGES).write_text(json.dumps(stages))
    return config


def test_a_run_with_stages_is_guarded_too(tmp_path: Path, staged: RunConfig) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(to_yaml(staged))
    assert stored_settings(tmp_path, _fail) == staged
    file.write_text(to_yaml(staged)[:900])
    warnings: list[str] = []
    assert stored_settings(tmp_path, warnings.append) == staged
    assert f"the settings in {tmp_path / STAGES} are used" in warnings[0]
    file.write_text(to_yaml(staged.changed({"seed": 5})))
    with pytest.raises(UsageError, match="seed: 5: the run was started with 0"):
        resumed_settings(tmp_path, {}, _fail)


@pytest.mark.parametrize("content", ["", "{}", '{"stages": []}', '{"stages": [{"folder": "1-one"}]}', "[]"])
def test_a_damaged_list_of_stages_is_refused_by_name(tmp_path: Path, staged: RunConfig, content: str) -> None:
    (tmp_path / STAGES).write_text(content)
    with pytest.raises(ModelError, match=f"{STAGES}: damaged"):
        stored_settings(tmp_path, _fail)
