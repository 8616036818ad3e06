"""Wrong labels are counted and found."""

from __future__ import annotations

import time

import numpy as np
import numpy.typing as npt
import pytest

from boxcrew.core.types import Bools, Ints
from boxcrew.evaluate.label_noise import label_noise

Array = npt.NDArray[np.float64]

NUM = 4000


def clouds(num_classes: int, seed: int = 0, num: int = NUM) -> tuple[Array, Ints]:
    """Points of classes that lie on a circle, well apart."""
    random = np.random.default_rng(seed)
    labels = random.integers(0, num_classes, num)
    angles = 2 * np.pi * labels / num_classes
    apart = 3.5 / np.sin(np.pi / num_classes)
    return apart * np.stack([np.cos(angles), np.sin(angles)], axis=1) + random.normal(size=(num, 2)), labels


def out_of_fold(points: Array, labels: Ints, num_classes: int, folds: int = 4) -> Array:
    """Return the cross-validated probabilities of a linear discriminant."""
    answers = np.zeros((len(points), num_classes))
    fold = np.arange(len(points)) % folds
    for part in range(folds):
        known, asked = fold != part, fold == part
        centers = np.stack([points[known & (labels == c)].mean(axis=0) for c in range(num_classes)])
        scores = -((points[asked][:, None] - centers) ** 2).sum(axis=2) / 2
        exponents = np.exp(scores - scores.max(axis=1, keepdims=True))
        answers[asked] = exponents / exponents.sum(axis=1, keepdims=True)
    return answers


def flipped(labels: Ints, num_classes: int, rate: float, seed: int = 1) -> tuple[Ints, Bools]:
    random = np.random.default_rng(seed)
    wrong = random.random(len(labels)) < rate
    moved = (labels + random.integers(1, num_classes, len(labels))) % num_classes
    return np.where(wrong, moved, labels), wrong


@pytest.mark.parametrize("num_classes", [2, 3, 8])
@pytest.mark.parametrize("rate", [0.03, 0.1, 0.25])
def test_the_rate_and_the_suspects_of_flipped_labels(num_classes: int, rate: float) -> None:
    points, truth = clouds(num_classes)
    labels, wrong = flipped(truth, num_classes, rate)
    noise = label_noise(out_of_fold(points, labels, num_classes), labels)
    assert noise.rate == pytest.approx(wrong.mean(), abs=0.02)
    suspects = np.array(noise.suspects)
    assert wrong[suspects].mean() > 0.95
    assert wrong[suspects].sum() > 0.95 * wrong.sum()
    assert len(set(noise.suspects)) == len(noise.suspects)


def test_flips_of_one_class_into_another() -> None:
    points, truth = clouds(4)
    wrong = (truth == 0) & (np.random.default_rng(1).random(NUM) < 0.3)
    labels = np.where(wrong, 1, truth)
    noise = label_noise(out_of_fold(points, labels, 4), labels)
    assert noise.rate == pytest.approx(wrong.mean(), abs=0.02)
    assert wrong[np.array(noise.suspects)].mean() > 0.95


def test_right_labels_are_not_suspected() -> None:
    points, labels = clouds(5)
    noise = label_noise(out_of_fold(points, labels, 5), labels)
    assert noise.rate < 0.01
    assert len(noise.suspects) < 0.01 * NUM


def test_the_likeliest_to_be_wrong_comes_first() -> None:
    points, truth = clouds(3)
    labels, _ = flipped(truth, 3, 0.1)
    probabilities = out_of_fold(points, labels, 3)
    suspects = list(label_noise(probabilities, labels).suspects)
    own = probabilities[suspects, labels[suspects]]
    best = np.where(np.eye(3, dtype=bool)[labels[suspects]], 0, probabilities[suspects]).max(axis=1)
    assert (np.diff(own - best) >= 0).all()
    assert (own < best).all()


def test_a_joint_by_hand() -> None:
    # The mean of the own class is 0.7, twice. Example 2 is confidently of class 1, example 5 of none.
    probabilities = np.array([[0.9, 0.1], [0.9, 0.1], [0.3, 0.7], [0.2, 0.8], [0.1, 0.9], [0.6, 0.4]])
    labels = np.array([0, 0, 0, 1, 1, 1])
    noise = label_noise(probabilities, labels)
    assert noise.rate == pytest.approx(1 / 6)
    assert noise.suspects == (2,)


def test_classes_without_labels_and_answers_all_alike() -> None:
    alike = np.full((30, 3), 1 / 3)
    assert label_noise(alike, np.repeat([0, 1], 15)).suspects == ()
    sure = np.tile([0.9, 0.05, 0.05], (10, 1))  # their mean is rounded
    assert label_noise(sure, np.zeros(10, np.int64)).rate == 0


def test_nothing_and_one_class() -> None:
    assert label_noise(np.zeros((0, 3)), np.zeros(0, np.int64)).rate == 0
    noise = label_noise(np.ones((5, 1), dtype=np.float32), np.zeros(5, np.int64))
    assert (noise.rate, noise.suspects) == (0, ())


def test_arguments_are_not_changed_and_many_classes_take_a_moment() -> None:
    random = np.random.default_rng(0)
    labels = random.integers(0, 100, 20_000)
    probabilities = random.dirichlet(np.ones(100), 20_000)
    before = probabilities.copy()
    start = time.process_time()
    label_noise(probabilities, labels)
    assert time.process_time() - start < 10
    assert (probabilities == before).all()
