"""Caps on memory, in processes of their own: a limit is for good if something goes wrong with it."""

from __future__ import annotations

import platform

import pytest

from boxcrew.core.errors import UsageError
from boxcrew.deploy.deployment import deploy
from boxcrew.deploy.execution import Execution
from boxcrew.plan.plan import Clone, Replica
from tests.helpers.devices import FakeDevices
from tests.helpers.forked import Forked, Job
from tests.helpers.plans import plan_of

linux = pytest.mark.skipif(platform.system() != "Linux", reason="only Linux counts a process's own memory")

STEP = """
import resource, torch, psutil
from torch import nn
from boxcrew.core.types import Batch, Losses
from boxcrew.deploy.deployment import deploy
from boxcrew.hardware.probe import usable_memory
from tests.helpers.plans import plan_of

class Wide(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(1024))

    def forward(self, batch, phase="train"):
        values = batch.inputs
        for _ in range(8):
            values = (values * self.scale).tanh()  # 64 MiB a sample are kept for backward
        return Losses(terms={"sum": values.mean(dim=(1, 2)).sum()}, weight=torch.tensor(float(len(batch))))

batch = Batch(inputs=torch.randn(8, 1024, 1024), targets={}, keys=("a",) * 8)
task = Wide()
alone = Wide()
alone.load_state_dict(task.state_dict())
room = psutil.Process().memory_info().data + given["room"] * 2**20
with deploy(plan_of(8, memory_fraction=room / usable_memory())) as deployment:
    deployment.gradients(task, batch, "train")
    print("parts", deployment.execution.num_micro_batches)
assert resource.getrlimit(resource.RLIMIT_DATA)[0] == resource.RLIM_INFINITY
with deploy(plan_of(8)) as deployment:
    deployment.gradients(alone, batch, "train")
    print("without", deployment.execution.num_micro_batches)
torch.testing.assert_close(task.scale.grad, alone.scale.grad)
"""


def run(room: int) -> tuple[int, str, str]:
    """Return the exit code and the output of a step with so many MiB more than are in use before it."""
    process = Forked(Job(code=STEP, given={"room": room}))
    out, err = process.communicate()
    return process.wait(), out, err


@linux
def test_a_step_that_would_exceed_the_cap_is_computed_in_parts() -> None:
    """The gradients are the same. The step keeps 512 MiB, some of which may lie free in the heap before."""
    code, out, err = run(250)
    assert code == 0, err
    parts = int(out.split()[1])
    assert parts > 1
    assert "without 1" in out


@linux
def test_memory_for_not_even_one_sample_is_an_error() -> None:
    _, _, err = run(35)
    assert "not enough memory on cpu, of which" in err
    assert "even in 8 micro-batches" in err


@linux
def test_a_cap_that_is_exceeded_already_is_refused() -> None:
    _, _, err = run(-100)
    assert "are in use before the first step (plan: single on cpu, batch 8" in err


def test_accelerators_are_limited_too() -> None:
    fakes = FakeDevices()
    with deploy(plan_of(8, device="cuda:0", memory_fraction=0.8), fakes):
        assert fakes.limited == [("cuda:0", 0.8)]


def test_an_execution_has_more_parts_only_if_all_replicas_have_samples_for_them() -> None:
    replicas = tuple(Replica(clones=(Clone(device="cpu", share=share),)) for share in (7, 1))
    plan = plan_of(7, 1, strategy="ddp", replicas=replicas, batch_norm="first", accumulation=2)
    begun = Execution(plan=plan)
    assert begun.with_micro_batches(1) == begun
    more = begun.with_micro_batches(4)
    assert (more.num_micro_batches, more.min_micro_batches, begun.num_micro_batches) == (4, 4, 2)
    assert more.with_micro_batches(3) == more
    with pytest.raises(UsageError, match="no sample in one of the 4 micro-batches"):
        Execution(plan=plan_of(7, 1, strategy="fsdp", replicas=replicas)).with_micro_batches(4)
