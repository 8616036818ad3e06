from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from boxcrew.core.errors import DataError
from boxcrew.data.examples.example_set import InMemory
from boxcrew.data.examples.labeled import hold_out_mask, resolve_splits

ROOT = Path("some/set")


def ints(*values: int) -> np.ndarray:
    return np.array(values, dtype=np.int64)


def test_held_out_depends_on_keys_and_seed_alone() -> None:
    keys = [f"k{index}" for index in range(200)]
    labels = np.arange(200) % 4
    first = hold_out_mask(keys, labels, seed=1, share=0.1)
    assert first.sum() == 20
    assert np.array_equal(hold_out_mask(keys, labels, seed=1, share=0.1), first)
    assert not np.array_equal(hold_out_mask(keys, labels, seed=2, share=0.1), first)
    order = np.random.default_rng(0).permutation(200)
    shuffled = hold_out_mask([keys[index] for index in order], labels[order], seed=1, share=0.1)
    assert np.array_equal(shuffled, first[order])


def test_one_example_more_hardly_moves_the_others() -> None:
    keys = [f"k{index}" for index in range(201)]
    labels = np.zeros(201, dtype=np.int64)
    before, after = (hold_out_mask(keys[:count], labels[:count], seed=0) for count in (200, 201))
    assert (before != after[:200]).sum() <= 1


def test_examples_of_one_key_stay_together() -> None:
    keys = [f"k{index // 7}" for index in range(140)]
    chosen = hold_out_mask(keys, np.zeros(140, dtype=np.int64), seed=0)
    assert (chosen.reshape(20, 7).all(axis=1) == chosen.reshape(20, 7).any(axis=1)).all()
    assert chosen.sum() == 28


def test_every_class_keeps_an_example() -> None:
    for seed in range(10):
        chosen = hold_out_mask(list("abcdef"), ints(0, 1, 1, 2, 2, 2), seed=seed, share=0.9)
        assert chosen.sum() == 3
        assert not chosen[0]
    assert not hold_out_mask(list("abc"), ints(0, 1, 2), seed=0).any()


def test_classes_that_training_lacks_are_left_out() -> None:
    labels = {"train": ints(0, 2, 2), "val": ints(1, 2, 1)}
    splits_before = {
        split: InMemory(part[:, None] * 10, part, [f"{split}{i}" for i in range(3)])
        for split, part in labels.items()
    }
    classes, splits, (problem,) = resolve_splits(ROOT, ("a", "b", "c", "d"), splits_before, [])
    assert classes == ("a", "c")
    assert (problem.kind, problem.action, problem.value) == ("class-empty", "left out", "b, d")
    assert "2 of other splits are left out" in problem.message
    assert splits["train"].labels.tolist() == [0, 1, 1]
    assert splits["val"].labels.tolist() == [1]
    assert splits["val"].fetch([0]).inputs.tolist() == [[20]]
    assert splits["val"].key(0) == "val1"


def test_a_split_of_which_nothing_is_left_is_none() -> None:
    part = InMemory(ints(0, 1)[:, None], ints(0, 1), ["a", "b"])
    other = InMemory(ints(2)[:, None], ints(2), ["c"])
    _, splits, _ = resolve_splits(ROOT, ("a", "b", "c"), {"test": other, "train": part}, [])
    assert list(splits) == ["train"]


def test_there_must_be_a_class() -> None:
    with pytest.raises(DataError, match="nothing to train on") as raised:
        resolve_splits(ROOT, ("a", "b"), {"train": InMemory(ints(), ints(), [])}, [])
    assert str(ROOT) in raised.value.message
    classes, *_ = resolve_splits(ROOT, ("a", "b"), {"train": InMemory(ints(1), ints(1), ["x"])}, [])
    assert classes == ("b",)
