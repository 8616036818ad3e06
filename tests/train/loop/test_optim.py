"""Every optimizer learns, decays what it should, and has the rates it was given."""

from __future__ import annotations

from typing import get_args

import pytest
import torch
from torch import Tensor, nn

from boxcrew.core.errors import UsageError
from boxcrew.train.loop.optim import OptimConfig, OptimizerName, build_optimizer, set_rate

NAMES: tuple[str, ...] = get_args(OptimizerName)
RATES = {"sgd": 0.1, "momentum": 0.02, "nesterov": 0.02, "adadelta": 10.0, "ftrl": 1.0, "adagrad": 0.5}
SLOTS = {
    "sgd": set(),
    "momentum": {"momentum_buffer"},
    "nesterov": {"momentum_buffer"},
    "adam": {"exp_avg", "exp_avg_sq"},
    "adamw": {"exp_avg", "exp_avg_sq"},
    "rmsprop": {"square_avg", "momentum_buffer"},
    "adagrad": {"sum"},
    "adadelta": {"square_avg", "acc_delta"},
    "ftrl": {"n", "z"},
}


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.backbone = nn.Linear(3, 4)
        self.head = nn.Linear(4, 2)

    def forward(self, inputs: Tensor) -> Tensor:
        result: Tensor = self.head(self.backbone(inputs))
        return result


def build(net: nn.Module, **settings: object) -> torch.optim.Optimizer:
    return build_optimizer(net, OptimConfig.of(settings), backbones=("backbone.",))


def values(net: nn.Module) -> dict[str, Tensor]:
    return {name: parameter.detach().clone() for name, parameter in net.named_parameters()}


def zero_gradient(net: nn.Module) -> None:
    for parameter in net.parameters():
        parameter.grad = torch.zeros_like(parameter)


@pytest.mark.parametrize("name", NAMES)
def test_a_convex_problem_is_reduced(name: str) -> None:
    torch.manual_seed(1)
    inputs = torch.randn(32, 5)
    wanted = inputs @ torch.randn(5, 1)
    net = nn.Linear(5, 1)
    optimizer = build(net, name=name, rate=RATES.get(name, 0.05), weight_decay=0)
    losses = []
    for _ in range(60):
        optimizer.zero_grad()
        loss = (net(inputs) - wanted).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.2 * losses[0], losses


@pytest.mark.parametrize("name", NAMES)
def test_slots_have_the_shape_of_their_parameter(name: str) -> None:
    net = Net()
    optimizer = build(net, name=name)
    net(torch.ones(2, 3)).sum().backward()
    optimizer.step()
    for parameter in net.parameters():
        slots = optimizer.state[parameter]
        shaped = {n for n, v in slots.items() if isinstance(v, Tensor) and v.shape == parameter.shape}
        assert shaped == SLOTS[name]


@pytest.mark.parametrize("name", NAMES)
def test_decay_touches_weights_alone(name: str) -> None:
    net = Net()
    before = values(net)
    optimizer = build(net, name=name, rate=1e-3, weight_decay=0.1)
    zero_gradient(net)
    optimizer.step()
    for parameter_name, after in net.named_parameters():
        if after.ndim >= 2:
            assert not torch.equal(after, before[parameter_name]), parameter_name
            assert after.norm() < before[parameter_name].norm(), parameter_name
        else:
            torch.testing.assert_close(after, before[parameter_name], rtol=1e-6, atol=0)


@pytest.mark.parametrize("name", NAMES)
def test_without_decay_and_gradient_nothing_moves(name: str) -> None:
    net = Net()
    before = values(net)
    optimizer = build(net, name=name, weight_decay=0)
    for rate in (1e-3, 1e-2, 1e-1, 1e-3):  # as in a warm-up and a decay
        set_rate(optimizer, rate)
        zero_gradient(net)
        optimizer.step()
    for parameter_name, after in net.named_parameters():
        torch.testing.assert_close(after, before[parameter_name], rtol=1e-5, atol=1e-7)


def test_the_backbone_has_its_own_rate() -> None:
    net = Net()
    before = values(net)
    optimizer = build(net, name="sgd", rate=1.0, backbone_rate=0.25, weight_decay=0)
    set_rate(optimizer, 0.5)
    for parameter in net.parameters():
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    for name, after in net.named_parameters():
        moved = before[name] - after
        expected = 0.125 if name.startswith("backbone.") else 0.5
        torch.testing.assert_close(moved, torch.full_like(moved, expected))


def test_a_frozen_parameter_stays_whatever_the_decay() -> None:
    net = Net()
    net.backbone.requires_grad_(requires_grad=False)
    before = values(net)
    optimizer = build(net, name="momentum", weight_decay=0.5)
    net(torch.ones(2, 3)).sum().backward()
    optimizer.step()
    assert torch.equal(net.backbone.weight, before["backbone.weight"])
    assert not torch.equal(net.head.weight, before["head.weight"])


@pytest.mark.parametrize(("name", "nesterov"), [("momentum", False), ("nesterov", True)])
def test_momentum_is_torchs(name: str, nesterov: bool) -> None:
    ours, theirs = nn.Linear(4, 3, bias=False), nn.Linear(4, 3, bias=False)
    theirs.load_state_dict(ours.state_dict())
    first = build(ours, name=name, rate=0.1, momentum=0.8, weight_decay=0.01)
    second = torch.optim.SGD(
        theirs.parameters(), lr=0.1, momentum=0.8, weight_decay=0.01, nesterov=nesterov, foreach=False
    )
    inputs = torch.randn(6, 4)
    for _ in range(5):
        for net, optimizer in ((ours, first), (theirs, second)):
            optimizer.zero_grad()
            net(inputs).square().sum().backward()
            optimizer.step()
    torch.testing.assert_close(ours.weight, theirs.weight)


@pytest.mark.parametrize("name", NAMES)
def test_only_what_has_a_momentum_can_have_another_in_a_phase(name: str) -> None:
    settings = {"name": name, "phases": {"critic": {"momentum": 0.5}}}
    if name in {"momentum", "nesterov", "rmsprop", "adam", "adamw"}:
        assert OptimConfig.of(settings).phases["critic"].momentum == 0.5
        return
    with pytest.raises(UsageError, match=rf"optim.phases.critic.momentum=0.5: {name} has none"):
        OptimConfig.of(settings)
