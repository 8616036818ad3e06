from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrizations

from boxcrew.core.torch_tools.tracked_weights import track_weights
from boxcrew.nets.spectral_norm import add_spectral_norm


def make_layers() -> list[nn.Conv2d | nn.Linear]:
    torch.manual_seed(0)
    return [nn.Linear(6, 5), nn.Conv2d(3, 8, 4, stride=2), nn.Linear(7, 1)]


def inputs_of(layer: nn.Conv2d | nn.Linear) -> Tensor:
    shape = (4, 3, 8, 8) if isinstance(layer, nn.Conv2d) else (4, layer.in_features)
    return torch.randn(shape, generator=torch.Generator().manual_seed(1))


def buffers(layer: nn.Module) -> dict[str, Tensor]:
    return {name: value.clone() for name, value in layer.named_buffers()}


def spectral_norm(layer: nn.Conv2d | nn.Linear) -> float:
    return float(torch.linalg.matrix_norm(layer.weight.detach().flatten(1), ord=2))


@pytest.mark.parametrize("which", range(3))
def test_the_norm_is_one_and_is_so_again_after_the_weight_has_moved(which: int) -> None:
    layer = make_layers()[which]
    add_spectral_norm(layer)
    for _ in range(50):
        track_weights(layer)
    assert spectral_norm(layer) == pytest.approx(1, rel=0.01)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=torch.Generator().manual_seed(2)))
    track_weights(layer)
    assert spectral_norm(layer) >= 0.99, "what is estimated is never more than the norm"
    for _ in range(50):
        track_weights(layer)
    assert spectral_norm(layer) == pytest.approx(1, rel=0.01)


@pytest.mark.parametrize("which", range(3))
def test_forward_does_not_move_what_it_knows(which: int) -> None:
    layer = make_layers()[which]
    add_spectral_norm(layer)
    before, inputs = buffers(layer), inputs_of(layer)
    first = layer.train()(inputs)
    assert torch.equal(layer(inputs), first)
    assert all(torch.equal(value, before[name]) for name, value in buffers(layer).items())


@pytest.mark.parametrize("which", range(3))
def test_it_computes_what_torchs_does_and_takes_what_that_has_learned(which: int) -> None:
    """In float64: in float32 the number of threads changes sums by more than is allowed here."""
    ours = make_layers()[which].double()
    theirs = copy.deepcopy(ours)
    add_spectral_norm(ours)
    parametrizations.spectral_norm(theirs).eval()
    ours.load_state_dict(theirs.state_dict())
    inputs = inputs_of(ours).double()
    torch.testing.assert_close(ours(inputs), theirs(inputs))
    gradients, wanted = (
        torch.autograd.grad(layer(inputs).square().sum(), list(layer.parameters()))
        for layer in (ours, theirs)
    )
    torch.testing.assert_close(gradients, wanted)
    theirs.train()(inputs)
    track_weights(ours)
    torch.testing.assert_close(buffers(ours), buffers(theirs))


def test_half_precision_does_not_round_the_norm() -> None:
    layer = make_layers()[1]
    add_spectral_norm(layer)
    exact = layer.weight
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(layer.weight, exact)
