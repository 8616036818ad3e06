"""The cores, memory and GPUs that a training takes of each node, from the plan for such nodes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from boxcrew.core.errors import UsageError
from boxcrew.core.units import counted
from boxcrew.hardware.machine import Host, Machine
from boxcrew.plan.plan import Plan
from boxcrew.plan.request import ReplicaRange
from boxcrew.train.config import RunConfig
from boxcrew.train.output.screen import Screen
from boxcrew.train.planning.propose import plan_before_trial
from boxcrew.train.run.data import open_task
from boxcrew.train.run.explanation import explain

_STEP = 256 * 1024**2
"""Bytes: memory is asked for in multiples."""
_HEADROOM = 1.25
"""Times the memory that the plan needs: the job plans again, within what it was given."""


@dataclass(frozen=True, kw_only=True)
class Resources:
    """The processes that a job starts, and what each of them takes."""

    tasks: (
        int  # on each node that the scheduler starts: one, which starts others itself, if there is one node
    )
    replicas: int  # on each node
    cores: int  # of a task
    memory: int  # bytes of a task
    gpus: int  # of a task
    seconds: float | None  # of the whole training, at most; None: not predicted

    def with_a_task_each(self) -> Resources:
        """Return the same with a task for each replica."""
        num = self.replicas // self.tasks
        return replace(
            self,
            tasks=self.replicas,
            cores=max(1, self.cores // num),
            memory=self.memory // num,
            gpus=-(-self.gpus // num),
        )


def plan_resources(config: RunConfig, machine: Machine, nodes: ReplicaRange, screen: Screen) -> Resources:
    """Plan the run for the fewest and the most nodes, all like `machine`, and print the plan. `UsageError` if
    it cannot be trained there.
    """
    others = [device.name for device in machine.accelerators if device.kind != "cuda"]
    if others:
        raise UsageError(
            f"submit.node={machine.headline()}: only CUDA GPUs can be requested, not {others[0]}"
        )
    if nodes.most == 1:
        plans: Sequence[Plan] = explain(config, screen, machine).plans
        return _resources(plans, machine, tasks=1, replicas=max((len(p.replicas) for p in plans), default=1))
    each = _replicas_on_each(config, machine, nodes)
    if config.task.stages():
        raise UsageError(
            f"submit.nodes={nodes.most}: a training in stages runs on one node", advice="use submit.nodes=1"
        )
    screen.info(f"each node: {machine.headline()} (assumed)")
    opened, task_data, task = open_task(config.with_absolute_path(), screen)
    plans = []
    for num in sorted(set(nodes)):
        hosts = [
            Host(name=f"node {n}", machine=machine, ranks=tuple(range(n * each, (n + 1) * each)))
            for n in range(num)
        ]
        _, plan = plan_before_trial(opened, machine, task_data, task, hosts=hosts, is_here=False)
        if plan.servers:
            raise UsageError("deploy.strategy=parameter_server: runs on one node", advice="submit.nodes=1")
        screen.info(f"{counted(num, 'node')}: {'; '.join((*plan.explain()[:1], *plan.expectations()[:1]))}")
        plans.append(plan)
    return _resources(plans, machine, tasks=each, replicas=each)


def _replicas_on_each(config: RunConfig, machine: Machine, nodes: ReplicaRange) -> int:
    """Return how many replicas a node has, if there are several: one for each GPU, or as settings say."""
    replicas = config.deploy.replicas
    if replicas == "auto":
        return max(1, len(machine.accelerators))
    if not isinstance(replicas, int) or nodes.least < nodes.most or replicas % nodes.most:
        raise UsageError(
            f"deploy.replicas={replicas}: cannot be divided among submit.nodes={nodes}",
            advice="leave deploy.replicas= out: each node has one replica, or one for each of its GPUs",
        )
    return replicas // nodes.most


def _resources(plans: Sequence[Plan], machine: Machine, *, tasks: int, replicas: int) -> Resources:
    """Return what a task takes for any of the plans. Without a prediction it may have all of the machine."""
    cores = max((len(plan.replicas) * (plan.threads + plan.loader_workers) for plan in plans), default=0)
    if tasks > 1:
        cores = tasks * max(plan.threads + plan.loader_workers for plan in plans)
    own_cores = math.floor(machine.cores)
    memory = max((_memory(plan) or machine.memory_bytes for plan in plans), default=machine.memory_bytes)
    times = [plan.predicted.run.high for plan in plans if plan.predicted is not None]
    is_known = bool(plans) and len(times) == len(plans)
    return Resources(
        tasks=tasks,
        replicas=replicas,
        cores=max(1, min(cores or own_cores, own_cores) // tasks),
        memory=min(math.ceil(_HEADROOM * memory / tasks / _STEP) * _STEP, machine.memory_bytes // tasks),
        gpus=-(-max((len(_gpus(plan)) for plan in plans), default=0) // tasks),
        seconds=(sum(times) if tasks == 1 else max(times)) if is_known else None,
    )


def _memory(plan: Plan) -> int | None:
    """Return the bytes of main memory that a node needs at most; None if they were not predicted."""
    if plan.predicted is None:
        return None
    return next((memory.needed for memory in plan.predicted.memory if memory.device == "cpu"), None)


def _gpus(plan: Plan) -> set[str]:
    return {device for device in plan.devices if device.startswith("cuda")}
