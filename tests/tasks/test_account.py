"""What a step takes, held against tables that were worked out by hand."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from boxcrew.core.types import Batch, Losses
from boxcrew.detectors.base import DetectorNet
from boxcrew.detectors.ssd import Ssd, SsdConfig
from boxcrew.detectors.ssdlite import SsdLite, SsdLiteConfig
from boxcrew.tasks.account import Ledger, workload_of
from boxcrew.tasks.detection import DetectionTask
from boxcrew.testing import learning


class Chain(nn.Module):
    """Layers in a row, and the sum of what comes out as the loss."""

    def __init__(self, *layers: nn.Module) -> None:
        super().__init__()
        self.layers = nn.Sequential(*layers)

    def forward(self, batch: Batch, phase: str = "train") -> Losses:
        assert phase == "train"
        found = self.layers(batch.inputs)
        return Losses(terms={"sum": found.sum()}, weight=found.new_ones(()))


def images(channels: int, side: int, num: int) -> Batch:
    return Batch(inputs=torch.zeros(num, channels, side, side), targets={}, keys=("",) * num)


def floats(channels: int, side: int) -> int:
    return 4 * channels * side * side


def test_a_row_of_layers() -> None:
    """A convolution keeps its input, a ReLU in place nothing more, a pooling its places (8 bytes each)."""
    chain = Chain(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(inplace=True), nn.MaxPool2d(2), nn.Conv2d(8, 4, 1))
    found = workload_of(chain, lambda num: images(3, 16, num), slots=2, averages=True)
    weights = 4 * (8 * 3 * 9 + 8 + 4 * 8 + 4)
    assert (found.parameters, found.gradients, found.buffers) == (weights, weights, 0)
    assert found.inputs.each == floats(3, 16)
    pooled, places = floats(8, 8), 2 * floats(8, 8)
    assert found.activations.each == floats(8, 16) + pooled + places
    assert found.flops == 2 * (8 * 3 * 9 * 16 * 16 + 4 * 8 * 8 * 8)
    assert found.kept_bytes() == 2 * weights + 2 * weights
    assert found.peak_bytes(5) >= found.kept_bytes() + 5 * (found.inputs.each + found.activations.each)


def test_what_is_frozen_needs_no_gradients_and_keeps_nothing() -> None:
    chain = Chain(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 4, 1))
    chain.layers[0].requires_grad_(requires_grad=False)
    found = workload_of(chain, lambda num: images(3, 16, num), slots=1, averages=False)
    assert found.gradients == 4 * (4 * 8 + 4)
    assert found.activations.each == floats(8, 16)  # the second convolution's input
    assert found.kept_bytes() == found.parameters + found.gradients


VGG = [(64, 300, 2), (128, 150, 2), (256, 75, 3), (512, 38, 3), (512, 19, 3)]
"""Of each stage: channels, side, convolutions; pooled after each (rounded up after the third)."""
POOLED = [(64, 150), (128, 75), (256, 38), (512, 19), (512, 19)]
LATER = [
    (1024, 19),
    (1024, 19),
    (256, 19),
    (512, 10),
    (128, 10),
    (256, 5),
    (128, 5),
    (256, 3),
    (128, 3),
    (256, 1),
]
"""fc6 and fc7, and the extra layers."""


def ssd300_by_hand() -> int:
    """Bytes that a sample's forward keeps: the output of every layer, which is the input of the next or of a
    head, with the places of the poolings; and of conv4_3's normalisation lengths, quotients and products.
    """
    kept = floats(3, 300)  # the normalised image
    kept += sum(num * floats(channels, side) for channels, side, num in VGG)
    kept += sum(3 * floats(channels, side) for channels, side in POOLED)
    kept += sum(floats(channels, side) for channels, side in LATER)
    return kept + 2 * floats(512, 38) + 2 * floats(1, 38)


class Heads(nn.Module):
    """A detector without its loss."""

    def __init__(self, detector: DetectorNet) -> None:
        super().__init__()
        self.detector = detector

    def forward(self, batch: Batch, phase: str = "train") -> Losses:
        assert phase == "train"
        raw = self.detector(batch.inputs)
        return Losses(terms={"sum": sum(one.sum() for one in raw)}, weight=torch.ones(()))


def detector_batch(num: int) -> Batch:
    targets = {
        "boxes": torch.zeros(num, 12, 4),
        "labels": torch.zeros(num, 12, dtype=torch.long),
        "difficult": torch.zeros(num, 12, dtype=torch.bool),
    }
    inputs = torch.zeros(num, 3, 300, 300, dtype=torch.uint8)
    return Batch(inputs=inputs, targets=targets, keys=("",) * num)


def test_ssd300() -> None:
    detector: DetectorNet = Ssd(SsdConfig(size=300), tuple("abcdefgh"))
    found = workload_of(Heads(detector), detector_batch, slots=1, averages=False)
    assert found.activations.each == ssd300_by_hand()
    assert found.activations.fixed < 100  # the loss itself
    assert found.parameters == found.gradients == sum(4 * p.numel() for p in detector.parameters())
    whole = workload_of(DetectionTask(detector), detector_batch, slots=1, averages=False)
    # The loss keeps little more than what was predicted: 8732 boxes with 9 scores and 4 offsets.
    assert 0 < whole.activations.each - found.activations.each < 2 * 4 * 8732 * (9 + 4)


@pytest.mark.parametrize("batch", [4, 8])
def test_it_is_what_a_step_on_the_cpu_holds(batch: int) -> None:
    """The same ledger over a real step: what is worked out without data is what is there with them."""
    detector = SsdLite(SsdLiteConfig(size=learning.SIZE, backbone="mobilenetv3_small_050"), ("cup", "pot"))
    task = DetectionTask(detector).train()

    def examples(num: int) -> Batch:
        return learning.make_batch(num, step=0)

    found = workload_of(task, examples, slots=0, averages=False)
    real = examples(batch)
    known = [*task.parameters(), *task.buffers(), real.inputs, *real.targets.values()]
    ledger = Ledger(known)
    with ledger:
        losses = task(real, "train")
        assert ledger.live == pytest.approx(found.activations.at(batch), rel=0.01)
        losses.total().backward()
    assert ledger.peak == pytest.approx(found.step.at(batch), rel=0.02)
