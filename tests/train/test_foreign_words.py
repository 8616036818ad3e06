"""Words of other tools are answered with the settings of this one."""

from __future__ import annotations

import re

import pytest

from boxcrew.api.runs import run_config
from boxcrew.cli.predict import ClassifyConfig, ContinueTextConfig, DetectConfig, GenerateConfig
from boxcrew.core.config import Tree
from boxcrew.core.errors import UnknownSettingError, UsageError
from boxcrew.tasks.base import TASKS, task_config_class
from boxcrew.train.foreign_words import HINTS, with_hint
from boxcrew.train.run.validate import ValConfig
from boxcrew.train.settings_reference import list_settings

PREDICT = (ClassifyConfig, ContinueTextConfig, DetectConfig, GenerateConfig)


def run_keys() -> set[str]:
    """Every key of a run's settings, as a user writes them."""
    keys = {setting.key for setting in list_settings()}
    groups = {key.rpartition(".")[0] for key in keys}
    aliases = {alias for name in TASKS.names() for alias in task_config_class(name).aliases}
    return keys | groups | aliases | {"recipe", "run"}


def known_keys(command: str) -> set[str]:
    if command == "val":
        return set(ValConfig.model_fields)
    return run_keys() if command == "train" else {key for kind in PREDICT for key in kind.model_fields}


@pytest.mark.parametrize("command", HINTS)
def test_every_hint_names_settings_that_exist(command: str) -> None:
    for word, hint in HINTS[command].items():
        of_training = "in training" in hint
        known = run_keys() if of_training else known_keys(command)
        named = re.findall(r"([\w.]+)=", hint.replace("key=value", ""))
        assert set(named) <= known, (word, hint)


@pytest.mark.parametrize("command", ["train", "val"])
def test_no_word_of_the_table_is_a_setting(command: str) -> None:
    assert not HINTS[command].keys() & known_keys(command)


@pytest.mark.parametrize(
    ("word", "hint"),
    [
        ("lr", "here it is optim.rate="),
        ("imgsz", "here it is size="),
        ("momentum", "here it is optim.momentum="),
        ("patience", "here it is evaluation.patience="),
        ("workers", "here it is loader.workers="),
        ("cache", "here it is loader.cache="),
        ("weight_decay", "here it is optim.weight_decay="),
        ("label_smoothing", "here it is detector.label_smoothing="),
        ("nc", "there is none here: classes are read from the data"),
        ("LR", "here it is optim.rate="),
    ],
)
def test_a_word_of_another_tool_is_translated(word: str, hint: str) -> None:
    with pytest.raises(UsageError, match=rf"^{word}: no such setting; {re.escape(hint)}"):
        run_config(None, {word: "1"})


def test_groups_and_all_foreign_words_are_translated_at_once() -> None:
    with pytest.raises(UsageError, match=r"^optim.lr: no such setting; here it is optim.rate=$"):
        run_config(None, {"optim": {"lr": 0.1}})
    with pytest.raises(UsageError) as caught:
        run_config(None, {"epochs": 3, "imgsz": 640, "nc": 3})
    assert caught.value.advice == "nc: there is none here: classes are read from the data"


@pytest.mark.parametrize(
    ("settings", "hint"),
    [
        ({"init": {"checkpoint": "x"}}, "init.checkpoint: no such setting; only with init=finetune"),
        ({"detector": {"name": "ssdlite", "scales": "voc"}}, "detector.scales: no such setting; only with"),
        ({"net": {"width": 3}}, "net: no such setting; only with task=classification or task=sequence"),
        ({"augment": {"mixup": 3}}, "augment: no such setting; only with task=classification or"),
    ],
)
def test_a_setting_of_another_choice_is_said_to_be_one(settings: Tree, hint: str) -> None:
    with pytest.raises(UsageError) as caught:
        run_config(None, settings)
    assert caught.value.message.startswith(hint)


def test_a_name_in_the_wrong_group_or_in_short_is_found() -> None:
    for settings, hint in (
        ({"saver": {"steps": 2}}, "here it is saver.every_steps="),
        ({"optim": {"patience": 2}}, "here it is evaluation.patience="),
    ):
        with pytest.raises(UsageError, match=rf"no such setting; {re.escape(hint)}$"):
            run_config(None, settings)


def test_the_length_of_the_run_is_not_offered_for_a_setting_of_a_group() -> None:
    with pytest.raises(UnknownSettingError) as caught:
        run_config(None, {"evaluation": {"steps": 2}})
    assert "here it is" not in caught.value.message


def test_each_command_has_its_own_words() -> None:
    hints = {
        command: with_hint(UnknownSettingError("conf", "there are: …"), ["conf"], command=command).message
        for command in ("train", "predict", "val")
    }
    assert "here it is detector.score_threshold=" in hints["train"]
    assert "here it is score=" in hints["predict"]
    assert "AP is measured over all scores" in hints["val"]


def test_a_word_that_nobody_uses_keeps_its_suggestion() -> None:
    error = UnknownSettingError("epohcs", "did you mean 'epochs'?")
    assert with_hint(error, ["epohcs"]) is error
