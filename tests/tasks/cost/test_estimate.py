"""The workload of a step equals tables that were worked out by hand.

Of the two published detectors everything is counted from the tables here: weights, what the optimizer keeps,
what forward keeps for backward, operations; to the byte. What the loss keeps is not in the tables (how boxes
are matched to objects is no matter of layers); it is held against a bound.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest
import torch
from torch import nn

from boxcrew.core.errors import ModelError
from boxcrew.core.types import Batch, Losses
from boxcrew.core.workload import Workload
from boxcrew.detectors import DETECTORS, DetectorNet
from boxcrew.detectors.ssdlite import SsdLite, SsdLiteConfig
from boxcrew.recipes import RECIPES
from boxcrew.tasks.base import Task
from boxcrew.tasks.cost.estimate import CostTracker, trace_workload
from boxcrew.tasks.detection import DetectionTask, require_detection
from boxcrew.tasks.detection_inputs import largest_batch
from tests.helpers import learning

CLASSES = tuple("abcdefgh")


class Chain(Task):
    """Layers in a row, and the sum of what comes out as the loss."""

    network_name = "layers"

    def __init__(self, *layers: nn.Module) -> None:
        super().__init__()
        self.layers = nn.Sequential(*layers)

    def forward(self, batch: Batch, phase: str = "train") -> Losses:
        assert phase == "train"
        outputs = self.layers(batch.inputs)
        return Losses(terms={"sum": outputs.sum()}, weight=outputs.new_ones(()))


class Heads(Task):
    """A detector without its loss."""

    network_name = "detector"

    def __init__(self, detector: DetectorNet) -> None:
        super().__init__()
        self.detector = detector

    def forward(self, batch: Batch, phase: str = "train") -> Losses:
        assert phase == "train"
        scores, offsets = self.detector(batch.inputs)
        return Losses(terms={"sum": scores.sum() + offsets.sum()}, weight=scores.new_ones(()))


SUM_AND_WEIGHT = 8  # bytes


def images(channels: int, side: int) -> Callable[[int], Batch]:
    def some(num: int) -> Batch:
        return Batch(inputs=torch.zeros(num, channels, side, side), targets={}, keys=("",) * num)

    return some


def floats(channels: int, side: int) -> int:
    """Bytes of a map."""
    return 4 * channels * side * side


# --- Some layers ------------------------------------------------------------------------------------------


def test_a_row_of_layers() -> None:
    """A convolution keeps its input, a ReLU in place nothing more, a pooling its places (8 bytes each)."""
    chain = Chain(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(inplace=True), nn.MaxPool2d(2), nn.Conv2d(8, 4, 1))
    workload = trace_workload(chain, images(3, 16), slots=2, averages=True)
    first, second = 8 * 3 * 9, 4 * 8
    weights = 4 * (first + 8 + second + 4)
    assert (workload.parameters, workload.gradients, workload.buffers) == (weights, weights, 0)
    assert workload.largest_layer == 4 * (first + 8)
    assert (workload.model_bytes, workload.optimizer) == (2 * weights, 2 * weights)
    assert (workload.batch.fixed, workload.batch.each) == (0, floats(3, 16) + 8)  # images and draws
    pooled, places = floats(8, 8), 2 * floats(8, 8)
    assert workload.without_recompute.activations.each == floats(8, 16) + pooled + places
    assert workload.without_recompute.activations.fixed == SUM_AND_WEIGHT
    assert workload.forward_operations == 2 * (first * 16 * 16 + second * 8 * 8)
    # Backward has as many again for weights, and as many for inputs; the images need no gradient.
    assert workload.without_recompute.operations == 3 * workload.forward_operations - 2 * first * 16 * 16
    assert (workload.min_samples, workload.depthwise, workload.inputs) == (1, False, None)


def test_the_peak_is_of_all_that_there_is() -> None:
    chain = Chain(nn.Conv2d(3, 8, 3, padding=1), nn.Tanh(), nn.Conv2d(8, 4, 1))
    workload = trace_workload(chain, images(3, 16), slots=2, averages=True)
    assert workload.peak_bytes(5) == workload.model_bytes + workload.optimizer + workload.batch.at(
        5
    ) + workload.without_recompute.peak.at(5)
    # In the end of backward Tanh's result is there with the gradients of it and of its input.
    assert workload.without_recompute.peak.at(5) >= 5 * 3 * floats(8, 16)


def test_what_is_frozen_needs_no_gradients_and_keeps_nothing() -> None:
    chain = Chain(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 4, 1))
    chain.layers[0].requires_grad_(requires_grad=False)
    workload = trace_workload(chain, images(3, 16), slots=1, averages=False)
    assert workload.gradients == workload.optimizer == 4 * (4 * 8 + 4)
    assert workload.model_bytes == workload.parameters == workload.gradients + 4 * (8 * 3 * 9 + 8)
    assert workload.without_recompute.activations.each == floats(8, 16)  # the second convolution's input
    learning_part = 2 * 4 * 8 * 16 * 16
    assert workload.without_recompute.operations == workload.forward_operations + learning_part


def test_what_is_computed_again_is_not_kept() -> None:
    """A unit of two convolutions keeps what goes into it. Backward computes it again as far as it is needed:
    what goes into its last convolution, not what comes out.
    """
    chain = Chain(
        *(nn.Conv2d(3, 8, 3, padding=1), nn.Tanh(), nn.Conv2d(8, 8, 3, padding=1)),
        *(nn.Tanh(), nn.Conv2d(8, 8, 3, padding=1), nn.Tanh(), nn.Conv2d(8, 4, 1)),
    )
    workload = trace_workload(chain, images(3, 16), slots=1, averages=False, recompute=True)
    whole, recomputed = (workload.pass_of(recompute=again) for again in (False, True))
    assert (whole, recomputed) == (workload.without_recompute, workload.with_recompute)
    assert whole.activations.each == 3 * floats(8, 16)
    assert recomputed.activations.each == floats(8, 16)
    assert recomputed.operations == whole.operations + 2 * (8 * 3 * 9 + 8 * 8 * 9) * 16 * 16
    assert recomputed.traffic > whole.traffic
    more = recomputed.peak.at(5) - whole.peak.at(5)
    assert workload.peak_bytes(5, recompute=True) == workload.peak_bytes(5) + more
    assert trace_workload(chain, images(3, 16), slots=1, averages=False).with_recompute is None


@pytest.mark.parametrize(("side", "least"), [(3, 2), (4, 1)])
def test_a_batch_norm_of_a_single_cell_wants_two_samples(side: int, least: int) -> None:
    chain = Chain(nn.Conv2d(3, 3, 3, groups=3), nn.BatchNorm2d(3))
    workload = trace_workload(chain, images(3, side), slots=0, averages=False)
    assert (workload.min_samples, workload.depthwise) == (least, True)
    assert workload.buffers == 2 * 4 * 3 + 8  # mean and variance, and how often they were met
    kept = workload.without_recompute.activations
    assert (kept.each, kept.fixed) == (floats(3, side - 2), 2 * 4 * 3 + SUM_AND_WEIGHT)


def test_traffic_is_what_is_read_and_written() -> None:
    matrix, other = torch.zeros(2, 10), torch.zeros(10, 3)
    with CostTracker([matrix, other]) as tracker:
        view = matrix.reshape(10, 2).t()
        assert (tracker.traffic, tracker.live) == (0, 0)
        result = view + 1
        assert (tracker.traffic, tracker.live) == (80 + 80, 80)
        del result
        product = matrix @ other
        assert (tracker.traffic, tracker.live, tracker.peak) == (160 + 80 + 120 + 24, 24, 80)
        del product
    assert (tracker.live, tracker.peak) == (0, 80)


# --- Tables of two detectors ------------------------------------------------------------------------------

COPIES = {"": 0, "relu": 0, "hardswish": 1, "relu6": 1}
"""Maps that an activation in place keeps besides its result. ReLU's backward is content with that; the others
ask for what went in, so that autograd copies it before it is overwritten.
"""


@dataclass(frozen=True, kw_only=True)
class Layer:
    """A convolution, with a BatchNorm and an activation in place where it has them."""

    inputs: int
    outputs: int
    kernel: int
    side: int  # of the map that comes out
    groups: int = 1
    bias: bool = False
    norm: bool = True
    act: str = ""
    goes_on: bool = True  # into something that keeps it: a convolution, a product; a head's result does not

    @property
    def kernels(self) -> int:
        return self.outputs * (self.inputs // self.groups) * self.kernel**2

    @property
    def weights(self) -> int:
        return self.kernels + self.outputs * (self.bias + 2 * self.norm)

    @property
    def operations(self) -> int:
        return 2 * self.kernels * self.side**2

    def kept(self, num_samples: int) -> int:
        """Bytes, without the layer's input, which the one before has counted: a BatchNorm's input, and of
        every channel the mean and the inverse deviation; the activation's; the result.
        """
        maps = self.norm + COPIES[self.act] + self.goes_on
        return maps * num_samples * floats(self.outputs, self.side) + 8 * self.outputs * self.norm


@dataclass(frozen=True, kw_only=True)
class Network:
    layers: list[Layer]  # in order
    maps: list[tuple[int, int]]  # channels and side of others that are kept
    weights: int = 0  # not of these layers
    num_anchors: int

    @property
    def parameters(self) -> int:
        return 4 * (self.weights + sum(layer.weights for layer in self.layers))

    @property
    def buffers(self) -> int:
        """Running means and variances, and a counter of each; how images are normalized; default boxes."""
        norms = sum(8 * layer.outputs + 8 for layer in self.layers if layer.norm)
        return norms + 2 * 4 * 3 + 4 * 4 * self.num_anchors

    @property
    def operations(self) -> int:
        return sum(layer.operations for layer in self.layers)

    def kept(self, num_samples: int) -> int:
        maps = num_samples * sum(floats(channels, side) for channels, side in self.maps)
        return SUM_AND_WEIGHT + maps + sum(layer.kept(num_samples) for layer in self.layers)


MOBILENET_V3_LARGE = [
    # kernel, expanded to, outputs, squeezed to, activation, side
    (3, None, 16, None, "relu", 160),
    (3, 64, 24, None, "relu", 80),
    (3, 72, 24, None, "relu", 80),
    (5, 72, 40, 24, "relu", 40),
    (5, 120, 40, 32, "relu", 40),
    (5, 120, 40, 32, "relu", 40),
    (3, 240, 80, None, "hardswish", 20),
    (3, 200, 80, None, "hardswish", 20),
    (3, 184, 80, None, "hardswish", 20),
    (3, 184, 80, None, "hardswish", 20),
    (3, 480, 112, 120, "hardswish", 20),
    (3, 672, 112, 168, "hardswish", 20),
    (5, 672, 160, 168, "hardswish", 10),
    (5, 960, 160, 240, "hardswish", 10),
    (5, 960, 160, 240, "hardswish", 10),
]
"""Searching for MobileNetV3, table 1, of 320 x 320 pixels: the blocks between the first and the last
convolution. A block that adds its input keeps the sum in place of its last BatchNorm's result, as many bytes.
"""
LITE_EXTRAS = [(256, 512, 5), (128, 256, 3), (64, 128, 2), (64, 128, 1)]  # middle, outputs, side
LITE_LEVELS = [(112, 20), (960, 10), (512, 5), (256, 3), (128, 2), (128, 1)]  # channels, side
LITE_BOXES = 6  # of a cell


def depthwise(channels: int, *, kernel: int, side: int, act: str) -> Layer:
    return Layer(inputs=channels, outputs=channels, groups=channels, kernel=kernel, side=side, act=act)


def pointwise(inputs: int, outputs: int, *, side: int, act: str = "") -> Layer:
    return Layer(inputs=inputs, outputs=outputs, kernel=1, side=side, act=act)


def plain(inputs: int, outputs: int, *, kernel: int, side: int, act: str = "", goes_on: bool = True) -> Layer:
    """Return a convolution with a bias instead of a BatchNorm."""
    return Layer(
        inputs=inputs,
        outputs=outputs,
        kernel=kernel,
        side=side,
        bias=True,
        norm=False,
        act=act,
        goes_on=goes_on,
    )


def mobilenet_layers() -> Iterator[Layer]:
    yield Layer(inputs=3, outputs=16, kernel=3, side=160, act="hardswish")
    inputs, side_before = 16, 160
    for kernel, expanded, outputs, squeezed, act, side in MOBILENET_V3_LARGE:
        if expanded is not None:
            yield pointwise(inputs, expanded, side=side_before, act=act)
        wide = expanded or inputs
        yield depthwise(wide, kernel=kernel, side=side, act=act)
        if squeezed is not None:  # what comes out of the second is kept by the hard sigmoid
            yield plain(wide, squeezed, kernel=1, side=1, act="relu")
            yield plain(squeezed, wide, kernel=1, side=1)
        yield pointwise(wide, outputs, side=side)
        inputs, side_before = outputs, side
    yield pointwise(160, 960, side=10, act="hardswish")


def squeeze_maps() -> Iterator[tuple[int, int]]:
    """Means, gates, and the products of these with the map."""
    for _, expanded, _, squeezed, _, side in MOBILENET_V3_LARGE:
        if expanded is not None and squeezed is not None:
            yield from ((expanded, 1), (expanded, 1), (expanded, side))


def lite_layers() -> Iterator[Layer]:
    inputs, side_before = 960, 10
    for middle, outputs, side in LITE_EXTRAS:
        yield pointwise(inputs, middle, side=side_before, act="relu6")
        yield depthwise(middle, kernel=3, side=side, act="relu6")
        yield pointwise(middle, outputs, side=side, act="relu6")
        inputs, side_before = outputs, side
    for width in (1 + len(CLASSES), 4):
        for channels, side in LITE_LEVELS:
            yield depthwise(channels, kernel=3, side=side, act="relu6")
            yield plain(channels, LITE_BOXES * width, kernel=1, side=side, goes_on=False)


def ssdlite320() -> Network:
    return Network(
        layers=[*mobilenet_layers(), *lite_layers()],
        maps=[(3, 320), *squeeze_maps()],  # the first: the normalized image
        num_anchors=LITE_BOXES * sum(side**2 for _, side in LITE_LEVELS),
    )


VGG = [(64, 300, 2), (128, 150, 2), (256, 75, 3), (512, 38, 3), (512, 19, 3)]
"""Of each stage: channels, side, convolutions; pooled after each (rounded up after the third)."""
POOLED = [(64, 150), (128, 75), (256, 38), (512, 19), (512, 19)]
LATER = [
    # kernel, outputs, side: fc6 and fc7, and the extra layers
    (3, 1024, 19),
    (1, 1024, 19),
    (1, 256, 19),
    (3, 512, 10),
    (1, 128, 10),
    (3, 256, 5),
    (1, 128, 5),
    (3, 256, 3),
    (1, 128, 3),
    (3, 256, 1),
]
SSD_LEVELS = [(512, 38, 4), (1024, 19, 6), (512, 10, 6), (256, 5, 6), (256, 3, 4), (256, 1, 4)]
"""Channels, side, boxes of a cell."""


def ssd_layers() -> Iterator[Layer]:
    rows = [(3, channels, side) for channels, side, num in VGG for _ in range(num)]
    inputs = 3
    for kernel, outputs, side in [*rows, *LATER]:
        yield plain(inputs, outputs, kernel=kernel, side=side, act="relu")
        inputs = outputs
    for width in (1 + len(CLASSES), 4):
        for channels, side, boxes in SSD_LEVELS:
            yield plain(channels, boxes * width, kernel=3, side=side, goes_on=False)


def ssd300() -> Network:
    """Poolings keep their results and places, of 8 bytes each; conv4_3's normalization lengths before and
    after they are kept from zero, quotients and products, and has a weight for each channel.
    """
    pooled = [(channels, side) for channels, side in POOLED for _ in range(3)]
    lengths, quotients = (1, 38), (512, 38)
    return Network(
        layers=list(ssd_layers()),
        maps=[(3, 300), *pooled, lengths, lengths, quotients, quotients],
        weights=512,
        num_anchors=sum(side**2 * boxes for _, side, boxes in SSD_LEVELS),
    )


BY_HAND = {"ssdlite320_mobilenetv3": ssdlite320, "ssd300_vgg16": ssd300}


@functools.cache
def detector_of(recipe: str) -> DetectorNet:
    """Return the detector on the meta device."""
    config = require_detection(RECIPES.get(recipe)().task).detector
    with torch.device("meta"):
        return DETECTORS.get(config.name)(config, CLASSES).to("meta")


def examples_of(recipe: str) -> Callable[[int], Batch]:
    return functools.partial(largest_batch, canvas=detector_of(recipe).config.size.canvas(()), num_objects=12)


@functools.cache
def account_of(recipe: str) -> Workload:
    """Return the workload with momentum, as in these recipes."""
    return trace_workload(Heads(detector_of(recipe)), examples_of(recipe), slots=1, averages=False)


@pytest.mark.parametrize("recipe", BY_HAND)
def test_weights_of_a_published_detector(recipe: str) -> None:
    workload, network = account_of(recipe), BY_HAND[recipe]()
    assert workload.parameters == workload.gradients == workload.optimizer == network.parameters
    assert workload.buffers == network.buffers
    assert workload.model_bytes == network.parameters + network.buffers
    largest = max(network.layers, key=lambda layer: layer.kernels)  # a BatchNorm is a layer of its own
    assert workload.largest_layer == 4 * (largest.kernels + largest.outputs * largest.bias)
    assert workload.depthwise == any(layer.groups > 1 for layer in network.layers)


@pytest.mark.parametrize("recipe", BY_HAND)
@pytest.mark.parametrize("num", [8, 24])
def test_what_a_published_detector_keeps(recipe: str, num: int) -> None:
    """The lines through few samples hold for any number of them."""
    assert account_of(recipe).without_recompute.activations.at(num) == BY_HAND[recipe]().kept(num)


@pytest.mark.parametrize("recipe", BY_HAND)
def test_operations_of_a_published_detector(recipe: str) -> None:
    workload, network = account_of(recipe), BY_HAND[recipe]()
    assert workload.forward_operations == network.operations
    assert workload.without_recompute.operations == 3 * network.operations - network.layers[0].operations


def test_what_ssd_keeps_for_its_loss() -> None:
    """Little more than what was predicted: 8732 boxes with 9 scores and 4 offsets."""
    recipe = "ssd300_vgg16"
    whole = trace_workload(DetectionTask(detector_of(recipe)), examples_of(recipe), slots=1, averages=False)
    loss = whole.without_recompute.activations.each - account_of(recipe).without_recompute.activations.each
    assert 0 < loss < 2 * 4 * 8732 * (9 + 4)


def a_step(task: nn.Module, batch: Batch) -> tuple[int, int, int]:
    """Bytes that forward keeps, bytes at the most, and operations."""
    tracker = CostTracker([*task.parameters(), *task.buffers(), batch.inputs, *batch.targets.values()])
    with tracker:
        losses = task(batch, "train")
        kept = tracker.live
        losses.total().backward()
    task.zero_grad()
    return kept, tracker.peak, tracker.operations


def test_it_is_what_a_step_on_the_cpu_holds() -> None:
    """The numbers on the meta device equal those on the CPU, with the loss and at the peak too."""
    config = SsdLiteConfig(size=learning.SIZE, backbone="mobilenetv3_small_050")
    task = DetectionTask(SsdLite(config, ("cup", "pot"))).train()
    batch = learning.make_batch(8, step=0)
    real = a_step(task, batch)
    assert a_step(task.to("meta"), batch.to("meta")) == real


@pytest.mark.parametrize("num", [1, 3, 64])
def test_no_step_holds_more_than_the_peak(num: int) -> None:
    """The most for few samples are the gradients, at the end of backward; for many what forward has kept, at
    its beginning.
    """
    chain = Chain(nn.Conv2d(3, 512, 16), nn.Upsample(scale_factor=8), nn.Tanh(), nn.Conv2d(512, 4, 1))
    cost = trace_workload(chain, images(3, 16), slots=0, averages=False).without_recompute
    kept, peak, _ = a_step(chain.to("meta"), images(3, 16)(num).to("meta"))
    assert kept == cost.activations.at(num)
    assert peak <= cost.peak.at(num)


class OneByOne(Chain):
    """Computes each sample by itself, so that its operators depend on how many there are."""

    def forward(self, batch: Batch, phase: str = "train") -> Losses:
        assert phase == "train"
        total = torch.stack([self.layers(image[None]).sum() for image in batch.inputs]).sum()
        return Losses(terms={"sum": total}, weight=total.new_ones(()))


def test_a_network_whose_operators_depend_on_the_number_of_samples_is_refused() -> None:
    with pytest.raises(ModelError, match=r"runs \d+ operators for 2 samples but \d+ for 4") as raised:
        trace_workload(OneByOne(nn.Conv2d(3, 8, 3)), images(3, 16), slots=0, averages=False)
    assert "the same operators for any number of samples" in raised.value.advice


# --- Evaluations ------------------------------------------------------------------------------------------


def test_what_is_only_looked_at_keeps_nothing() -> None:
    """A map and the next, whatever came before: at most the second and third at once."""
    chain = Chain(nn.Conv2d(3, 8, 1), nn.Conv2d(8, 16, 1), nn.Conv2d(16, 12, 1), nn.Conv2d(12, 2, 1))
    workload = trace_workload(chain, images(3, 16), slots=0, averages=False)
    assert workload.evaluation_peak.at(5) == 5 * (floats(16, 16) + floats(12, 16))
    assert workload.without_recompute.activations.at(5) >= 5 * sum(
        floats(channels, 16) for channels in (8, 16, 12)
    )


# --- Phases -----------------------------------------------------------------------------------------------


class Seldom(Chain):
    """Two layers, each of which learns in a phase of its own; the second in one step of `cycle`."""

    phases = ("first", "second")
    network_name = "layers.0"

    def __init__(self, cycle: int) -> None:
        super().__init__(nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(3, 4, 1))
        self._cycle = cycle

    @property
    def cycle(self) -> int:
        return self._cycle

    def phases_of(self, step: int) -> tuple[str, ...]:
        return self.phases if step % self._cycle == 0 else self.phases[:1]

    def learns_in(self, phase: str, name: str) -> bool:
        return name.startswith(f"layers.{self.phases.index(phase)}.")

    def forward(self, batch: Batch, phase: str = "first") -> Losses:
        outputs = self.layers[self.phases.index(phase)](batch.inputs)
        return Losses(terms={phase: outputs.sum()}, weight=outputs.new_ones(()))


def test_a_phase_counts_as_often_as_steps_have_it() -> None:
    always, seldom = (
        trace_workload(Seldom(cycle), images(3, 16), slots=0, averages=False) for cycle in (1, 4)
    )
    first, second = (2 * layer * 16 * 16 for layer in (8 * 3 * 9, 4 * 3))
    assert always.forward_operations == first + second
    assert seldom.forward_operations == first + second / 4
    assert always.without_recompute.operations == 2 * (first + second)  # of images nobody wants a gradient
    assert seldom.without_recompute.operations == 2 * (first + second / 4)
    assert seldom.without_recompute.traffic < always.without_recompute.traffic
    assert seldom.without_recompute.peak == always.without_recompute.peak  # what a step that has both takes
