"""Settings reach what they set, and training is told what is wrong with its data."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from timm.layers import DropPath
from torch import Tensor, nn

from boxcrew.core.errors import UsageError
from boxcrew.core.types import Batch, Ints
from boxcrew.data.examples.example_set import Array, ExampleSet, ExampleSplit, Fetched, InMemory, InputKind
from boxcrew.data.loading.workers import Workers
from boxcrew.evaluate.advice import ADD_EXAMPLES, Advice
from boxcrew.evaluate.classification import ClassificationEvaluation
from boxcrew.evaluate.label_noise import label_noise
from boxcrew.nets.layers import eval_mode
from boxcrew.tasks.classification import ClassificationConfig, ClassificationData, ClassificationTask
from boxcrew.tasks.data import EvalOptions, LoaderOptions
from boxcrew.tasks.facts import ExampleFacts
from boxcrew.tasks.quick_training import out_of_fold
from boxcrew.train.loop.optim import OptimConfig, optimizer_of

CLASSES = ("cup", "bowl", "hat")
FC = {"name": "fc", "widths": [8]}
LINEAR: dict[str, Any] = {"name": "fc", "widths": []}


def subject_of(train: ExampleSplit, val: ExampleSplit | None = None, **settings: Any) -> ClassificationData:
    """Return the data of examples in memory, for a small network by default."""
    inputs = train.fetch([0]).inputs
    kind: InputKind = "images" if inputs.ndim == 4 else "numbers"
    examples = ExampleSet(
        root=Path("made"),
        format="made",
        kind=kind,
        classes=CLASSES,
        shape=inputs.shape[1:],
        splits={"train": train, "val": val or train},
    )
    known = ExampleFacts(classes=CLASSES, kind=kind, shape=examples.shape, encoding={})
    return ClassificationData(
        config=ClassificationConfig.of({"net": FC, **settings}),
        examples=examples,
        train=train,
        val=val or train,
        known=replace(known, mean=(0.5,), std=(0.25,)) if kind == "images" else known,
    )


def task_of(task_data: ClassificationData) -> ClassificationTask:
    torch.manual_seed(0)
    task = task_data.task()
    assert isinstance(task, ClassificationTask)
    return task


def batch_of(inputs: Tensor, labels: Tensor) -> Batch:
    return Batch(inputs=inputs, targets={"labels": labels}, keys=("",) * len(labels))


def scored(labels: list[int] | Ints, *, shown: list[int] | Ints | None = None) -> InMemory:
    """Rows that are the scores themselves, of the classes that are `shown`; else of those of the labels."""
    label_array = np.asarray(labels, dtype=np.int64)
    inputs = 5 * np.eye(len(CLASSES), dtype=np.float32)[label_array if shown is None else np.asarray(shown)]
    return InMemory(inputs, label_array, "row")


def clouds(num: int, *, wrong: int = 0) -> tuple[InMemory, set[int]]:
    """Rows of two numbers in three places, and which of their labels are wrong."""
    draw = np.random.default_rng(0)
    true = np.arange(num) % len(CLASSES)
    centers = np.array([[0, 3], [3, -2], [-3, -2]])
    inputs = (centers[true] + draw.normal(scale=0.5, size=(num, 2))).astype(np.float32)
    labels = true.copy()
    places = draw.choice(num, size=wrong, replace=False)
    labels[places] = (true[places] + 1) % len(CLASSES)
    return InMemory(inputs, labels, "row"), set(places.tolist())


def pictures(num: int = 12) -> InMemory:
    draw = np.random.default_rng(0)
    inputs = draw.integers(0, 256, (num, 16, 16, 1)).astype(np.uint8)
    return InMemory(inputs, np.arange(num) % len(CLASSES), "picture")


def first_inputs(task_data: ClassificationData) -> Tensor:
    return next(task_data.loader(LoaderOptions(batch=12, seed=0)).batches()).inputs


def test_classes_are_balanced_once() -> None:
    with pytest.raises(UsageError, match=r"task.class_weights=true with task.balanced=true"):
        ClassificationConfig.of({"class_weights": True, "balanced": True})


def test_the_focal_loss_has_no_smoothing() -> None:
    with pytest.raises(UsageError, match=r"task.smoothing=0.1 with task.focal=2") as raised:
        ClassificationConfig.of({"focal": 2, "smoothing": 0.1})
    assert "task.smoothing=0" in raised.value.advice
    ClassificationConfig.of({"focal": 2})
    ClassificationConfig.of({"smoothing": 0.1})


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"smoothing": 0.3},
        {"focal": 2.0},
        {"class_weights": True},
        {"class_weights": True, "focal": 1.5},
    ],
)
def test_the_loss_is_the_one_that_is_set(settings: dict[str, Any]) -> None:
    counts = [6, 3, 1]
    task_data = subject_of(scored(np.repeat(np.arange(3), counts)), net=LINEAR, **settings)
    task = task_of(task_data)
    inputs, labels = torch.randn(5, 3), torch.tensor([0, 1, 2, 2, 0])
    logs = task.net(inputs).log_softmax(dim=1)
    own = logs[torch.arange(5), labels]
    smoothing, focal = settings.get("smoothing", 0.0), settings.get("focal", 0.0)
    each = -(1 - smoothing) * own - smoothing * logs.mean(dim=1)
    each = each * (1 - own.exp()) ** focal
    weights = torch.ones(5)
    if settings.get("class_weights"):
        weights = torch.tensor([sum(counts) / (len(counts) * counts[label]) for label in labels.tolist()])
    losses = task(batch_of(inputs, labels))
    torch.testing.assert_close(losses.terms["class"], (weights * each).sum())
    torch.testing.assert_close(losses.weight, weights.sum())


@pytest.mark.parametrize("max_norm", [None, 0.5])
def test_weights_stay_within_the_norm_that_is_set(max_norm: float | None) -> None:
    task = task_of(subject_of(scored([0, 1, 2]), max_norm=max_norm))
    optimizer = optimizer_of(task, OptimConfig(name="sgd", rate=10.0))
    task(batch_of(torch.randn(6, 3), torch.arange(6) % 3)).terms["class"].backward()
    optimizer.step()
    layers = [layer for layer in task.modules() if isinstance(layer, nn.Linear)]
    longest = max(float(layer.weight.detach().norm(dim=1).max()) for layer in layers)
    assert longest > 1 if max_norm is None else longest <= max_norm + 1e-5


@pytest.mark.parametrize(("balanced", "least"), [(False, 0), (True, 100)])
def test_classes_are_seen_equally_often_if_that_is_set(balanced: bool, least: int) -> None:
    task_data = subject_of(scored(np.repeat(np.arange(3), [270, 20, 10])), balanced=balanced)
    batches = task_data.loader(LoaderOptions(batch=150, seed=0)).batches(num_steps=3)
    counts = np.bincount(np.concatenate([batch.targets["labels"].numpy() for batch in batches]))
    assert counts.sum() == 450
    assert least < counts.min() <= 450 / 3
    assert balanced == bool(counts.max() < 200)


@pytest.mark.parametrize(
    "augment",
    [
        {"policy": "randaugment"},
        {"policy": "trivialaugment"},
        {"policy": "autoaugment"},
        {"flip": 1},
        {"shift": 3},
        {"erase": 1},
        {"mixup": 1},
        {"cutmix": 1},
    ],
)
def test_pictures_are_changed_as_is_set(augment: dict[str, Any]) -> None:
    plain = first_inputs(subject_of(pictures()))
    changed = first_inputs(subject_of(pictures(), augment=augment))
    assert (changed != plain).any(dim=(1, 2, 3)).float().mean() >= 0.5
    assert torch.equal(changed, first_inputs(subject_of(pictures(), augment=augment)))


@pytest.mark.parametrize(
    ("net", "layer"),
    [
        ({"name": "fc", "widths": [8], "dropout": 0.25}, nn.Dropout),
        ({"name": "cnn", "width": 4, "dropout": 0.25}, nn.Dropout),
        ({"name": "cnn", "width": 4, "depth": 2, "drop_path": 0.25}, DropPath),
    ],
)
def test_layers_that_leave_out_are_where_they_are_set(net: dict[str, Any], layer: type[nn.Module]) -> None:
    def chances(settings: dict[str, Any]) -> list[Any]:
        task = task_of(subject_of(pictures(), net=settings))
        layers = [module for module in task.modules() if isinstance(module, layer)]
        return [module.drop_prob if isinstance(module, DropPath) else module.p for module in layers]

    assert max(chances(net)) == 0.25
    without = {name: value for name, value in net.items() if value != 0.25}
    assert not any(chances(without))


@pytest.mark.parametrize("net", [FC, {"name": "cnn", "width": 4}])
def test_weights_begin_as_is_set(net: dict[str, Any]) -> None:
    schemes = ("he", "xavier", "orthogonal", "normal")
    begun = []
    for scheme in schemes:
        task = task_of(subject_of(pictures(), net={**net, "initializer": scheme}))
        begun.append(torch.cat([p.detach().flatten() for p in task.parameters() if p.ndim > 1]))
    for index in range(len(schemes)):
        for other in range(index):
            assert not torch.allclose(begun[index], begun[other], rtol=0.01)


@pytest.mark.parametrize(
    ("settings", "remedy"),
    [
        ({}, "task.class_weights=true, task.balanced=true or task.focal=2"),
        ({"smoothing": 0.05}, "task.class_weights=true, task.balanced=true or task.focal=2 task.smoothing=0"),
        ({"focal": 2}, "task.class_weights=true or task.balanced=true"),
        ({"class_weights": True}, "task.focal=2"),
        ({"balanced": True, "smoothing": 0.05}, "task.focal=2 task.smoothing=0"),
        ({"balanced": True, "focal": 2}, ADD_EXAMPLES),
    ],
)
def test_only_what_is_not_set_is_a_remedy(settings: dict[str, Any], remedy: str) -> None:
    assert ClassificationConfig.of(settings).balance == remedy
    for words in remedy.split(" or ")[-1:]:
        pairs = [word.removeprefix("task.").split("=") for word in words.split() if "=" in word]
        ClassificationConfig.of(settings | dict(pairs))


@pytest.mark.parametrize(("net", "offered"), [(FC, False), ({"name": "timm", "backbone": "resnet10t"}, True)])
def test_published_weights_are_a_remedy_where_there_can_be_any(net: dict[str, Any], offered: bool) -> None:
    few = InMemory(np.zeros((3, 32, 32, 1), dtype=np.uint8), np.arange(3), "picture")
    task_data = subject_of(few, net=net)
    (advice,) = task_data.advice(task_data.task(), from_scratch=True)
    assert ("init=pretrained" in advice.remedy) == offered


def advised(task_data: ClassificationData) -> dict[str, Advice]:
    """Return the advice after training, for a network that outputs its inputs."""
    task = task_of(task_data)
    head = next(layer for layer in task.modules() if isinstance(layer, nn.Linear))
    with torch.no_grad():
        head.weight.copy_(torch.eye(len(CLASSES)))
        head.bias.zero_()
    options = EvalOptions(batch=64, workers=Workers())
    with eval_mode(task):
        last = task_data.evaluate(task, _unmoved, options)
        assert isinstance(last, ClassificationEvaluation)
        all_advice = task_data.advice_after(task, _unmoved, options, last)
    return {advice.cause: advice for advice in all_advice}


def _unmoved(inputs: torch.Tensor) -> torch.Tensor:
    return inputs


def test_a_rare_class_that_was_not_learned_is_told() -> None:
    val = np.repeat(np.arange(3), [40, 30, 5])
    shown = np.where(val == 2, 0, val)  # hats are taken for cups
    for counts, causes in (([200, 150, 10], {"imbalance"}), ([200, 150, 100], set())):
        train = scored(np.repeat(np.arange(3), counts))
        advice_by_cause = advised(subject_of(train, scored(val, shown=shown), net=LINEAR, smoothing=0.05))
        assert advice_by_cause.keys() - {"too complex", "noise"} == causes
    known = advised(subject_of(scored(np.repeat(np.arange(3), [200, 150, 10])), scored(val), net=LINEAR))
    assert known == {}


def test_what_is_said_of_a_rare_class() -> None:
    val = np.repeat(np.arange(3), [40, 30, 5])
    train = scored(np.repeat(np.arange(3), [200, 150, 10]))
    task_data = subject_of(train, scored(val, shown=np.where(val == 2, 0, val)), net=LINEAR, smoothing=0.05)
    advice = advised(task_data)["imbalance"]
    assert advice.finding == "recall of hat (10 examples) is 0.00, mean 0.67"
    assert "task.focal=2 task.smoothing=0" in advice.remedy
    assert len(str(advice)) < 140


@pytest.mark.parametrize("check_labels", [False, True])
def test_labels_that_contradict_what_was_learned_are_told(check_labels: bool) -> None:
    true = np.arange(120) % 3
    labels = np.where(np.arange(120) % 10 == 7, (true + 1) % 3, true)
    task_data = subject_of(scored(true), scored(labels, shown=true), net=LINEAR, check_labels=check_labels)
    advice = advised(task_data)["noise"]
    assert advice.finding == "about 10% of validation labels seem wrong"
    assert "check 12 suspects, first row[7]" in advice.remedy
    assert ("task.check_labels=true" in advice.remedy) != check_labels
    assert "noise" not in advised(subject_of(scored(true), scored(true), net=LINEAR))


def test_a_network_that_knows_little_contradicts_nothing() -> None:
    true = np.arange(120) % 3
    shown = np.where(np.arange(120) % 2, true, (true + 1) % 3)
    assert "noise" not in advised(subject_of(scored(true), scored(true, shown=shown), net=LINEAR))


class _SomeLost(InMemory):
    """Every fifth cannot be read."""

    def fetch(self, indices: Any) -> Fetched:
        kept = np.asarray(indices)[np.asarray(indices) % 5 != 0]
        lost = tuple(f"{self.key(index)}: lost" for index in indices if index % 5 == 0)
        return Fetched(inputs=self.inputs[kept], labels=self.labels[kept], indices=kept, skipped=lost)


def test_suspects_have_no_names_where_places_are_not_known() -> None:
    true = np.arange(120) % 3
    labels = np.where(np.arange(120) % 10 == 7, (true + 1) % 3, true)
    inputs: Array = scored(true).inputs
    advice = advised(subject_of(scored(true), _SomeLost(inputs, labels, "row"), net=LINEAR))["noise"]
    assert "row[" not in advice.remedy
    assert "check 12 suspects" in advice.remedy


def test_several_causes_are_told() -> None:
    val = np.repeat(np.arange(3), [80, 60, 10])
    shown = np.where(val == 2, 0, val)
    shown[:10] = 1
    train = scored(np.repeat(np.arange(3), [200, 150, 10]))
    assert set(advised(subject_of(train, scored(val, shown=shown), net=LINEAR))) == {
        "too complex",
        "imbalance",
        "noise",
    }


def test_networks_find_the_wrong_labels_they_did_not_learn_from() -> None:
    examples, wrong = clouds(300, wrong=24)
    task_data = subject_of(examples, net={"name": "fc", "widths": [32]})
    facts = task_data.facts
    probabilities, was_read = out_of_fold(
        examples, lambda: task_data.config.net.build(facts), folds=3, steps=100
    )
    assert was_read.all()
    np.testing.assert_allclose(probabilities.sum(axis=1), 1, rtol=1e-5)
    noise = label_noise(probabilities, examples.labels)
    assert set(noise.suspects) <= wrong
    assert len(noise.suspects) >= 0.9 * len(wrong)
    assert noise.rate == pytest.approx(24 / 300, abs=0.02)


def test_nothing_is_judged_by_a_network_that_learned_from_it() -> None:
    """Rows that have nothing in common: their labels can be learned by heart, but not be foretold."""
    labels = np.random.default_rng(0).integers(0, len(CLASSES), 60)
    examples = InMemory(np.eye(60, dtype=np.float32), labels, "row")
    task_data = subject_of(examples, net=LINEAR)
    facts = task_data.facts
    probabilities, _ = out_of_fold(examples, lambda: task_data.config.net.build(facts), folds=3, steps=150)
    assert (probabilities.argmax(axis=1) == labels).mean() < 0.6


def test_what_cannot_be_read_is_not_judged() -> None:
    whole, _ = clouds(90)
    examples = _SomeLost(whole.inputs, whole.labels, "row")
    task_data = subject_of(examples)
    facts = task_data.facts
    probabilities, was_read = out_of_fold(
        examples, lambda: task_data.config.net.build(facts), folds=2, steps=5
    )
    assert was_read.tolist() == [index % 5 != 0 for index in range(90)]
    assert not probabilities[~was_read].any()


@pytest.mark.parametrize("wrong", [0, 30])
def test_wrong_labels_are_looked_for_before_training_if_that_is_set(wrong: int) -> None:
    examples, places = clouds(300, wrong=wrong)
    task_data = subject_of(examples, net={"name": "fc", "widths": [32]}, check_labels=True)
    noise_advice = [
        advice for advice in task_data.advice(task_data.task(), from_scratch=False) if advice.cause == "noise"
    ]
    if not wrong:
        assert noise_advice == []
        return
    (advice,) = noise_advice
    assert advice.finding == "about 10% of the labels seem wrong"
    named = advice.remedy.partition("first ")[2].split(", ")
    assert {int(name[4:-1]) for name in named} <= places
    assert len(named) == 3
    without = subject_of(examples)
    assert without.advice(without.task(), from_scratch=False) == ()
