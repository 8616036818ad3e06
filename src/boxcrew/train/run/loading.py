"""Trained tasks, loaded from their weight files for prediction and evaluation."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, Literal

from torch import nn

from boxcrew.core.errors import ModelError, UsageError, first_line
from boxcrew.deploy.deployment import Deployment, deploy
from boxcrew.hardware.probe import probe_machine, usable_cores
from boxcrew.nets.weights import Weights, find_weights, read_weights
from boxcrew.plan.layouts import layouts_of
from boxcrew.plan.plan import Clone, Plan, Replica
from boxcrew.plan.request import DeployConfig, PlanRequest
from boxcrew.plan.search import fast_precision, usual_workers
from boxcrew.runtime.engine_facts import EngineFacts
from boxcrew.runtime.exported import open_exported
from boxcrew.runtime.model_file import is_model_file, read_model
from boxcrew.runtime.model_info import ModelInfo
from boxcrew.tasks.base import TASKS, Task, stored_config
from boxcrew.tasks.cost.estimate import has_depthwise
from boxcrew.tasks.data import ConfigT, FactsT

Which = Literal["best", "last"]


@dataclass(frozen=True, kw_only=True, eq=False)
class Loaded(Generic[ConfigT, FactsT]):
    """A task on its device, in evaluation mode. Enter `deployment` as a context while it computes."""

    task: Task
    config: ConfigT
    facts: FactsT
    deployment: Deployment
    engine: EngineFacts
    path: Path  # of the weights
    seed: int  # of the run that trained them


def load_task(
    source: Path,
    *,
    which: Which = "best",
    device: str = "auto",
    batch: int = 1,
    engine: str | None = None,
    check: Callable[[Mapping[str, Any]], None] | None = None,
) -> Loaded:
    """Load a task from a run directory, a weight file that boxcrew wrote, or an exported file, which an
    `engine` computes.

    `check` may refuse its description, by an error, before the network is built.
    """
    if is_model_file(source):
        return _load_exported(source, engine=engine, batch=batch, check=check)
    if engine is not None:
        raise UsageError(f"engine={engine}: {source} is computed by torch; only exported files have engines")
    weights, meta = read_task_weights(source, which=which)
    if check is not None:
        check(meta)
    path = Path(weights.source)
    kind = TASKS.get(meta["task"]["name"])
    config = stored_config(meta["task"], path)
    facts = kind.facts_class.from_json(meta["facts"])
    task = kind.build(config, facts)
    try:
        task.network.load_state_dict(weights.state)
    except RuntimeError as error:
        raise ModelError(f"{path}: does not fit its own description: {first_line(error)}") from None
    deployment = deploy(inference_plan(task, device=device, batch=batch))
    deployment.setup_module(task).eval()
    task = deployment.eval_copy(task)
    return Loaded(
        task=task,
        config=config,
        facts=facts,
        deployment=deployment,
        engine=_torch_facts(task, deployment.plan),
        path=path,
        seed=meta.get("seed", 0),
    )


def _torch_facts(task: Task, plan: Plan) -> EngineFacts:
    """Return what computes a network of torch. Training may round, evaluation and prediction do not: what
    the weights are is what they compute with.
    """
    bits = 8 * next(task.network.parameters()).itemsize
    return EngineFacts(name="torch", precision=f"fp{bits}", device=plan.devices[0], threads=plan.threads)


def _load_exported(
    path: Path, *, engine: str | None, batch: int, check: Callable[[Mapping[str, Any]], None] | None
) -> Loaded:
    exported = open_exported(path, engine=engine, threads=max(1, int(usable_cores())))
    info = exported.info
    if check is not None:
        check(_described(info))
    kind = TASKS.get(info.task["name"])
    config, facts = stored_config(info.task, path), kind.facts_class.from_json(info.facts)
    task = kind.build_exported(config, facts, exported)
    deployment = deploy(inference_plan(task, device="cpu", batch=batch))
    return Loaded(
        task=task,
        config=config,
        facts=facts,
        deployment=deployment,
        engine=exported.engine_facts,
        path=path,
        seed=info.seed,
    )


def description(source: Path, *, which: str = "best") -> Mapping[str, Any]:
    """Return what a run, a weight file or an exported file says of itself: at least `task` and `facts`."""
    if not is_model_file(source):
        return read_task_weights(source, which=which)[1]
    return _described(read_model(source).info)


def _described(info: ModelInfo) -> Mapping[str, Any]:
    return {"task": info.task, "facts": info.facts, "seed": info.seed}


def read_task_weights(source: Path, *, which: str) -> tuple[Weights, Mapping[str, Any]]:
    """Read weights with their description: the settings of the task, the facts of its data, and the seed."""
    weights = read_weights(find_weights(source, which=which))
    if weights.meta is None or "task" not in weights.meta:
        raise ModelError(
            f"{weights.source}: tensors without a description: not written by boxcrew",
            advice="give a run directory, or train with init=finetune init.checkpoint=FILE",
        )
    return weights, weights.meta


def inference_plan(model: nn.Module, *, device: str, batch: int) -> Plan:
    """Return a plan for inference on one device."""
    machine = probe_machine()
    request = PlanRequest(
        device=device, batch=batch, deploy=DeployConfig(replicas=1), num_samples=batch, steps=1
    )
    chosen = layouts_of(machine, request)[0].devices[0]
    channels_last = chosen.kind != "cpu" or has_depthwise(model)
    return Plan(
        replicas=(Replica(clones=(Clone(device=chosen.name, share=batch),)),),
        parameter_device=chosen.name,
        optimizer_device=chosen.name,
        batch=batch,
        precision=fast_precision([chosen]),
        memory_format="channels_last" if channels_last else "contiguous",
        threads=max(1, int(machine.cores)),
        loader_workers=usual_workers(machine.cores, [chosen]),
    )
