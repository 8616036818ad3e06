"""Replicas on one host are pinned to cores of their own."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch

from boxcrew.deploy.deployment import Deployment
from boxcrew.deploy.devices import core_slice, on_own_cores
from boxcrew.hardware import probe
from boxcrew.plan.plan import Clone, Replica
from tests.helpers.plans import plan_of
from tests.helpers.processes import in_processes


@pytest.mark.parametrize("num", [1, 2, 3, 8])
@pytest.mark.parametrize("cores", [1, 2, 5, 64])
def test_slices_have_one_core_at_least_and_leave_none_out(cores: int, num: int) -> None:
    slices = [core_slice(range(cores), index, num) for index in range(num)]
    assert all(slices)
    if cores >= num:
        assert sorted(core for cores in slices for core in cores) == list(range(cores))
        assert max(map(len, slices)) - min(map(len, slices)) <= 1


def test_a_process_is_pinned_inside_the_context() -> None:
    before = os.sched_getaffinity(0)
    with on_own_cores(0, len(before)):
        assert os.sched_getaffinity(0) == {min(before)}
    assert os.sched_getaffinity(0) == before


def test_cores_near_to_the_same_memory_are_together(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for core, node in ((0, 0), (1, 1), (2, 0), (3, 1)):
        (tmp_path / f"node{node}" / f"cpu{core}").mkdir(parents=True)
    monkeypatch.setattr(probe, "_NODES", tmp_path)
    monkeypatch.setattr(probe, "_allowed", lambda: {0, 1, 2, 3})
    assert probe.cores_by_node() == [0, 2, 1, 3]
    assert core_slice(probe.cores_by_node(), 1, 2) == [1, 3]


def _note_cores(deployment: Deployment, file: Path) -> None:
    assert deployment.plan.pinned
    torch.save(sorted(os.sched_getaffinity(0)), file)


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two cores")
def test_replicas_do_not_share_cores(tmp_path: Path) -> None:
    replicas = (Replica(clones=(Clone(device="cpu", share=1),)),) * 2
    plan = plan_of(2, replicas=replicas, strategy="ddp", pinned=True)
    first, second = in_processes(plan, _note_cores, tmp_path)
    assert first
    assert second
    assert not set(first) & set(second)
