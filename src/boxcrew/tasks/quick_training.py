"""Quick training of throwaway classifiers, to check labels and to compare images by their features."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch.nn import functional as F  # noqa: N812

from boxcrew.core.types import Bools, Ints
from boxcrew.data.examples.example_set import ExampleSplit
from boxcrew.data.loading.collate import as_tensor
from boxcrew.data.loading.order import SampleOrder
from boxcrew.evaluate.classification import Probabilities
from boxcrew.nets.classifier import ClassifierNet

BATCH, RATE = 128, 2e-3


def train_quickly(
    net: ClassifierNet, examples: ExampleSplit, *, steps: int, chosen: Ints | None = None
) -> None:
    """Train a classifier in place on all examples or those with the indices `chosen`. Deterministic."""
    indices = np.arange(len(examples)) if chosen is None else chosen
    order = SampleOrder(len(indices), seed=0)
    optimizer = torch.optim.AdamW(net.parameters(), lr=RATE)
    rates = torch.optim.lr_scheduler.OneCycleLR(optimizer, RATE, total_steps=steps)
    net.train()
    for step in range(steps):
        batch = examples.fetch(indices[order.samples(step * BATCH, BATCH)[1]])
        with torch.enable_grad():
            loss = F.cross_entropy(net(as_tensor(batch.inputs)), torch.from_numpy(batch.labels))
            loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        rates.step()
    net.eval()


def out_of_fold(
    examples: ExampleSplit, build: Callable[[], ClassifierNet], *, folds: int, steps: int
) -> tuple[Probabilities, Bools]:
    """Return cross-validated class probabilities (N, C), and which of the N examples could be read."""
    fold_of = np.random.default_rng(0).permutation(len(examples)) % folds
    probabilities: Probabilities | None = None
    was_read = np.zeros(len(examples), dtype=np.bool_)
    for fold in range(folds):
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(fold)
            net = build()
            train_quickly(net, examples, steps=steps, chosen=np.flatnonzero(fold_of != fold))
        held_out = np.flatnonzero(fold_of == fold)
        for start in range(0, len(held_out), BATCH):
            batch = examples.fetch(held_out[start : start + BATCH])
            if not len(batch.indices):
                continue
            with torch.inference_mode():
                predicted = net(as_tensor(batch.inputs)).float().softmax(dim=1).numpy()
            if probabilities is None:
                probabilities = np.zeros((len(examples), predicted.shape[1]), dtype=np.float32)
            probabilities[batch.indices] = predicted
            was_read[batch.indices] = True
    assert probabilities is not None
    return probabilities, was_read
