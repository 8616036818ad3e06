"""Classifiers that learn in half a minute, to look at data with rather than to be kept."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch.nn import functional as F  # noqa: N812

from boxcrew.core.types import Bools, Ints
from boxcrew.data.examples.example_set import Examples
from boxcrew.data.loading.example_loader import as_tensor
from boxcrew.data.loading.order import SampleOrder
from boxcrew.evaluate.classification import Probabilities
from boxcrew.nets.classifier import Classifier

BATCH, RATE = 128, 2e-3


def train_quickly(net: Classifier, examples: Examples, *, steps: int, chosen: Ints | None = None) -> None:
    """On all examples or some, always alike."""
    places = np.arange(len(examples)) if chosen is None else chosen
    order = SampleOrder(len(places), seed=0)
    optimizer = torch.optim.AdamW(net.parameters(), lr=RATE)
    rates = torch.optim.lr_scheduler.OneCycleLR(optimizer, RATE, total_steps=steps)
    net.train()
    for step in range(steps):
        found = examples.fetch(places[order.arrays(step * BATCH, BATCH)[1]])
        with torch.enable_grad():
            loss = F.cross_entropy(net(as_tensor(found.inputs)), torch.from_numpy(found.labels))
            loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        rates.step()
    net.eval()


def out_of_fold(
    examples: Examples, build: Callable[[], Classifier], *, folds: int, steps: int
) -> tuple[Probabilities, Bools]:
    """What networks say about examples that they did not learn from, (N, C), and which of these were read."""
    fold_of = np.random.default_rng(0).permutation(len(examples)) % folds
    said: Probabilities | None = None
    was_read = np.zeros(len(examples), dtype=np.bool_)
    for fold in range(folds):
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(fold)
            net = build()
            train_quickly(net, examples, steps=steps, chosen=np.flatnonzero(fold_of != fold))
        left = np.flatnonzero(fold_of == fold)
        for start in range(0, len(left), BATCH):
            found = examples.fetch(left[start : start + BATCH])
            if not len(found.indices):
                continue
            with torch.inference_mode():
                chances = net(as_tensor(found.inputs)).float().softmax(dim=1).numpy()
            if said is None:
                said = np.zeros((len(examples), chances.shape[1]), dtype=np.float32)
            said[found.indices] = chances
            was_read[found.indices] = True
    assert said is not None
    return said, was_read
