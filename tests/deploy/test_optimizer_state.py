"""The state of every optimizer survives a file."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import pytest
import torch
from torch import Tensor, nn

from boxcrew.core.errors import UsageError
from boxcrew.deploy.optimizer_state import OptimizerState, load_optimizer_state, read_optimizer_state
from boxcrew.train.loop.checkpoint import Checkpoint, read_checkpoint, write_checkpoint
from boxcrew.train.loop.optim import OptimConfig, OptimizerName, build_optimizer


def network() -> nn.Module:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 2, 1))
    return net.to(memory_format=torch.channels_last)


def steps(net: nn.Module, optimizer: torch.optim.Optimizer, count: int, seed: int) -> None:
    torch.manual_seed(seed)
    for _ in range(count):
        optimizer.zero_grad()
        net(torch.randn(4, 3, 8, 8)).square().mean().backward()
        optimizer.step()


def optimizer_of(net: nn.Module, name: str, **settings: object) -> torch.optim.Optimizer:
    config = OptimConfig.of({"name": name, "rate": 0.01, **settings})
    return build_optimizer(net, config, backbones=("0.",))


@pytest.mark.parametrize("name", get_args(OptimizerName))
def test_an_optimizer_goes_on_as_if_never_stopped(tmp_path: Path, name: str) -> None:
    net = network()
    optimizer = optimizer_of(net, name)
    steps(net, optimizer, 3, seed=1)
    slots = read_optimizer_state(optimizer)
    written = Checkpoint(step=3, tensors=slots.tensors, state={"optimizer": slots.plain})
    read = read_checkpoint(write_checkpoint(tmp_path, written))
    other = network()
    other.load_state_dict(net.state_dict())
    loaded = optimizer_of(other, name)
    load_optimizer_state(loaded, OptimizerState(read.tensors, read.state["optimizer"]), Tensor.copy_)
    _require_same_slots(optimizer, loaded)
    steps(net, optimizer, 3, seed=2)
    steps(other, loaded, 3, seed=2)
    for ours, theirs in zip(net.parameters(), other.parameters(), strict=True):
        assert torch.equal(ours, theirs)


def _require_same_slots(first: torch.optim.Optimizer, second: torch.optim.Optimizer) -> None:
    pairs = zip(first.state.values(), second.state.values(), strict=True)
    for ours, theirs in pairs:
        assert ours.keys() == theirs.keys()
        for slot, value in ours.items():
            if isinstance(value, Tensor):
                assert torch.equal(value, theirs[slot])
                if value.ndim == 4:
                    assert theirs[slot].is_contiguous(memory_format=torch.channels_last), slot
            else:
                assert value == theirs[slot]


def test_changed_settings_win_over_those_of_the_checkpoint() -> None:
    net = network()
    optimizer = optimizer_of(net, "momentum")
    steps(net, optimizer, 1, seed=1)
    slots = read_optimizer_state(optimizer)
    changed = optimizer_of(net, "momentum", weight_decay=0.3, momentum=0.5, backbone_rate=0.1)
    load_optimizer_state(changed, slots, Tensor.copy_)
    assert {group["weight_decay"] for group in changed.param_groups} == {0.3, 0.0}
    assert {group["rate_scale"] for group in changed.param_groups} == {0.1, 1.0}
    assert {group["momentum"] for group in changed.param_groups} == {0.5}


def test_another_kind_of_optimizer_cannot_go_on() -> None:
    net = network()
    slots = read_optimizer_state(optimizer_of(net, "momentum"))
    with pytest.raises(UsageError, match="SGD, not AdamW"):
        load_optimizer_state(optimizer_of(net, "adamw"), slots, Tensor.copy_)
