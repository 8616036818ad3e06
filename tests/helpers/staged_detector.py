"""A toy detector whose class layer is solved in a second stage, by ridge on the features of its regions."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

from boxcrew.core.stage import Stage
from boxcrew.core.types import Batch
from boxcrew.detectors import DETECTORS, Candidates, ImageBatches
from boxcrew.recipes import RECIPES
from boxcrew.tasks.detection import DetectionConfig
from boxcrew.train.config import RunConfig
from tests.helpers.two_headed import TwoHeaded, TwoHeadedConfig, best_object

NAME = "ridge_headed"
RIDGE = 10.0


class RidgeHeadedConfig(TwoHeadedConfig):
    name: Literal["ridge_headed"] = "ridge_headed"  # type: ignore[assignment]
    tuned: bool = False  # whether a third stage trains the heads on

    def stages(self) -> tuple[Stage, ...]:
        heads = ["detector.scores*", "detector.offsets*"]
        tune = Stage(name="tune", fraction=0.5, changes={"optim": {"rate": 0.001}, "trainable": heads})
        stages = (Stage(name="features", fraction=0.5), Stage(name="ridge", kind="solve"))
        return (*stages, tune) if self.tuned else stages


class RidgeHeaded(TwoHeaded):
    """`num_solved` and `is_solved` are what no float can tell: how many regions the ridge has seen, and
    whether the scores are its estimates of +1 and -1 rather than logits.
    """

    config_class = RidgeHeadedConfig
    num_solved: Tensor  # int64
    is_solved: Tensor  # bool

    def __init__(self, config: RidgeHeadedConfig, classes: tuple[str, ...]) -> None:
        super().__init__(config, classes)
        self.register_buffer("num_solved", torch.tensor(0))
        self.register_buffer("is_solved", torch.tensor(data=False))

    def solve(self, stage: str, batches: ImageBatches, workspace: Path) -> None:
        """Center the features in a first pass; in a second add up what the normal equations need."""
        assert stage == "ridge"
        assert not self.training
        num, mean = 0, torch.zeros(32, dtype=torch.float64)
        for batch in batches:
            features, _ = self._examples(batch)
            num, mean = num + len(features), mean + features.sum(dim=0)
        mean /= num
        gram = RIDGE * torch.eye(32, dtype=torch.float64)
        product = torch.zeros(32, 1 + len(self.classes), dtype=torch.float64)
        share = torch.zeros(1 + len(self.classes), dtype=torch.float64)
        for batch in batches:
            features, wanted = self._examples(batch)
            features = features - mean
            gram, product = gram + features.T @ features, product + features.T @ wanted
            share += wanted.sum(dim=0) / num
        weight = torch.linalg.solve(gram, product).T
        self.scores.weight.copy_(weight)
        self.scores.bias.copy_(share - weight @ mean)
        self.num_solved.fill_(num)
        self.is_solved.fill_(value=True)

    def _examples(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """The features (N, 32) of all candidates, and +1 for their class, -1 for all others (N, 1 + C)."""
        maps, objectness, shifts = self._rpn(batch.inputs)
        boxes, labels = batch.targets["boxes"].to(shifts.dtype), batch.targets["labels"]
        regions, valid, _ = self._candidates(batch, objectness, shifts, boxes)
        overlap, owner = best_object(regions, boxes, labels)
        numbers = torch.where(overlap >= 0.5, labels.gather(1, owner) + 1, 0)
        wanted = 2 * F.one_hot(numbers, 1 + len(self.classes)).double() - 1
        return self._hidden(maps, regions)[valid].double(), wanted[valid]

    def candidates(self, raw: tuple[Tensor, ...], size: tuple[int, int]) -> Candidates:
        scores, *rest = raw
        logits = (((scores + 1) / 2).clamp(1e-6, 1)).log()  # softmax makes shares of the estimates
        return super().candidates((torch.where(self.is_solved, logits, scores), *rest), size)


def ridge_headed() -> RunConfig:
    """A detector with a ridge head: 12 steps, of which half are for the first stage"""
    return RunConfig.of(
        {
            "task": DetectionConfig(detector=RidgeHeadedConfig()),
            "steps": 12,
            "batch": 4,
            "loader": {"workers": 0},
            "deploy": {"threads": 1},
            "optim": {"name": "momentum", "rate": 0.01},
            "saver": {"every_steps": 2, "every_epochs": 100},
            "summaries": {"every_steps": 3, "tensorboard": False, "images": 0},
        }
    )


@contextmanager
def registered() -> Iterator[None]:
    """The toy is a detector and a recipe while the context is open."""
    DETECTORS.names(), RECIPES.names()
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(DETECTORS._members, NAME, RidgeHeaded)
        patch.setitem(RECIPES._members, NAME, ridge_headed)
        yield
