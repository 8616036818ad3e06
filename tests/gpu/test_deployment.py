"""What only an accelerator can show; skipped where there is none."""

from __future__ import annotations

import pytest
import torch

from boxcrew.deploy.deployment import deploy
from boxcrew.deploy.devices import Devices
from boxcrew.hardware.probe import probe_machine
from boxcrew.hardware.speed import measure_device
from boxcrew.plan.plan import Clone, Plan, Replica
from boxcrew.testing import learning
from boxcrew.testing.plans import plan_of

pytestmark = pytest.mark.skipif(not torch.accelerator.is_available(), reason="there is no accelerator here")

BATCH = 8


def first() -> str:
    return probe_machine().accelerators[0].name


def mixed(*devices: str) -> Plan:
    clones = tuple(Clone(device=name, share=BATCH // len(devices)) for name in devices)
    return plan_of(
        *(clone.share for clone in clones),
        strategy="clones",
        replicas=(Replica(clones=clones),),
        batch_norm="synced",
    )


def learnt(plan: Plan) -> dict[str, torch.Tensor]:
    with deploy(plan) as deployment:
        task = deployment.place(learning.make_task("normed"))
        learning.learn(deployment, task)
    return {name: value.cpu() for name, value in task.state_dict().items()}


def test_accelerators_are_found_and_measured() -> None:
    device = probe_machine().accelerators[0]
    speeds = measure_device(device)
    assert speeds.from_host_bytes is not None
    assert device.memory_bytes > 1 << 28


def test_one_clone_there_learns_what_one_here_does() -> None:
    wanted = learnt(plan_of(BATCH))
    assert learning.distance(learnt(plan_of(BATCH, device=first())), wanted) < 1e-3
    assert learning.distance(learnt(mixed(first())), wanted) < 1e-3


def test_clones_there_and_here_learn_what_one_does() -> None:
    assert learning.distance(learnt(mixed(first(), "cpu")), learnt(plan_of(BATCH))) < 1e-3


@pytest.mark.skipif(torch.accelerator.device_count() < 2, reason="there is one accelerator only")
def test_two_accelerators_learn_what_one_does() -> None:
    names = [device.name for device in probe_machine().accelerators[:2]]
    assert learning.distance(learnt(mixed(*names)), learnt(plan_of(BATCH))) < 1e-3


def test_memory_can_be_released() -> None:
    taken = torch.zeros(1 << 26, device=first())
    del taken
    kept = torch.accelerator.memory_reserved()
    Devices().release(first())
    assert torch.accelerator.memory_reserved() < kept
