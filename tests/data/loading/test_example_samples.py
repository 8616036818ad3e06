"""Batches of examples: what is drawn for a sample, and what loader processes are sent."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import pytest
import torch

from boxcrew.core.types import Ints
from boxcrew.data.examples.example_set import InMemory
from boxcrew.data.loading import loader as loader_module
from boxcrew.data.loading.example_samples import Augmentation, ExampleSamples, eval_example_batches
from boxcrew.data.loading.loader import TrainLoader
from boxcrew.data.loading.order import BalancedOrder
from boxcrew.data.loading.workers import Workers
from boxcrew.tasks.augmentation import AugmentConfig

BATCH, RARE = 20, 49


def make_examples() -> InMemory:
    """49 of one class, and the last of another."""
    pictures = np.random.default_rng(0).integers(0, 256, (50, 8, 8, 1), dtype=np.uint8)
    return InMemory(pictures, np.array([0] * RARE + [1]), "picture")


def make_loader(*, workers: int = 0, positions: list[int] | None = None) -> TrainLoader:
    """Balanced: every second sample is the one of the rare class."""
    examples = make_examples()
    changes = AugmentConfig(shift=3, erase=0.5).augmentation("images")
    samples = ExampleSamples(
        examples=examples,
        blank=np.zeros((2, 8, 8, 1), dtype=np.uint8),
        augmentation=Augmentation(augment=changes.augment),
    )
    order = BalancedOrder(examples.labels, seed=1)
    return TrainLoader(samples, order, batch=BATCH, workers=Workers(num=workers), positions=positions)


def test_a_rare_example_is_changed_in_another_way_each_time() -> None:
    batches = list(make_loader().batches(0, 2))  # less than an epoch
    rare = [
        picture.numpy().tobytes()
        for batch in batches
        for picture, label in zip(batch.inputs, batch.targets["labels"].tolist(), strict=True)
        if label == 1
    ]
    assert len(rare) > 12
    assert len(set(rare)) > 0.9 * len(rare)


def test_and_in_the_same_whoever_makes_it_and_wherever_one_begins() -> None:
    whole = list(make_loader().batches(0, 4))
    for positions in (None, [3, 4, 11, 19]):
        for workers in (0, 2):
            loader = make_loader(workers=workers, positions=positions)
            for step, batch in enumerate(loader.batches(2, 2), start=2):
                wanted = whole[step] if positions is None else whole[step].select(positions)
                assert torch.equal(batch.inputs, wanted.inputs)
                assert batch.keys == wanted.keys


def test_the_reader_of_evaluation_can_be_sent_to_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where these are not forked, as on macOS and Windows."""

    def sent(fetch: Callable[[Ints], Any], requests: Iterable[Ints], workers: Workers) -> Iterator[Any]:
        assert workers.num == 2
        return map(pickle.loads(pickle.dumps(fetch)), requests)

    monkeypatch.setattr(loader_module, "fetch_all", sent)
    examples = make_examples()
    batches = list(eval_example_batches(examples, batch=16, workers=Workers(num=2)))
    assert [len(batch.inputs) for batch in batches] == [16, 16, 16, 2]
    inputs = torch.cat([batch.inputs for batch in batches])
    assert torch.equal(inputs, torch.from_numpy(examples.inputs).permute(0, 3, 1, 2))
