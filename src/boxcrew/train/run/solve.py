"""A solve stage: layers of the network are set in closed form on the CPU, and the result is evaluated.

It writes `config.yaml`, `plan.json`, `weights/{best,last}.safetensors` (the same), `evaluation.json` and
`summary.json`, like a run that trains. If it was killed, it is repeated from its start, but finds again what
it had computed in `workspace/`, which is removed when it is done.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from boxcrew.core.config import to_yaml
from boxcrew.core.files import write_json, write_text
from boxcrew.core.units import counted, format_duration
from boxcrew.data.loading.workers import Workers
from boxcrew.deploy.deployment import deploy
from boxcrew.deploy.memory import peak_memory, reset_peak_memory
from boxcrew.evaluate.evaluation import Evaluation
from boxcrew.plan.plan import Plan
from boxcrew.tasks.base import Task
from boxcrew.tasks.data import EvalOptions, SolveOptions, TaskData
from boxcrew.train.config import RunConfig
from boxcrew.train.init import Finetune
from boxcrew.train.loop.hooks.evaluation import EVALUATION
from boxcrew.train.output.outcome import Outcome, print_scores, save_task
from boxcrew.train.output.screen import Screen
from boxcrew.train.run.data import open_task
from boxcrew.train.run.directory import read_record
from boxcrew.train.run.loading import inference_plan

WORKSPACE = "workspace"  # in the folder of the stage

_NO_STEPS: Mapping[str, Any] = {
    "steps": 0,
    "epochs": 0.0,
    "images": 0,
    "skipped_steps": 0,
    "rollbacks": 0,
    "images_per_second": 0.0,
    "data_wait_share": 0.0,
    "first_steps": None,
    "advice": (),
}
"""What the summary of a training has, and a solve stage has none of."""


def solve_stage(name: str, config: RunConfig, folder: Path, screen: Screen) -> Outcome:
    """Solve the stage of that name in `folder`, which is empty, from the weights that `init` names."""
    screen.open_log(folder / "train.log")
    try:
        config, task_data, task = open_task(config, screen)
        screen.info(config.init.initialize(task.network).sentence())
        reset_peak_memory()
        plan = _plan(config, task)
        screen.info(f"{name}: solved on the CPU of this machine, with {counted(plan.threads, 'thread')}")
        write_text(folder / "config.yaml", to_yaml(config))
        write_json(folder / "plan.json", plan.tree())
        workspace = folder / WORKSPACE
        evaluation, seconds = _solve(
            name, config, task_data, task, plan=plan, workspace=workspace, screen=screen
        )
        screen.info(f"solved {name} in {format_duration(seconds)}: {evaluation.sentence()}")
        step = _step_before(config)
        _write_weights(config, folder, task_data, task, evaluation, step=step or 0)
        shutil.rmtree(workspace, ignore_errors=True)
        summary = _summary(evaluation, step=step, seconds=seconds)
        write_json(folder / "summary.json", summary)
        print_scores(f"after {name}", evaluation.to_json(), type(task_data), screen)
    finally:
        screen.close_log()
    return Outcome(folder=folder, task_data=task_data, summary=summary, interrupted=False)


def _plan(config: RunConfig, task: Task) -> Plan:
    """Return a plan for one CPU. Threads can change the last bits, so they are as the settings say."""
    plan = inference_plan(task, device="cpu", batch=config.evaluation.batch)
    workers, threads = config.loader.workers, config.deploy.threads
    return plan.model_copy(
        update={
            "loader_workers": plan.loader_workers if workers == "auto" else workers,
            "threads": plan.threads if threads == "auto" else threads,
        }
    )


def _solve(
    name: str,
    config: RunConfig,
    task_data: TaskData,
    task: Task,
    *,
    plan: Plan,
    workspace: Path,
    screen: Screen,
) -> tuple[Evaluation, float]:
    """Solve and evaluate; return the seconds of the first, too."""
    deployment = deploy(plan)
    deployment.setup_module(task).eval()
    options = EvalOptions(batch=plan.batch, workers=Workers(num=plan.loader_workers))
    with deployment:
        deployment.seed(config.seed)
        start = time.monotonic()
        with torch.no_grad(), screen.progress(f"solving {name}") as progress:
            shown = SolveOptions(
                batch=plan.batch,
                workers=options.workers,
                progress=lambda done: progress(done, task_data.num_train),
                workspace=workspace,
            )
            skipped = task_data.solve(task, name, shown)
        seconds = time.monotonic() - start
        for problem in skipped:
            screen.warn(f"left out: {problem}")
        return task_data.evaluate(task, deployment.to_device, options), seconds


def _write_weights(
    config: RunConfig, folder: Path, task_data: TaskData, task: Task, evaluation: Evaluation, *, step: int
) -> None:
    for which in ("best", "last"):
        path = folder / "weights" / f"{which}.safetensors"
        save_task(path, task, task_data.config, task_data.facts, step=step, seed=config.seed)
    report = {"step": step, "task": task_data.config.name, **evaluation.to_json()}
    write_json(folder / EVALUATION, report)


def _summary(evaluation: Evaluation, *, step: int | None, seconds: float) -> dict[str, Any]:
    """Return the summary of the stage: the scores of the solved network, its time and its memory."""
    report = evaluation.to_json()
    return {
        "state": "finished",
        "stopped_because": None,
        **report["numbers"],
        "best_step": step,
        **_NO_STEPS,
        "train_seconds": seconds,
        "peak_memory_bytes": peak_memory("cpu") or 0,
        "milliseconds": report["milliseconds"],
        "classes": report["classes"],
    }


def _step_before(config: RunConfig) -> int | None:
    """Return the step of the weights that the stage started from; None if they were not trained here."""
    if not isinstance(config.init, Finetune):
        return None
    step: int | None = read_record(config.init.checkpoint, "summary.json").get("best_step")
    return step
