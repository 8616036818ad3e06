"""What a run leaves behind: weights that say what they are, a summary, and last words on the screen."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from boxcrew.core.units import format_bytes, format_count, format_duration
from boxcrew.deploy.memory import peak_memory
from boxcrew.detectors.base import DetectorNet
from boxcrew.nets.weights import save_weights
from boxcrew.train.config import RunConfig
from boxcrew.train.data import RunData
from boxcrew.train.hooks.evaluation import Examination
from boxcrew.train.hooks.summaries import Summaries
from boxcrew.train.screen import Screen
from boxcrew.train.trainer import Trainer


@dataclass(frozen=True, kw_only=True)
class Outcome:
    folder: Path
    data: RunData
    summary: dict[str, Any]
    interrupted: bool
    trouble: str | None = None  # files that could not be written in the end, and why


def describe_network(detector: DetectorNet) -> str:
    from torch.utils.flop_counter import FlopCounterMode  # slow to import, and a plan does without

    parameters = sum(p.numel() for p in detector.parameters())
    size = detector.config.size
    was_training = detector.training
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        detector.eval()(torch.zeros(1, 3, size, size))
    detector.train(was_training)
    flops = counter.get_total_flops() / 1e9
    return (
        f"detector: {detector.config.name} at {size} px: {format_count(parameters)} parameters, "
        f"{flops:.1f} GFLOPs an image"
    )


def save_detector(path: Path, task: nn.Module, config: RunConfig, *, step: int) -> None:
    """Weights with all that is needed to use them: classes, detector and transform settings."""
    detector = task.get_submodule("detector")
    assert isinstance(detector, DetectorNet)
    path.parent.mkdir(exist_ok=True)
    meta = {
        "format": 1,
        "classes": list(detector.classes),
        "detector": config.detector.tree(),
        "transforms": config.transforms.tree(),
        "step": step,
    }
    save_weights(path, detector.state_dict(), meta)


def summarize(
    folder: Path, trainer: Trainer, summaries: Summaries, examination: Examination, *, state: str
) -> dict[str, Any]:
    """What `summary.json` holds: the numbers of the best weights, and how the run went."""
    place = folder / "evaluation.json"
    best = (
        json.loads(place.read_text(encoding="utf-8")) if place.is_file() else {"numbers": {}, "classes": []}
    )
    return {
        "state": state,
        "stopped_because": trainer.stop_reason,
        **best["numbers"],
        "best_step": examination.best_step,
        "steps": trainer.step,
        "epochs": trainer.progress.epoch,
        "skipped_steps": trainer.guard.skipped_steps,
        "rollbacks": trainer.guard.rollbacks,
        "train_seconds": trainer.elapsed,
        "images_per_second": summaries.num_images / max(summaries.seconds, 1e-9),
        "data_wait_share": summaries.data_wait / max(summaries.seconds, 1e-9),
        "peak_memory_bytes": max(peak_memory(clone.device) or 0 for clone in trainer.deployment.own_clones),
        "milliseconds": best.get("milliseconds", {}),
        "classes": best["classes"],
    }


def say_result(outcome: Outcome, screen: Screen) -> None:
    summary = outcome.summary
    if summary["classes"]:
        say_scores(f"best weights, step {summary['best_step']}", {"numbers": summary, **summary}, screen)
    seconds, memory = format_duration(summary["train_seconds"]), format_bytes(summary["peak_memory_bytes"])
    screen.say(
        f"training: {seconds}, {summary['images_per_second']:.1f} images/s, "
        f"data wait {summary['data_wait_share']:.0%}, peak memory {memory}"
    )
    if summary["skipped_steps"]:
        times = f", the run went back {summary['rollbacks']} times" if summary["rollbacks"] else ""
        screen.warn(f"{summary['skipped_steps']} steps were left out{times}")
    if summary["stopped_because"]:
        screen.say(f"stopped: {summary['stopped_because']}")
    if outcome.interrupted:
        screen.say(f"to go on: boxcrew resume run={outcome.folder}")


def say_scores(title: str, report: dict[str, Any], screen: Screen) -> None:
    """A table of the classes. `report` has `numbers`, `classes` and `milliseconds`."""
    classes = report["classes"]
    rows = [_row("all", report["numbers"], sum(c["num_objects"] for c in classes))]
    rows += [_row(c["name"], c, c["num_objects"]) for c in classes]
    screen.table(title, ("class", "objects", "precision", "recall", "AP50", "AP"), rows)
    times = ", ".join(f"{name} {ms:.1f}" for name, ms in report["milliseconds"].items())
    screen.say(f"speed: {times} ms an image")


def _row(name: str, numbers: dict[str, Any], num_objects: int) -> tuple[str, ...]:
    cells = (numbers[key] for key in ("precision", "recall", "AP50", "AP"))
    return (name, str(num_objects), *("-" if v is None or v < 0 else f"{v:.3f}" for v in cells))
