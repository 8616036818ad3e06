"""Augmentation is for a kind of data: where it would do nothing, it is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from boxcrew.core.errors import UsageError
from boxcrew.data.config import DataConfig
from boxcrew.data.examples.example_set import InputKind
from boxcrew.recipes import RECIPES
from boxcrew.tasks.augmentation import AugmentConfig
from boxcrew.tasks.base import TASKS
from boxcrew.tasks.data import OpenOptions, TaskData
from boxcrew.tasks.facts import DataFacts
from tests.helpers.made_examples import make_csv, make_text, write_classes

VALUES: dict[str, Any] = {
    "flip": 0.5,
    "shift": 2,
    "erase": 0.1,
    "policy": "randaugment",
    "drop_tokens": 0.1,
    "mixup": 0.2,
    "cutmix": 1.0,
}
PICTURES = {"flip", "shift", "erase", "policy"}
MIXES = {"mixup", "cutmix"}


@pytest.mark.parametrize(
    ("kind", "taken"),
    [("images", PICTURES | MIXES), ("numbers", MIXES), ("tokens", {"drop_tokens"})],
)
def test_what_does_nothing_to_the_data_is_refused(kind: InputKind, taken: set[str]) -> None:
    assert VALUES.keys() == AugmentConfig.model_fields.keys()
    AugmentConfig().require_for(kind)
    for name, value in VALUES.items():
        config = AugmentConfig.of({name: value})
        if name in taken:
            config.require_for(kind)
            changes = config.augmentation(kind)
            assert changes.augment is not None or changes.mix is not None
            continue
        with pytest.raises(UsageError, match=f"^augment.{name}={value}: for ") as raised:
            config.require_for(kind)
        assert raised.value.exit_code == 2
        assert raised.value.advice == f"augment.{name}={'none' if name == 'policy' else 0}"


def opened(
    recipe: str, place: Path, augment: dict[str, Any] | None = None, facts: DataFacts | None = None
) -> TaskData:
    config = RECIPES.get(recipe)().changed({"augment": augment} if augment else {})
    kind = TASKS.get(config.task.name)
    return kind.open(config.task, OpenOptions(data=DataConfig(path=str(place)), seed=0), facts)


def write_words(folder: Path) -> Path:
    folder.mkdir()
    for name in ("one", "two"):
        (folder / f"{name}.txt").write_text("".join(f"{name}{index}\n" for index in range(30)))
    return folder


def test_it_is_refused_when_the_data_is_opened(tmp_path: Path) -> None:
    words = write_words(tmp_path / "words")
    with pytest.raises(UsageError, match=r"augment.flip=0.5: for images; the data holds texts"):
        opened("rnn", words, {"flip": 0.5})
    with pytest.raises(UsageError, match=r"augment.flip=0.5: for images; the data holds tables"):
        opened("fc", make_csv(tmp_path), {"flip": 0.5})
    with pytest.raises(UsageError, match=r"^augment.flip=0.5 augment.mixup=0.2: for images and") as raised:
        opened("rnn", words, {"flip": 0.5, "mixup": 0.2})
    assert raised.value.advice == "augment.flip=0 augment.mixup=0"
    learned = opened("rnn", words).facts
    opened("rnn", words, {"flip": 0.5}, facts=learned)  # a network of before can still be examined


def test_recipes_take_all_data_that_they_are_for(tmp_path: Path) -> None:
    write_classes(tmp_path / "pictures", {"a": 10, "b": 10})
    for recipe in ("fc", "cnn", "rnn", "gan"):
        assert opened(recipe, tmp_path / "pictures").num_train == 16
    assert opened("fc", make_csv(tmp_path)).num_train
    assert opened("rnn", make_text(tmp_path)).num_train
    assert opened("rnn", write_words(tmp_path / "words")).num_train
