"""Parameters divided among replicas, in real processes over gloo."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.optim import Optimizer

from boxcrew.core.errors import DataError
from boxcrew.deploy.deployment import Deployment, deploy
from boxcrew.deploy.processes.collectives import ReplicaGroup
from boxcrew.deploy.strategies import fsdp
from boxcrew.plan.plan import BatchNorm, Clone, Plan, Replica
from tests.helpers import learning
from tests.helpers.devices import FakeDevices
from tests.helpers.plans import plan_of
from tests.helpers.processes import in_all_processes, in_processes

BATCH = 8


def plan(*shares: int, batch_norm: BatchNorm = "synced") -> Plan:
    replicas = tuple(Replica(clones=(Clone(device="cpu", share=share),)) for share in shares)
    return plan_of(*shares, strategy="fsdp", replicas=replicas, batch_norm=batch_norm)


def thaw(deployment: Deployment, task: nn.Module, optimizer: Optimizer) -> list[float]:
    """Some steps with a frozen backbone, some with one that learns: their losses and norms."""
    told: list[float] = []
    for learns, steps in ((False, range(2)), (True, range(2, 4))):
        task.get_submodule("detector.backbone").requires_grad_(requires_grad=learns)
        losses, norms = learning.learn(deployment, task, optimizer=optimizer, steps=steps)
        told += losses + norms
    return told


def divided(deployment: Deployment, file: Path) -> None:
    """With every layer as a unit of its own."""
    fsdp.UNIT_BYTES = 1
    task = deployment.setup_module(learning.make_task("ssdlite"))
    optimizer = torch.optim.Adam(task.parameters(), lr=1e-3)
    told = thaw(deployment, task, optimizer)
    held = sum(deployment.to_local(parameter).numel() for parameter in task.parameters())
    slots = deployment.slots(optimizer).tensors
    remembered = sum(deployment.to_local(slot).numel() for slot in slots.values())
    whole = deployment.gather_full_state(task.state_dict())
    scores = []
    if deployment.is_chief:
        lent = deployment.eval_copy(task, whole).eval()
        inputs = learning.make_batch(2, step=9).inputs
        scores = [tensor.detach() for tensor in lent.get_submodule("detector")(inputs)]
    torch.save((told, held, remembered, dict(whole), scores), file)


def test_every_replica_has_its_part_of_parameters_and_optimizer(tmp_path: Path) -> None:
    found = in_processes(plan(5, 3), divided, tmp_path)
    with deploy(plan_of(BATCH)) as deployment:
        task = deployment.setup_module(learning.make_task("ssdlite"))
        optimizer = torch.optim.Adam(task.parameters(), lr=1e-3)
        told = thaw(deployment, task, optimizer)
        scores = task.eval().get_submodule("detector")(learning.make_batch(2, step=9).inputs)
    total = sum(parameter.numel() for parameter in task.parameters())
    for theirs, held, remembered, _, _ in found:
        assert theirs == pytest.approx(told, rel=1e-8)
        assert held < 0.6 * total
        assert remembered < 0.6 * 2 * total + 2 * len(list(task.parameters()))  # two slots, and a counter
    assert sum(held for _, held, *_ in found) == total
    assert learning.distance(found[0][3], task.state_dict()) < 1e-8
    assert found[1][3] == {}
    for ours, theirs in zip(scores, found[0][4], strict=True):
        torch.testing.assert_close(theirs, ours, rtol=1e-6, atol=1e-6)


def blank(deployment: Deployment, file: Path) -> None:
    """One replica can read nothing in the second step, and none of them in the third."""
    task = deployment.setup_module(learning.make_task("normed"))
    batch = learning.make_batch(BATCH, step=0).select(deployment.positions)
    losses = []
    for blanks in ([], [1], [0]):
        given = replace(batch, is_blank=deployment.group.rank in blanks)
        found = deployment.gradients(task, given, "train")
        losses.append((found.total(), found.weight, task.get_buffer("features.1.running_mean").clone()))
        deployment.discard(task)
    with pytest.raises(DataError, match="none of the 8 samples"):
        deployment.gradients(task, replace(batch, is_blank=True), "train")
    torch.save(losses, file)


@pytest.mark.parametrize("strategy", ["ddp", "fsdp"])
def test_a_replica_that_can_read_nothing_counts_for_nothing(tmp_path: Path, strategy: str) -> None:
    one = plan(4, 4, batch_norm="first").model_copy(update={"strategy": strategy})
    found = in_processes(one, blank, tmp_path)
    parts = learning.make_batch(BATCH, step=0).split([4, 4])
    task = learning.make_task("normed")
    loss = [float(task(part).total().detach()) for part in parts]
    start = learning.make_task("normed").get_buffer("features.1.running_mean")
    for replica in found:
        assert [float(total) for total, _, _ in replica] == pytest.approx([sum(loss), loss[0], loss[1]])
        assert [float(weight) for _, weight, _ in replica] == [8, 4, 4]
    chief = [statistics for _, _, statistics in found[0]]
    assert torch.equal(chief[0], chief[1])
    assert torch.equal(chief[2], start)
    assert not torch.equal(chief[0], start)


def on_accelerators(strategy: str, group: ReplicaGroup, file: Path) -> None:
    """Such as are not there: memory of the CPU in their place."""
    shares = (5, 3)
    replicas = tuple(
        Replica(clones=(Clone(device=f"cuda:{i}", share=share),)) for i, share in enumerate(shares)
    )
    one = plan_of(*shares, strategy=strategy, replicas=replicas, device="cuda:0", batch_norm="synced")
    fakes = FakeDevices()
    with deploy(one, fakes, group) as deployment:
        task = deployment.setup_module(learning.make_task("normed"))
        losses, norms = learning.learn(deployment, task)
    torch.save((losses + norms, fakes.chosen, sorted(set(fakes.found))), file)


@pytest.mark.parametrize("strategy", ["ddp", "fsdp"])
def test_each_replica_chooses_its_own_accelerator(tmp_path: Path, strategy: str) -> None:
    found = in_all_processes(plan(5, 3), partial(on_accelerators, strategy), tmp_path)
    with deploy(plan_of(BATCH)) as deployment:
        losses, norms = learning.learn(deployment, deployment.setup_module(learning.make_task("normed")))
    for rank, (told, chosen, used) in enumerate(found):
        assert told == pytest.approx(losses + norms, rel=1e-5)
        assert chosen == [f"cuda:{rank}"]
        assert f"cuda:{rank}" in used
