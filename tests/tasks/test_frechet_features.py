"""Tests of the features that generated and real images are compared by."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
import torch

from boxcrew.data.examples.example_set import ExampleSplit, InMemory
from boxcrew.data.loading.collate import as_tensor
from boxcrew.evaluate.frechet import frechet_distance
from boxcrew.nets.classifier import ClassifierNet
from boxcrew.tasks import frechet_features
from boxcrew.tasks.facts import ExampleFacts
from boxcrew.tasks.frechet_features import FeatureExtractor, feature_network
from boxcrew.tasks.quick_training import train_quickly

Trainings = list[ExampleSplit]

FACTS = ExampleFacts(
    classes=("lying", "standing"), kind="images", shape=(8, 8, 1), encoding={}, mean=(0.5,), std=(0.2,)
)


def draw_lines(num: int, *, seed: int) -> InMemory:
    """8 x 8 pixels: faint lines that lie or stand, behind noise; no pixel by itself tells which."""
    draw = np.random.default_rng(seed)
    labels = np.arange(num) % 2
    lying = np.where(np.arange(8) % 2, 1, -1)[:, None, None] * np.ones((8, 8, 1))
    lines = np.where(labels[:, None, None, None], lying.swapaxes(0, 1), lying)
    signs = draw.choice([-1, 1], size=(num, 1, 1, 1))
    pictures = 128 + 25 * signs * lines + draw.normal(scale=40, size=lines.shape)
    return InMemory(pictures.clip(0, 255).astype(np.uint8), labels, "lines")


LINES = draw_lines(512, seed=0)
NEW = draw_lines(512, seed=1)
UNTOLD = InMemory(LINES.inputs, np.zeros_like(LINES.labels), "lines")


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Quick to train, and kept nowhere."""
    monkeypatch.setattr(frechet_features, "STEPS", 30)
    monkeypatch.setattr(frechet_features, "cache_folder", lambda name: None)
    forget(monkeypatch)


@pytest.fixture
def trainings(monkeypatch: pytest.MonkeyPatch) -> Trainings:
    """The examples of each training so far."""
    trained_examples: Trainings = []

    def train(net: ClassifierNet, examples: ExampleSplit, *, steps: int) -> None:
        trained_examples.append(examples)
        train_quickly(net, examples, steps=steps)

    monkeypatch.setattr(frechet_features, "train_quickly", train)
    return trained_examples


def forget(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forget all networks, as a new process does."""
    monkeypatch.setattr(frechet_features, "_known", {})


def seen(look: FeatureExtractor, inputs: npt.NDArray[np.uint8] = NEW.inputs) -> npt.NDArray[np.float64]:
    return look(as_tensor(inputs))


def accuracy(look: FeatureExtractor) -> float:
    """Return the accuracy on new images, by the class whose mean features are nearest."""
    known = seen(look, LINES.inputs)
    means = np.stack([known[LINES.labels == label].mean(axis=0) for label in (0, 1)])
    apart = np.linalg.norm(seen(look)[:, None] - means, axis=2)
    return float((apart.argmin(axis=1) == NEW.labels).mean())


def distance(look: FeatureExtractor, first: npt.NDArray[np.uint8], second: npt.NDArray[np.uint8]) -> float:
    return frechet_distance(seen(look, first), seen(look, second))


def test_its_features_are_learned() -> None:
    untrained = feature_network(UNTOLD, replace(FACTS, classes=()))
    assert accuracy(untrained) < 0.87
    assert accuracy(feature_network(LINES, FACTS)) > 0.93


def test_it_is_always_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    features = []
    for seed in (1, 2):
        forget(monkeypatch)
        torch.manual_seed(seed)
        features.append(seen(feature_network(LINES, FACTS)))
    assert np.array_equal(features[0], features[1])


def test_a_run_draws_the_same_numbers_whether_it_is_trained_or_read() -> None:
    torch.manual_seed(7)
    before = torch.get_rng_state()
    feature_network(LINES, FACTS)
    assert torch.equal(torch.get_rng_state(), before)


def test_it_is_kept_in_memory(trainings: Trainings) -> None:
    assert feature_network(LINES, FACTS) is feature_network(LINES, FACTS)
    assert trainings == [LINES]


def test_it_is_kept_between_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trainings: Trainings
) -> None:
    monkeypatch.setattr(frechet_features, "cache_folder", lambda name: tmp_path / name)
    first = seen(feature_network(LINES, FACTS))
    forget(monkeypatch)
    assert np.array_equal(seen(feature_network(LINES, FACTS)), first)
    assert trainings == [LINES]
    (file,) = (tmp_path / "features").iterdir()
    whole = file.read_bytes()
    file.write_bytes(whole[: len(whole) // 2])
    forget(monkeypatch)
    assert np.array_equal(seen(feature_network(LINES, FACTS)), first)
    assert trainings == [LINES, LINES]
    assert file.read_bytes() == whole


def test_where_nothing_can_be_kept_it_is_trained_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setattr(frechet_features, "cache_folder", lambda name: tmp_path / "file" / name)
    assert accuracy(feature_network(LINES, FACTS)) > 0.93


def test_other_examples_have_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trainings: Trainings
) -> None:
    monkeypatch.setattr(frechet_features, "cache_folder", lambda name: tmp_path / name)
    turned = InMemory(LINES.inputs, 1 - LINES.labels, "lines")
    for examples, facts in (
        (LINES, FACTS),
        (NEW, FACTS),
        (turned, FACTS),
        (LINES, replace(FACTS, mean=(0.4,))),
    ):
        feature_network(examples, facts)
    assert trainings == [LINES, NEW, turned, LINES]
    assert len(list((tmp_path / "features").iterdir())) == 4


@pytest.mark.parametrize("classes", [(), ("photos",)])
def test_without_classes_there_is_nothing_to_learn(classes: tuple[str, ...], trainings: Trainings) -> None:
    look = feature_network(UNTOLD, replace(FACTS, classes=classes))
    assert trainings == []
    dark = LINES.inputs // 2
    assert distance(look, LINES.inputs, NEW.inputs) < 0.1 * distance(look, LINES.inputs, dark)


def test_real_pictures_are_nearer_to_each_other_than_noise_is() -> None:
    """Noise of the very same pixels, in another order."""
    look = feature_network(LINES, FACTS)
    pixels = NEW.inputs.reshape(len(NEW), -1)
    noise = np.random.default_rng(0).permuted(pixels, axis=1).reshape(NEW.inputs.shape)
    half = np.concatenate((NEW.inputs[::2], noise[::2]))
    distances = [distance(look, LINES.inputs, others) for others in (NEW.inputs, half, noise)]
    assert distances == sorted(distances)
    assert distances[0] < 0.1 * distances[2]
