"""Parameters sharded among replicas, in real processes over gloo."""

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


def make_plan(*shares: int, batch_norm: BatchNorm = "synced") -> Plan:
    replicas = tuple(Replica(clones=(Clone(device="cpu", share=share),)) for share in shares)
    return plan_of(*shares, strategy="fsdp", replicas=replicas, batch_norm=batch_norm)


def thaw(deployment: Deployment, task: nn.Module, optimizer: Optimizer) -> list[float]:
    """Return losses and norms of some steps with a frozen backbone, and some with one that learns."""
    numbers: list[float] = []
    for learns, steps in ((False, range(2)), (True, range(2, 4))):
        task.get_submodule("detector.backbone").requires_grad_(requires_grad=learns)
        losses, norms = learning.learn(deployment, task, optimizer=optimizer, steps=steps)
        numbers += losses + norms
    return numbers


def learn_sharded(deployment: Deployment, file: Path) -> None:
    """Every layer is a unit of its own."""
    fsdp.UNIT_BYTES = 1
    task = deployment.setup_module(learning.make_task("ssdlite"))
    optimizer = torch.optim.Adam(task.parameters(), lr=1e-3)
    numbers = thaw(deployment, task, optimizer)
    held = sum(deployment.to_local(parameter).numel() for parameter in task.parameters())
    slots = deployment.slots(optimizer).tensors
    remembered = sum(deployment.to_local(slot).numel() for slot in slots.values())
    full = deployment.gather_full_state(task.state_dict())
    scores = []
    if deployment.is_chief:
        copied = deployment.eval_copy(task, full).eval()
        inputs = learning.make_batch(2, step=9).inputs
        scores = [tensor.detach() for tensor in copied.get_submodule("detector")(inputs)]
    torch.save((numbers, held, remembered, dict(full), scores), file)


def test_every_replica_has_its_shard_of_parameters_and_optimizer(tmp_path: Path) -> None:
    results = in_processes(make_plan(5, 3), learn_sharded, tmp_path)
    with deploy(plan_of(BATCH)) as deployment:
        task = deployment.setup_module(learning.make_task("ssdlite"))
        optimizer = torch.optim.Adam(task.parameters(), lr=1e-3)
        numbers = thaw(deployment, task, optimizer)
        scores = task.eval().get_submodule("detector")(learning.make_batch(2, step=9).inputs)
    total = sum(parameter.numel() for parameter in task.parameters())
    for theirs, held, remembered, _, _ in results:
        assert theirs == pytest.approx(numbers, rel=1e-8)
        assert held < 0.6 * total
        assert remembered < 0.6 * 2 * total + 2 * len(list(task.parameters()))  # two slots, and a counter
    assert sum(held for _, held, *_ in results) == total
    assert learning.distance(results[0][3], task.state_dict()) < 1e-8
    assert results[1][3] == {}
    for ours, theirs in zip(scores, results[0][4], strict=True):
        torch.testing.assert_close(theirs, ours, rtol=1e-6, atol=1e-6)


def blank(deployment: Deployment, file: Path) -> None:
    """One replica can read nothing in the second step, and none of them in the third."""
    task = deployment.setup_module(learning.make_task("normed"))
    batch = learning.make_batch(BATCH, step=0).select(deployment.positions)
    losses = []
    for blanks in ([], [1], [0]):
        samples = replace(batch, is_blank=deployment.group.rank in blanks)
        results = deployment.gradients(task, samples, "train")
        losses.append((results.total(), results.weight, task.get_buffer("features.1.running_mean").clone()))
        deployment.discard(task)
    with pytest.raises(DataError, match="none of the 8 samples"):
        deployment.gradients(task, replace(batch, is_blank=True), "train")
    torch.save(losses, file)


@pytest.mark.parametrize("strategy", ["ddp", "fsdp"])
def test_a_replica_that_can_read_nothing_counts_for_nothing(tmp_path: Path, strategy: str) -> None:
    plan = make_plan(4, 4, batch_norm="first").model_copy(update={"strategy": strategy})
    results = in_processes(plan, blank, tmp_path)
    shares_of_batch = learning.make_batch(BATCH, step=0).split([4, 4])
    task = learning.make_task("normed")
    loss = [float(task(share).total().detach()) for share in shares_of_batch]
    start = learning.make_task("normed").get_buffer("features.1.running_mean")
    for replica in results:
        assert [float(total) for total, _, _ in replica] == pytest.approx([sum(loss), loss[0], loss[1]])
        assert [float(weight) for _, weight, _ in replica] == [8, 4, 4]
    chief = [statistics for _, _, statistics in results[0]]
    assert torch.equal(chief[0], chief[1])
    assert torch.equal(chief[2], start)
    assert not torch.equal(chief[0], start)


def on_accelerators(strategy: str, group: ReplicaGroup, file: Path) -> None:
    """The CPU's memory stands for accelerators that are not there."""
    shares = (5, 3)
    replicas = tuple(
        Replica(clones=(Clone(device=f"cuda:{i}", share=share),)) for i, share in enumerate(shares)
    )
    plan = plan_of(*shares, strategy=strategy, replicas=replicas, device="cuda:0", batch_norm="synced")
    fakes = FakeDevices()
    with deploy(plan, fakes, group) as deployment:
        task = deployment.setup_module(learning.make_task("normed"))
        losses, norms = learning.learn(deployment, task)
    torch.save((losses + norms, fakes.chosen, sorted(set(fakes.used))), file)


@pytest.mark.parametrize("strategy", ["ddp", "fsdp"])
def test_each_replica_chooses_its_own_accelerator(tmp_path: Path, strategy: str) -> None:
    results = in_all_processes(make_plan(5, 3), partial(on_accelerators, strategy), tmp_path)
    with deploy(plan_of(BATCH)) as deployment:
        losses, norms = learning.learn(deployment, deployment.setup_module(learning.make_task("normed")))
    for rank, (numbers, chosen, used) in enumerate(results):
        assert numbers == pytest.approx(losses + norms, rel=1e-5)
        assert chosen == [f"cuda:{rank}"]
        assert f"cuda:{rank}" in used
