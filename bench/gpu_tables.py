"""The plan's speed of trainings on GPUs that are not here, against published tables of timm and NVIDIA.

Four constants of `plan/speed.py` are fitted to every other row of timm's table; the rows between them and
those of NVIDIA judge. About two minutes, without any GPU.
"""

from __future__ import annotations

import csv
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial

from bench.real_data import real_table
from bench.row import Row, skipped
from boxcrew.api import run_config
from boxcrew.core.types import Batch
from boxcrew.core.workload import Workload
from boxcrew.hardware.assumed import assumed_machine
from boxcrew.plan.plan import Plan
from boxcrew.train.planning.from_settings import choose_plan

TABLE = "gpu_throughput_dev.csv"
COMMAND = "python -m bench gpu_tables"
_WHAT = "published images a second of trainings on GPUs, against the plan's"
_CARDS = {"RTX3090": "RTX-3090", "A100-SXM4-80GB": "A100-80GB", "V100-SXM2-16GB": "V100-16GB"} | {
    "V100-SXM2-32GB": "V100-32GB"
}
_PRECISIONS = {"amp-fp16": "fp16", "tf32": "tf32", "fp32": "fp32"}


@dataclass(frozen=True, kw_only=True)
class Point:
    name: str
    ratio: float  # predicted images a second / published
    is_in_interval: bool
    is_cut: bool  # whether the plan cuts a step into parts that the source ran whole


def rows() -> list[Row]:
    table = real_table(TABLE)
    if table is None:
        return [skipped(what=_WHAT, reason=f"{TABLE} is not there", command=COMMAND)]
    with table.open(newline="") as file:
        published = list(csv.DictReader(file))
    kept_back = list(_kept_back(published))
    others = [row for row in published if row["group"] != "timm-train"]
    return [
        _row("timm, rows that nothing was fitted to", [_point(row) for row in kept_back]),
        _row("NVIDIA, ResNet-50 on A100 and V100, 1 and 8 GPUs", [_point(row) for row in others]),
    ]


def _kept_back(published: Sequence[Mapping[str, str]]) -> Iterator[Mapping[str, str]]:
    """Yield the rows of timm's table that the constants were not fitted to: every second of each layout."""
    for layout in ("contiguous", "channels_last"):
        same = [row for row in published if row["group"] == "timm-train" and row["memory_format"] == layout]
        yield from same[1::2]


def _row(what: str, points: Sequence[Point]) -> Row:
    errors = [abs(point.ratio - 1) for point in points]
    inside = sum(point.is_in_interval for point in points) / len(points)
    worst = sorted(points, key=lambda point: min(point.ratio, 1 / point.ratio))[:4]
    cut = sum(point.is_cut for point in points)
    return Row(
        what=f"{_WHAT} ({what})",
        ours=f"median {statistics.median(errors):.0%} off",
        theirs="aim: 15%, 90% within the plan's interval",
        verdict=f"{inside:.0%} of {len(points)} within the interval; {cut} steps cut that ran whole",
        command=COMMAND,
        detail="furthest: " + ", ".join(f"{point.name} {point.ratio:.2f}" for point in worst),
    )


def _point(row: Mapping[str, str]) -> Point:
    gpus, batch = int(row["num_gpus"]), int(row["batch_per_gpu"])
    plan = _plan(row, batch=batch * gpus)
    assert plan.predicted is not None
    step, published = plan.predicted.step, float(row["images_per_second"])
    seconds = batch * gpus / published
    return Point(
        name=f"{row['model']} {row['gpu']} x {gpus} {row['precision']} {row['memory_format']}",
        ratio=seconds / step.likely,
        is_in_interval=seconds in step,
        is_cut=plan.accumulation > 1,
    )


def _plan(row: Mapping[str, str], *, batch: int) -> Plan:
    deploy = {"precision": _PRECISIONS[row["precision"]], "memory_format": row["memory_format"]}
    size = int(row["image_size"])
    net = {"name": "timm", "backbone": row["model"]}
    task = {"net": net}
    config = run_config("cnn", {"batch": batch, "task": task, "deploy": deploy, "steps": 100})
    machine = assumed_machine(f"{row['num_gpus']}x{_CARDS[row['gpu']]}, 96 cores, 1TB")
    return choose_plan(config, machine, _workload(row["model"], size), num_samples=100 * batch)


@cache
def _workload(model: str, size: int) -> Workload:
    """Return the cost of training a network of timm on a thousand classes, traced without data."""
    import torch

    from boxcrew.nets.classifier import ClassifierNet, TimmBody
    from boxcrew.nets.layers import Normalize
    from boxcrew.tasks.classification import ClassificationConfig, ClassificationTask
    from boxcrew.tasks.cost.estimate import trace_workload

    with torch.device("meta"):
        body = TimmBody(model, 1000, shape=(size, size, 3), dropout=0.0, drop_path=0.0)
        net = ClassifierNet(body, tuple(map(str, range(1000))), Normalize((0.5,) * 3, (0.2,) * 3))
    task = ClassificationTask(net, ClassificationConfig(), torch.ones(1000))
    return trace_workload(task, partial(_examples, size), slots=1, averages=False)


def _examples(size: int, num: int) -> Batch:
    import torch

    images = torch.zeros(num, 3, size, size, dtype=torch.uint8, device="meta")
    labels = torch.zeros(num, dtype=torch.int64, device="meta")
    return Batch(inputs=images, targets={"labels": labels}, keys=("",) * num)
