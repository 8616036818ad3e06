"""Operations of layers, counted by hand: two for each weight at each place where it is used."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from boxcrew.detectors.ssd import Ssd, SsdConfig
from boxcrew.recipes.ssd import ssd300_vgg16
from boxcrew.tasks.cost.estimate import CostTracker
from boxcrew.tasks.detection import require_detection

SAMPLES = 2


def counted(run: Callable[[], object]) -> int:
    tracker = CostTracker([])
    with tracker:
        run()
    return tracker.operations


def counted_by_torch(run: Callable[[], object]) -> int:
    counter = FlopCounterMode(display=False)
    with counter:
        run()
    return counter.get_total_flops()


def maps(channels: int, side: int, *, learns: bool = False) -> Tensor:
    return torch.zeros(SAMPLES, channels, side, side, device="meta", requires_grad=learns)


CONVOLUTIONS: dict[str, tuple[nn.Module, Tensor, int, int]] = {
    # the layer, its input, its weights, and the places where each is used
    "full": (nn.Conv2d(3, 8, 3, padding=1), maps(3, 16), 8 * 3 * 9, 16 * 16),
    "oblong": (nn.Conv2d(3, 8, (1, 5)), maps(3, 16), 8 * 3 * 5, 16 * 12),
    "strided": (nn.Conv2d(3, 8, 5, stride=2), maps(3, 17), 8 * 3 * 25, 7 * 7),
    "dilated": (nn.Conv2d(3, 8, 3, dilation=6), maps(3, 16), 8 * 3 * 9, 4 * 4),
    "grouped": (nn.Conv2d(8, 16, 3, padding=1, groups=4), maps(8, 16), 16 * 2 * 9, 16 * 16),
    "depthwise": (nn.Conv2d(32, 32, 3, padding=1, groups=32), maps(32, 16), 32 * 9, 16 * 16),
    # Each number of the input is spread over as many of the output as there are weights for it.
    "transposed": (nn.ConvTranspose2d(8, 4, 2, stride=2), maps(8, 16), 8 * 4 * 4, 16 * 16),
    "transposed, grouped": (nn.ConvTranspose2d(8, 4, 2, groups=2), maps(8, 16), 8 * 2 * 4, 16 * 16),
}


@pytest.mark.parametrize("kind", CONVOLUTIONS)
def test_a_convolution(kind: str) -> None:
    layer, inputs, weights, places = CONVOLUTIONS[kind]
    layer.to("meta")
    forward = 2 * SAMPLES * weights * places
    assert counted(lambda: layer(inputs)) == forward
    learning = inputs.detach().requires_grad_()
    assert counted(lambda: layer(learning).sum().backward()) == forward + 2 * forward


@pytest.mark.parametrize(
    ("input_learns", "weight_learns", "backward"), [(True, True, 2), (True, False, 1), (False, True, 1)]
)
@pytest.mark.parametrize("transposed", [False, True])
def test_a_gradient_that_nobody_wants_costs_nothing(
    *, input_learns: bool, weight_learns: bool, backward: int, transposed: bool
) -> None:
    kind = nn.ConvTranspose2d if transposed else nn.Conv2d
    layer = kind(8, 8, 3, padding=1, device="meta")
    layer.weight.requires_grad = weight_learns
    inputs = maps(8, 16, learns=input_learns)
    forward = 2 * SAMPLES * 8 * 8 * 9 * 16 * 16
    assert counted(lambda: layer(inputs).sum().backward()) == (1 + backward) * forward


def test_where_only_a_bias_learns_nothing_is_multiplied() -> None:
    layer = nn.Conv2d(8, 8, 3, padding=1, device="meta")
    layer.weight.requires_grad = False
    inputs = maps(8, 16)
    assert counted(lambda: layer(inputs).sum().backward()) == counted(lambda: layer(inputs))


def test_torch_counts_a_depthwise_weights_gradient_as_if_it_had_no_groups() -> None:
    """32 times too many, of 32 channels; forward, and the gradient of the input, it counts as we do."""
    layer, inputs = nn.Conv2d(32, 32, 3, padding=1, groups=32, device="meta"), maps(32, 16, learns=True)
    forward = counted(lambda: layer(inputs))
    assert counted_by_torch(lambda: layer(inputs)) == forward

    def step() -> None:
        layer(inputs).sum().backward()

    assert counted(step) == (1 + 1 + 1) * forward
    assert counted_by_torch(step) == (1 + 1 + 32) * forward


def test_products_of_matrices() -> None:
    rows = torch.zeros(5, 12, device="meta", requires_grad=True)
    product = 2 * 5 * 12 * 7
    for layer in (nn.Linear(12, 7, device="meta"), nn.Linear(12, 7, bias=False, device="meta")):
        assert counted(partial(layer, rows)) == product
        total = layer(rows).sum()
        assert counted(total.backward) == 2 * product
    ones, others, sums = (torch.zeros(3, *shape, device="meta") for shape in ((4, 5), (5, 6), (4, 6)))
    assert counted(lambda: torch.bmm(ones, others)) == 2 * 3 * 4 * 5 * 6
    assert counted(lambda: torch.baddbmm(sums, ones, others)) == 2 * 3 * 4 * 5 * 6
    assert counted(lambda: torch.einsum("bij,bjk->bik", ones, others)) == 2 * 3 * 4 * 5 * 6


def test_attention() -> None:
    """Every place asks every other, and takes from it: on tensors without data it is two products."""
    heads, places, width = 4, 10, 8
    query = torch.zeros(SAMPLES, heads, places, width, device="meta", requires_grad=True)
    product = 2 * SAMPLES * heads * places * places * width

    attention = partial(nn.functional.scaled_dot_product_attention, query, query, query)
    assert counted(attention) == 2 * product
    assert counted(attention().sum().backward) == 2 * 2 * product


def test_what_is_done_number_by_number_does_not_count() -> None:
    inputs = maps(8, 16)
    norm = nn.BatchNorm2d(8, device="meta")
    assert counted(lambda: nn.functional.max_pool2d(norm(inputs).relu() * 2 + 1, 2).mean()) == 0


def test_of_a_whole_detector_forward_is_what_torch_counts() -> None:
    config = require_detection(ssd300_vgg16().task).detector
    assert isinstance(config, SsdConfig)
    with torch.device("meta"):
        detector = Ssd(config, tuple("abcdefgh")).to("meta")
    ours, theirs = (count(lambda: detector(maps(3, 300))) for count in (counted, counted_by_torch))
    assert ours == pytest.approx(theirs, rel=0.001)
    assert ours == pytest.approx(SAMPLES * 62e9, rel=0.02)  # 31 billion products of an image, as is known
