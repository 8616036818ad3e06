"""A trained network, back from its file and ready for work."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from torch import nn

from boxcrew.core.errors import ModelError
from boxcrew.deploy.deployment import Deployment, deploy
from boxcrew.hardware.probe import probe_machine
from boxcrew.nets.weights import Weights, find_weights, read_weights
from boxcrew.plan.layouts import layouts_of
from boxcrew.plan.plan import Clone, Plan, Replica
from boxcrew.plan.request import DeployConfig, PlanRequest
from boxcrew.plan.search import fast_precision, usual_workers
from boxcrew.tasks.base import TASKS, Task, TaskConfig
from boxcrew.tasks.cost.estimate import has_depthwise
from boxcrew.tasks.data import DataFacts

Which = Literal["best", "last"]


@dataclass(frozen=True, kw_only=True, eq=False)
class Loaded:
    """A task on its device, in evaluation mode. Use `deployment` as a context while it works."""

    task: Task
    config: TaskConfig
    facts: DataFacts
    deployment: Deployment
    path: Path  # of the weights
    seed: int  # of the run that they are of


def load_task(place: Path, *, which: Which = "best", device: str = "auto", batch: int = 1) -> Loaded:
    """From a run directory or a weight file that boxcrew wrote."""
    return load_described(*described(place, which=which), device=device, batch=batch)


def load_described(
    weights: Weights, meta: Mapping[str, Any], *, device: str = "auto", batch: int = 1
) -> Loaded:
    """Build the task that `meta` describes, with its weights, on a device."""
    path = Path(weights.source)
    kind = TASKS.get(meta["task"]["name"])
    config = kind.config_class.of(meta["task"])
    task = kind.build(config, meta["facts"])
    try:
        task.network.load_state_dict(weights.state)
    except RuntimeError as error:
        raise ModelError(f"{path}: does not fit its own description: {str(error).splitlines()[0]}") from None
    deployment = deploy(_plan_for(task, device=device, batch=batch))
    deployment.setup_module(task).eval()
    task = deployment.eval_copy(task)
    return Loaded(
        task=task,
        config=config,
        facts=meta["facts"],
        deployment=deployment,
        path=path,
        seed=meta.get("seed", 0),  # files of older versions do not tell
    )


def described(place: Path, *, which: str) -> tuple[Weights, Mapping[str, Any]]:
    """Weights, and what was written with them: the task's settings and facts."""
    weights = read_weights(find_weights(place, which=which))
    if weights.meta is None or "task" not in weights.meta:
        raise ModelError(
            f"{weights.source}: tensors without a description: not written by boxcrew",
            advice="give a run directory, or train with init=finetune init.checkpoint=FILE",
        )
    return weights, weights.meta


def _plan_for(model: nn.Module, *, device: str, batch: int) -> Plan:
    """To look, not to learn: on one device, of which it needs little."""
    machine = probe_machine()
    order = PlanRequest(
        device=device, batch=batch, deploy=DeployConfig(replicas=1), num_samples=batch, steps=1
    )
    chosen = layouts_of(machine, order)[0].devices[0]
    is_faster = chosen.kind != "cpu" or has_depthwise(model)
    return Plan(
        replicas=(Replica(clones=(Clone(device=chosen.name, share=batch),)),),
        parameter_device=chosen.name,
        optimizer_device=chosen.name,
        batch=batch,
        precision=fast_precision([chosen]),
        memory_format="channels_last" if is_faster else "contiguous",
        threads=max(1, int(machine.cores)),
        loader_workers=usual_workers(machine.cores, [chosen]),
    )
