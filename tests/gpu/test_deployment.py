"""Behavior that needs a real accelerator; skipped if there is none."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from boxcrew.deploy.deployment import Deployment, deploy
from boxcrew.deploy.devices import Devices
from boxcrew.hardware.probe import probe_machine
from boxcrew.hardware.speed import measure_device
from boxcrew.plan.plan import Clone, Plan, Replica
from tests.helpers import learning
from tests.helpers.plans import plan_of
from tests.helpers.processes import in_processes
from tests.helpers.tiny import TINY

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


def learned(plan: Plan) -> dict[str, torch.Tensor]:
    with deploy(plan) as deployment:
        task = deployment.setup_module(learning.make_task("normed"))
        learning.learn(deployment, task)
    return {name: value.cpu() for name, value in task.state_dict().items()}


def test_accelerators_are_found_and_measured() -> None:
    device = probe_machine().accelerators[0]
    speeds = measure_device(device)
    assert speeds.from_host_bytes is not None
    assert device.memory_bytes > 1 << 28


def test_one_clone_there_learns_what_one_here_does() -> None:
    wanted = learned(plan_of(BATCH))
    assert learning.distance(learned(plan_of(BATCH, device=first())), wanted) < 1e-3
    assert learning.distance(learned(mixed(first())), wanted) < 1e-3


def test_clones_there_and_here_learn_what_one_does() -> None:
    assert learning.distance(learned(mixed(first(), "cpu")), learned(plan_of(BATCH))) < 1e-3


@pytest.mark.skipif(torch.accelerator.device_count() < 2, reason="there is one accelerator only")
def test_two_accelerators_learn_what_one_does() -> None:
    names = [device.name for device in probe_machine().accelerators[:2]]
    assert learning.distance(learned(mixed(*names)), learned(plan_of(BATCH))) < 1e-3


def test_memory_can_be_released() -> None:
    block = torch.zeros(1 << 26, device=first())
    del block
    kept = torch.accelerator.memory_reserved()
    Devices().release(first())
    assert torch.accelerator.memory_reserved() < kept


@pytest.mark.skipif(torch.accelerator.device_count() < 2, reason="there is one accelerator only")
@pytest.mark.parametrize("strategy", ["ddp", "fsdp"])
def test_a_replica_on_each_accelerator_learns_what_one_does(strategy: str, tmp_path: Path) -> None:
    names = [device.name for device in probe_machine().accelerators[:2]]
    replicas = tuple(Replica(clones=(Clone(device=name, share=BATCH // 2),)) for name in names)
    plan = plan_of(4, 4, strategy=strategy, replicas=replicas, device=names[0], batch_norm="synced")
    results = in_processes(plan, _learn, tmp_path)
    assert learning.distance(results[0], learned(plan_of(BATCH))) < 1e-3


def _learn(deployment: Deployment, file: Path) -> None:
    task = deployment.setup_module(learning.make_task("normed"))
    learning.learn(deployment, task)
    full = deployment.gather_full_state(task.state_dict())
    torch.save({name: value.cpu() for name, value in full.items()}, file)


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_low_precision_learns_about_the_same(precision: str) -> None:
    plan = plan_of(BATCH, device=first(), precision=precision)
    assert learning.distance(learned(plan), learned(plan_of(BATCH))) < 0.1


def test_a_cap_on_memory_is_kept() -> None:
    """A step that passes it is computed in smaller parts."""
    with deploy(plan_of(BATCH, device=first(), memory_fraction=0.5)):
        most = probe_machine().accelerators[0].memory_bytes
        with pytest.raises(torch.OutOfMemoryError):
            torch.empty(int(0.6 * most), dtype=torch.uint8, device=first())


@pytest.mark.parametrize(
    "words",
    [
        (),
        ("deploy.optimizer_device=cpu",),
        ("deploy.strategy=parameter_server", "deploy.servers=1"),
    ],
    ids=["single", "offloaded", "parameter_server"],
)
def test_a_whole_run(words: tuple[str, ...], tmp_path: Path) -> None:
    device = first().partition(":")[0]
    done = subprocess.run(
        [sys.executable, "-m", "boxcrew", "train", *TINY, "steps=3", f"device={device}", "out=run", *words],
        cwd=tmp_path,
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "run" / "weights" / "best.safetensors").is_file()
