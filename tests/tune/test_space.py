"""The words of a space: ranges, choices, conditions, and what is refused."""

from __future__ import annotations

from typing import Any
from unittest.mock import Mock

import pytest

from boxcrew.api import run_config
from boxcrew.core.errors import UnknownSettingError, UsageError
from boxcrew.tasks.facts import ExampleFacts
from boxcrew.train.config import RunConfig
from boxcrew.tune.choose import choose_space, split_search
from boxcrew.tune.space import Dimension, with_settings
from boxcrew.tune.words import parse_dimension


@pytest.fixture(scope="module")
def starter() -> RunConfig:
    return run_config("starter", {})


@pytest.fixture(scope="module")
def fc() -> RunConfig:
    return run_config("fc", {})


@pytest.mark.parametrize(
    ("key", "word", "shown", "whole"),
    [
        ("optim.rate", "1e-4..1e-2:log", "0.0001 to 0.01, log", False),
        ("size", "192..330:32", "192 to 320 in steps of 32", True),
        ("batch", "4..16", "4 to 16", True),
        ("transforms.expand", "1..4:0.5", "1 to 4 in steps of 0.5", False),
        ("transforms.crop", "true,false", "True, False", False),
        ("optim.clip", "none,1,10", "None, 1.0, 10.0", False),
        ("trainable", [["*"], ["detector.head*"]], '["*"], ["detector.head*"]', False),
        ("init", "pretrained,scratch", "pretrained, scratch", False),
    ],
)
def test_words(starter: RunConfig, key: str, word: Any, shown: str, whole: bool) -> None:
    dimension = parse_dimension(key, word, starter)
    assert str(dimension.model_copy(update={"only": {}})) == shown
    assert dimension.whole is whole
    values = dimension.points()[:1] if dimension.choices else [dimension.low, dimension.high]
    for value in values:  # each is a value that the settings take
        with_settings(starter, {dimension.target: dimension.setting(int(value) if whole else value)})
    assert Dimension.of(dimension.tree()) == dimension


@pytest.mark.parametrize(
    ("key", "word", "problem"),
    [
        ("optim.rte", "1..2", "did you mean 'optim.rate'"),
        ("seed", "1,2", "may not be searched: the best seed is luck"),
        ("data.path", "a,b", "may not be searched"),
        ("loader.workers", "1,2", "may not be searched: it changes the speed"),
        ("optim.rate", "1e-2..1e-3", "no values in between"),
        ("optim.rate", "0..1:log", "input should be greater than 0"),
        ("optim.momentum", "0..0.9:log", "a log range begins above zero"),
        ("optim.rate", "1..", "not a range"),
        ("optim.rate", "fast,slow", "should be a valid number"),
        ("optim.name", "sgd,adamv", "'sgd', 'momentum'"),
        ("optim.name", "sgd", "two or more different values"),
        ("optim.name", "sgd,sgd", "two or more different values"),
        ("optim.name", "1..2", "got '1'"),
        ("batch", "4..16:1.5", "batch is an integer"),
        ("net.dropout", "0,0.5", "no such setting of this recipe"),
        ("transforms.crop", "0..1", "not a setting of numbers"),
    ],
)
def test_what_cannot_be_searched(starter: RunConfig, key: str, word: str, problem: str) -> None:
    with pytest.raises(UsageError, match=problem):
        parse_dimension(key, word, starter)


def test_a_misspelled_setting_is_an_unknown_one(fc: RunConfig) -> None:
    with pytest.raises(UnknownSettingError, match=r"net\.dropout"):
        parse_dimension("net.dropuot", "0..1", fc)


def test_a_setting_matters_only_where_it_has_an_effect(fc: RunConfig) -> None:
    search = {"optim": {"name": "sgd,momentum", "momentum": "0.5..0.9"}}
    space = choose_space(search, fc, Mock())
    name, momentum = space.dimensions  # the one that decides comes first, however they were given
    assert (name.target, momentum.only) == ("optim.name", {"optim.name": momentum.only["optim.name"]})
    assert momentum.matters({"optim.name": "momentum"})
    assert not momentum.matters({"optim.name": "sgd"})
    alone = choose_space({"optim": {"momentum": "0.5..0.9"}}, fc, Mock())  # with adamw, which has one
    assert alone.dimensions[0].only == {}
    with pytest.raises(UsageError, match=r"has no effect with optim.name=sgd"):
        choose_space({"optim": {"momentum": "0.5..0.9"}}, with_settings(fc, {"optim.name": "sgd"}), Mock())


def test_another_optimizer_keeps_what_does_not_belong_to_it(starter: RunConfig) -> None:
    config = with_settings(starter, {"optim.name": "nesterov"})
    assert (config.optim.ema, config.optim.clip) == (starter.optim.ema, starter.optim.clip)
    assert config.optim.rate == 1e-3  # its own default, not that of the recipe's optimizer
    assert with_settings(starter, {"optim.rate": 0.5}).optim.ema == starter.optim.ema


@pytest.mark.parametrize(
    ("recipe", "kind"),
    [
        ("starter", ""),
        ("yolo", ""),
        ("cnn", "images"),
        ("fc", "numbers"),
        ("rnn", "tokens"),
        ("gan", "images"),
    ],
)
def test_ready_spaces_suit_the_recipe_and_the_data(recipe: str, kind: str) -> None:
    base, task_data = run_config(recipe, {}), Mock()
    if kind:
        task_data.facts = Mock(spec=ExampleFacts)
        task_data.facts.kind = kind
    for name in ("default", "optimizer", "augmentation", "all"):
        space = choose_space(name, base, task_data)
        assert space.params_of(base), name  # the recipe is in its own space, if only in part
        for dimension in space.dimensions:
            for value in dimension.points() if dimension.choices else (dimension.low, dimension.high):
                chosen = {key: values[0] for key, values in dimension.only.items()}
                setting = dimension.setting(int(value) if dimension.whole else value)
                with_settings(base, {**chosen, dimension.target: setting})


def test_a_single_setting_replaces_that_of_a_ready_space(starter: RunConfig) -> None:
    both = choose_space({"": "default", "optim": {"rate": "1,2"}}, starter, Mock())
    assert [each.choices for each in both.dimensions if each.target == "optim.rate"] == [(1.0, 2.0)]
    with pytest.raises(UsageError, match="did you mean 'optimizer'"):
        split_search("optimiser")
