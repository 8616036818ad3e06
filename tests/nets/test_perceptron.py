from __future__ import annotations

from typing import get_args

import pytest
import torch
from torch import nn

from boxcrew.nets.layers import Activation
from boxcrew.nets.perceptron import Perceptron


def test_inputs_of_any_shape_are_flattened() -> None:
    network = Perceptron(12, 5, (8, 7)).eval()
    rows = torch.randn(3, 12)
    assert network(rows).shape == (3, 5)
    assert torch.equal(network(rows.reshape(3, 1, 3, 4)), network(rows))
    assert network.features(rows).shape == (3, 7)


@pytest.mark.parametrize("activation", get_args(Activation))
def test_it_is_linear_and_activation_in_turn(activation: Activation) -> None:
    network = Perceptron(6, 2, (4,), activation=activation)
    inputs = torch.randn(9, 6)
    first = network.hidden[0]
    assert isinstance(first, nn.Sequential)
    linear = first[0]
    function = {"leaky_relu": lambda x: nn.functional.leaky_relu(x, 0.1)}.get(
        activation, getattr(nn.functional, activation)
    )
    wanted = network.head(function(linear(inputs)))
    torch.testing.assert_close(network(inputs), wanted)


def test_without_hidden_layers_it_is_linear() -> None:
    network = Perceptron(6, 2, ())
    first, second = torch.randn(2, 1, 6)
    both = network(first) + network(second) - network.head.bias
    torch.testing.assert_close(network(first + second), both)


def test_dropout_is_on_in_training_alone() -> None:
    network = Perceptron(6, 2, (200,), dropout=0.5)
    inputs = torch.randn(1, 6)
    assert not torch.equal(network(inputs), network(inputs))
    dropped = (network.features(inputs) == 0).float().mean()
    network.eval()
    assert torch.equal(network(inputs), network(inputs))
    assert dropped > (network.features(inputs) == 0).float().mean() + 0.1


def test_batch_norm_gives_units_of_zero_mean_and_unit_variance() -> None:
    network = Perceptron(6, 2, (8,), activation="tanh", batch_norm=True)
    features = network.features(3 + 5 * torch.randn(400, 6)).atanh()
    torch.testing.assert_close(features.mean(dim=0), torch.zeros(8), atol=1e-3, rtol=0)
    torch.testing.assert_close(features.std(dim=0), torch.ones(8), atol=1e-2, rtol=0)


def test_a_single_sample_can_be_trained_on() -> None:
    network = Perceptron(6, 2, (8,), batch_norm=True).train()
    assert network(torch.randn(1, 6)).isfinite().all()
