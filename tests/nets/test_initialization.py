"""Weights before the first step: what is said of them holds for what comes out of layers filled so."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import get_args

import pytest
import torch
from torch import Tensor, nn

from boxcrew.nets.dcgan import Critic
from boxcrew.nets.initialization import Scheme, initialize


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def layers() -> list[tuple[nn.Module, Tensor]]:
    """Of as many inputs as outputs, with an input for each."""
    grid = torch.randn(16, 48, 24, 24, generator=seeded(9))
    return [
        (nn.Linear(256, 256), torch.randn(2000, 256, generator=seeded(8))),
        (nn.Conv2d(48, 48, 3, padding=1), grid),
        (nn.Conv2d(48, 48, 3, padding=1, groups=4), grid),
        (nn.ConvTranspose2d(48, 48, 3, padding=1), grid),
        (nn.ConvTranspose2d(48, 48, 4, stride=2, padding=1), grid),
        (nn.ConvTranspose2d(48, 48, 4, stride=2, padding=1, groups=4), grid),
        (nn.Conv1d(48, 48, 5, padding=2), grid[..., 0]),
    ]


def power(output: Tensor) -> float:
    """The mean square, away from the edges, where padding takes part."""
    inner = output.detach()
    for dim in range(2, output.ndim):
        inner = inner.narrow(dim, 4, inner.shape[dim] - 8)
    return float(inner.square().mean())


@pytest.mark.parametrize("kind", range(7))
def test_he_doubles_the_power_which_a_relu_halves(kind: int) -> None:
    layer, inputs = layers()[kind]
    initialize(layer, "he", seeded())
    assert power(layer(inputs)) == pytest.approx(2, rel=0.1)


@pytest.mark.parametrize("kind", [0, 1, 2, 3, 6])
def test_xavier_keeps_the_power_of_as_many_outputs_as_inputs(kind: int) -> None:
    layer, inputs = layers()[kind]
    initialize(layer, "xavier", seeded())
    assert power(layer(inputs)) == pytest.approx(1, rel=0.1)


def test_he_and_xavier_of_a_layer_are_torchs() -> None:
    layer = nn.Linear(300, 700)
    initialize(layer, "he", seeded())
    assert float(layer.weight.detach().std()) == pytest.approx(math.sqrt(2 / 300), rel=0.02)
    initialize(layer, "xavier", seeded())
    bound = math.sqrt(6 / 1000)
    assert float(layer.weight.detach().std()) == pytest.approx(bound / math.sqrt(3), rel=0.02)
    assert 0.99 * bound < float(layer.weight.detach().abs().max()) <= bound  # uniform


def test_normal_is_that_of_dcgan() -> None:
    layer = nn.ConvTranspose2d(64, 64, 4)
    initialize(layer, "normal", seeded())
    assert float(layer.weight.detach().std()) == pytest.approx(0.02, rel=0.02)


def test_orthogonal_is_orthogonal() -> None:
    wide, tall = nn.Linear(40, 20), nn.Conv2d(2, 30, 3)
    for layer in (wide, tall):
        initialize(layer, "orthogonal", seeded())
    torch.testing.assert_close(wide.weight @ wide.weight.T, torch.eye(20), atol=1e-5, rtol=0)
    columns = tall.weight.flatten(1)
    torch.testing.assert_close(columns.T @ columns, torch.eye(18), atol=1e-5, rtol=0)


def test_each_group_is_orthogonal_by_itself() -> None:
    depthwise = nn.Conv2d(32, 32, 3, groups=32)
    initialize(depthwise, "orthogonal", seeded())
    torch.testing.assert_close(depthwise.weight.flatten(1).norm(dim=1), torch.ones(32))


@pytest.mark.parametrize(("kind", "num_gates"), [(nn.RNN, 1), (nn.GRU, 3), (nn.LSTM, 4)])
def test_each_gate_is_orthogonal_by_itself(kind: Callable[..., nn.Module], num_gates: int) -> None:
    layer = kind(10, 16, num_layers=2, bidirectional=True)
    initialize(layer, "orthogonal", seeded())
    gates = dict(layer.named_parameters())["weight_hh_l1_reverse"].chunk(num_gates)
    for gate in gates:
        torch.testing.assert_close(gate @ gate.T, torch.eye(16), atol=1e-5, rtol=0)
    assert len({round(float(gate.detach().sum()), 4) for gate in gates}) == num_gates


def test_fans_of_recurrent_layers_are_those_of_a_gate() -> None:
    layer = nn.LSTM(100, 200)
    initialize(layer, "xavier", seeded())
    for name, sizes in (("weight_ih_l0", 300), ("weight_hh_l0", 400)):
        largest = float(layer.get_parameter(name).detach().abs().max())
        assert largest == pytest.approx(math.sqrt(6 / sizes), rel=0.01)


def test_an_lstm_remembers_at_first() -> None:
    layer = nn.LSTM(3, 5, num_layers=2)
    initialize(layer, "xavier", seeded())
    for name, bias in layer.named_parameters():
        if name.startswith("bias"):
            forget = 1.0 if name.startswith("bias_ih") else 0.0
            assert bias.tolist() == [0.0] * 5 + [forget] * 5 + [0.0] * 10


def test_a_projection_of_an_lstm_is_one_matrix() -> None:
    layer = nn.LSTM(3, 8, proj_size=4)
    initialize(layer, "orthogonal", seeded())
    projection = dict(layer.named_parameters())["weight_hr_l0"]
    torch.testing.assert_close(projection @ projection.T, torch.eye(4), atol=1e-5, rtol=0)


def test_biases_are_zero_and_norms_as_they_were() -> None:
    network = nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.LayerNorm(6), nn.Linear(6, 5), nn.GRU(5, 4)
    )
    initialize(network, "he", seeded())
    for name, value in network.named_parameters():
        if value.ndim == 1:
            wanted = 1.0 if name in {"1.weight", "2.weight"} else 0.0
            assert (value == wanted).all(), name


def test_embeddings_are_normal_and_padding_stays_nothing() -> None:
    layer = nn.Embedding(500, 64, padding_idx=0)
    initialize(layer, "he", seeded())
    assert (layer.weight[0] == 0).all()
    assert float(layer.weight.detach()[1:].norm(dim=1).mean()) == pytest.approx(1, rel=0.02)
    initialize(layer, "normal", seeded())
    assert float(layer.weight.detach()[1:].std()) == pytest.approx(0.02, rel=0.02)


def test_auto_leaves_all_as_it_is() -> None:
    network = nn.Sequential(nn.Linear(4, 5), nn.LSTM(5, 6), nn.Embedding(3, 4))
    before = copy.deepcopy(network.state_dict())
    initialize(network, "auto", seeded())
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())


@pytest.mark.parametrize("scheme", [scheme for scheme in get_args(Scheme) if scheme != "auto"])
def test_the_generator_alone_decides(scheme: Scheme) -> None:
    networks = [nn.Sequential(nn.Linear(4, 5), nn.LSTM(5, 6), nn.Embedding(3, 4)) for _ in range(3)]
    state = torch.get_rng_state()
    for network, seed in zip(networks, (1, 1, 2), strict=True):
        initialize(network, scheme, seeded(seed))
    assert torch.equal(torch.get_rng_state(), state)
    first, same, other = (nn.utils.parameters_to_vector(network.parameters()) for network in networks)
    assert torch.equal(first, same)
    assert not torch.equal(first, other)


def test_spectral_norms_know_the_new_weights() -> None:
    critic = Critic(1, 28, width=8, spectral_norm=True)
    initialize(critic, "normal", seeded())
    assert isinstance(critic.head, nn.Linear)
    values = critic.eval().head.weight
    assert float(torch.linalg.matrix_norm(values.detach(), ord=2)) == pytest.approx(1, rel=1e-3)
    stored = dict(critic.named_parameters())["head.parametrizations.weight.original"]
    assert float(stored.detach().std()) == pytest.approx(0.02, rel=0.05)


def test_weights_can_still_be_learned() -> None:
    layer = nn.Linear(4, 2)
    initialize(layer, "he", seeded())
    layer(torch.ones(1, 4)).sum().backward()
    assert layer.weight.grad is not None
