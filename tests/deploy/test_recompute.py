"""Every strategy learns the same, in less memory, when activations are computed again in backward."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from boxcrew.core.errors import BoxcrewError
from boxcrew.deploy.deployment import deploy
from boxcrew.deploy.processes.collectives import ReplicaGroup
from boxcrew.deploy.strategies import fsdp
from boxcrew.deploy.strategies.parameter_server.server import ParameterServerProcess
from boxcrew.plan.plan import BatchNorm, Clone, MemoryFormat, Plan, Precision, Replica
from boxcrew.tasks.cost.estimate import CostTracker
from tests.helpers import learning
from tests.helpers.plans import plan_of
from tests.helpers.processes import in_all_processes

BATCH = 8
Learned = tuple[dict[str, Tensor], list[float]]
"""The state of a task after some steps, and their losses and norms."""


def learned(plan: Plan) -> Learned:
    with deploy(plan) as deployment:
        task = deployment.setup_module(learning.make_task("ssdlite"))
        losses, norms = learning.learn(deployment, task, steps=range(3))
    return task.state_dict(), losses + norms


def require_same(results: Learned, wanted: Learned) -> None:
    """Both must be equal to the bit."""
    assert results[1] == wanted[1]
    assert results[0].keys() == wanted[0].keys()
    for name, value in wanted[0].items():
        assert torch.equal(results[0][name], value), name


@pytest.mark.parametrize(
    ("accumulation", "precision", "memory_format"),
    [(1, "fp32", "contiguous"), (3, "fp32", "channels_last"), (2, "bf16", "channels_last")],
)
def test_one_clone(accumulation: int, precision: Precision, memory_format: MemoryFormat) -> None:
    plan = plan_of(BATCH, accumulation=accumulation, precision=precision, memory_format=memory_format)
    require_same(learned(plan.model_copy(update={"recompute": True})), learned(plan))


@pytest.mark.parametrize("batch_norm", ["first", "synced"])
def test_clones_in_one_process(batch_norm: BatchNorm) -> None:
    plan = plan_of(5, 3, strategy="clones", batch_norm=batch_norm, accumulation=2)
    require_same(learned(plan.model_copy(update={"recompute": True})), learned(plan))


def several(strategy: str, batch_norm: BatchNorm) -> Plan:
    """A plan of two replicas, with a server if the strategy needs one."""
    shares = (5, 3)
    return plan_of(
        *shares,
        strategy=strategy,
        replicas=tuple(Replica(clones=(Clone(device="cpu", share=share),)) for share in shares),
        servers=1 if strategy == "parameter_server" else 0,
        batch_norm=batch_norm,
        accumulation=2,
    )


def play(plan: Plan, group: ReplicaGroup, file: Path) -> None:
    """A frozen backbone thaws after two steps."""
    fsdp.UNIT_BYTES = 1  # every layer is a unit of its own
    results = []
    for recompute in (False, True):
        task = learning.make_task("ssdlite")
        if group.is_server:
            ParameterServerProcess(plan, group, task, torch.optim.SGD(task.parameters(), lr=0.05)).run()
            continue
        with deploy(plan.model_copy(update={"recompute": recompute}), group=group) as deployment:
            placed = deployment.setup_module(task)
            numbers = []
            for learns, steps in ((False, range(2)), (True, range(2, 4))):
                placed.get_submodule("detector.backbone").requires_grad_(requires_grad=learns)
                losses, norms = learning.learn(deployment, placed, steps=steps)
                numbers += losses + norms
            results.append((dict(deployment.gather_full_state(placed.state_dict())), numbers))
    torch.save(results, file)


@pytest.mark.parametrize(
    ("strategy", "batch_norm"),
    [
        ("ddp", "first"),
        ("fsdp", "synced"),
    ],
)
def test_replicas(strategy: str, batch_norm: BatchNorm, tmp_path: Path) -> None:
    plan = several(strategy, batch_norm)
    for usual, again in in_all_processes(plan, partial(play, plan), tmp_path)[: len(plan.replicas)]:
        require_same(again, usual)


def test_a_step_takes_less_memory() -> None:
    """The tensors are real, as the strategy has them."""
    peaks = []
    for recompute in (False, True):
        with deploy(plan_of(BATCH, recompute=recompute)) as deployment:
            task = deployment.setup_module(learning.make_task("ssdlite"))
            batch = learning.make_batch(BATCH, step=0)
            tracker = CostTracker(
                [*task.parameters(), *task.buffers(), batch.inputs, *batch.targets.values()]
            )
            with tracker:
                deployment.gradients(task, batch, "train")
        peaks.append(tracker.peak)
    usual, again = peaks
    assert again < 0.7 * usual


class Dropping(learning.NormedTask):
    def __init__(self) -> None:
        super().__init__()
        self.features.insert(3, nn.Dropout(0.5))


def gradients(plan: Plan, task: nn.Module) -> list[Tensor | None]:
    torch.manual_seed(5)
    with deploy(plan) as deployment:
        deployment.gradients(deployment.setup_module(task), learning.make_batch(BATCH, step=0), "train")
    return [parameter.grad for parameter in task.parameters()]


def test_what_is_dropped_is_dropped_again() -> None:
    results = []
    for recompute in (False, True):
        torch.manual_seed(0)
        results.append(gradients(plan_of(BATCH, recompute=recompute), Dropping()))
    for gradient, recomputed in zip(*results, strict=True):
        assert gradient is not None
        assert recomputed is not None
        assert torch.equal(gradient, recomputed)


def test_clones_that_draw_from_one_source_are_refused() -> None:
    plan = plan_of(4, 4, strategy="clones")
    gradients(plan, Dropping())
    with pytest.raises(BoxcrewError, match="share their random numbers") as refused:
        gradients(plan.model_copy(update={"recompute": True}), Dropping())
    assert "deploy.recompute=false" in refused.value.advice
