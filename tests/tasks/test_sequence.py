"""Running text: what of the settings it takes, and what it must refuse."""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch

from boxcrew.core.config import Tree
from boxcrew.core.errors import UsageError
from boxcrew.data.config import DataConfig
from boxcrew.data.loading.workers import Workers
from boxcrew.nets.class_losses import cross_entropy
from boxcrew.nets.layers import eval_mode
from boxcrew.tasks.data import EvalOptions, LoaderOptions, OpenOptions
from boxcrew.tasks.sequence import LanguageEvaluation, LanguageTask, SequenceConfig, SequenceData
from boxcrew.train.config import RunConfig
from boxcrew.train.output.screen import Screen
from boxcrew.train.run.setup import RunSetup
from tests.helpers.plans import plan_of

FEED = LoaderOptions(batch=8, seed=5)


@pytest.fixture
def text(tmp_path: Path) -> Path:
    file = tmp_path / "tea.txt"
    file.write_text("the tea is on the shelf, and the cup is beside it. " * 40)
    return file


@pytest.fixture
def words(tmp_path: Path) -> Path:
    folder = tmp_path / "words"
    folder.mkdir()
    for name in ("tea", "cup"):
        (folder / f"{name}.txt").write_text("".join(f"the {name} no {i}\n" for i in range(30)))
    return folder


def opened(place: Path, **settings: Any) -> SequenceData:
    tree: Tree = {"net": {"name": "rnn", "hidden": 8}, "length": 16, **settings}
    return SequenceData.open(SequenceConfig.of(tree), OpenOptions(data=DataConfig(path=str(place)), seed=0))


def task_of(task_data: SequenceData) -> LanguageTask:
    torch.manual_seed(0)
    task = task_data.task()
    assert isinstance(task, LanguageTask)
    return task


def test_hidden_characters_are_foretold_all_the_same(text: Path) -> None:
    task_data = opened(text, augment={"drop_tokens": 0.5})
    task = task_of(task_data)
    hidden, whole = (next(data.loader(FEED).batches()) for data in (task_data, opened(text)))
    assert (hidden.inputs != whole.inputs).float().mean() > 0.4
    wanted, _ = cross_entropy(task.net(hidden.inputs[:, :-1]), whole.inputs[:, 1:])
    torch.testing.assert_close(task(hidden).terms["character"], wanted)
    first, second = (task(part) for part in hidden.split([3, 5]))
    torch.testing.assert_close((first + second).terms["character"], wanted)


def test_weights_are_kept_small(text: Path) -> None:
    task_data = opened(text, l1=0.5)
    task = task_of(task_data)
    losses = task(next(task_data.loader(FEED).batches()))
    size = sum(float(p.detach().abs().sum()) for p in task.parameters() if p.ndim > 1)
    assert float(losses.terms["l1"].detach() / losses.weight) == pytest.approx(0.5 * size, rel=1e-5)


@pytest.mark.parametrize("setting", ["focal", "class_weights", "balanced", "check_labels"])
def test_what_is_set_about_classes_is_refused(text: Path, words: Path, setting: str) -> None:
    with pytest.raises(UsageError, match=f"task.{setting}: this is running text, which has no classes"):
        opened(text, **{setting: 1})
    assert opened(words, **{setting: 1}).examples.classes == ("cup", "tea")


def test_a_network_that_cannot_go_on_with_text_is_refused(text: Path) -> None:
    with pytest.raises(UsageError, match="net=fc: cannot continue running text") as raised:
        opened(text, net="fc").task()
    assert "net=rnn" in raised.value.advice
    with pytest.raises(UsageError, match="bidirectional"):
        opened(text, net={"name": "rnn", "bidirectional": True}).task()


def prepared(task_data: SequenceData, metric: str, folder: Path) -> RunSetup:
    config = RunConfig.of(
        {"task": task_data.config, "epochs": 1, "batch": 4, "evaluation": {"metric": metric}}
    )
    return RunSetup.of(config, plan_of(4), task_data, task=task_data.task(), folder=folder, screen=Screen())


def test_best_can_only_mean_what_is_measured(text: Path, tmp_path: Path) -> None:
    task_data = opened(text)
    for metric in ("auto", "val_loss", "perplexity", "bits"):
        prepared(task_data, metric, tmp_path)
    for metric in ("accuracy", "F1"):
        with pytest.raises(UsageError, match=f"evaluation.metric={metric}: not measured on this data"):
            prepared(task_data, metric, tmp_path)


def test_of_classes_others_are_measured(words: Path, tmp_path: Path) -> None:
    task_data = opened(words)
    prepared(task_data, "accuracy", tmp_path)
    for metric in ("perplexity", "bits", "accuracy5"):
        with pytest.raises(UsageError, match=f"evaluation.metric={metric}: ") as raised:
            prepared(task_data, metric, tmp_path)
        assert raised.value.advice == "it has val_loss, accuracy, F1, ECE"


TOLD = "hag gab" + "fade" * 10 + "?"  # after a first character; the last is not known


@pytest.fixture
def measured(tmp_path: Path) -> Path:
    """A text to be examined with, of which 48 characters are told and then 5 do not fill a window."""
    folder = tmp_path / "measured"
    folder.mkdir()
    (folder / "train.txt").write_text("a cab, a bad cafe, a decade " * 10 + "gh")
    (folder / "val.txt").write_text("d" + TOLD + "bcdef")
    return folder


def evaluated(task_data: SequenceData, task: LanguageTask) -> LanguageEvaluation:
    with eval_mode(task):
        evaluation = task_data.evaluate(task, lambda inputs: inputs, EvalOptions(batch=2, workers=Workers()))
    assert isinstance(evaluation, LanguageEvaluation)
    return evaluation


def indifferent(task_data: SequenceData) -> LanguageTask:
    """A model that gives the same score to every character."""
    task = task_of(task_data)
    with torch.no_grad():
        for parameter in task.parameters():
            parameter.zero_()
    return task


@pytest.mark.parametrize("tied", [False, True])
def test_who_knows_nothing_has_the_whole_alphabet_before_them(measured: Path, tied: bool) -> None:
    task_data = opened(measured, net={"name": "rnn", "hidden": 8, "tied": tied})
    num = len("abcdefgh ,") + 1  # those that are not known are one more
    evaluation = evaluated(task_data, indifferent(task_data))
    assert dict(evaluation.numbers) == pytest.approx(
        {"val_loss": math.log(num), "perplexity": num, "bits": math.log2(num)}, rel=1e-5
    )
    assert evaluation.report.num_characters == len(TOLD) == 48
    assert evaluation.sentence().endswith(" 48 characters")


def test_it_is_measured_by_the_characters_that_come_next(measured: Path) -> None:
    """The loss of a model that knows only how frequent characters are; windows differ in difficulty."""
    task_data = opened(measured)
    task = indifferent(task_data)
    alphabet = "\N{REPLACEMENT CHARACTER}" + task_data.facts.encoding["alphabet"]
    chances = {
        character: (place + 1) / sum(range(len(alphabet) + 1)) for place, character in enumerate(alphabet)
    }
    with torch.no_grad():
        bias = task.net.get_parameter("model.head.bias")
        bias.copy_(torch.tensor([chances[character] for character in alphabet]).log())
    counts = Counter(TOLD.replace("?", alphabet[0]))
    nats = -sum(count * math.log(chances[character]) for character, count in counts.items())
    assert evaluated(task_data, task).numbers["val_loss"] == pytest.approx(nats / 48, rel=1e-5)
