"""The planner's predictions against real runs: about 25 minutes on two cores for the SSD recipes, and as much
for the others, which `python -m bench planner_detectors` measures.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from bench.child import boxcrew, train
from bench.row import Row, alternate
from bench.small_set import write_small

PHOTOS = 64
Points = Mapping[str, tuple[tuple[int, ...], tuple[int, ...]]]
"""Sizes and batches by recipe."""
SSD: Points = {
    "ssdlite": ((256, 320), (4, 8, 16)),
    "ssdlite_efficientnet_lite0": ((256, 320), (4, 8, 16)),
    "ssdlite_mobilenetv2": ((256, 320), (4, 8, 16)),
    "ssdlite320_mobilenetv3": ((256, 320), (4, 8, 16)),
    "ssd300_vgg16": ((300,), (2, 4, 8)),
    "ssd512_vgg16": ((512,), (1, 2, 4)),  # the same recipe at its other size
}
DETECTORS: Points = {
    "starter": ((256, 320), (4, 8, 16)),
    "picodet": ((256, 320), (4, 8, 16)),
    "yolo": ((256, 320), (4, 8, 16)),
    "yolo1": ((448,), (4, 8)),
    "faster_rcnn_mobile": ((256, 320), (4, 8)),
    "fast_rcnn": ((256,), (4, 8)),
}
HEAVY = ("ssd300_vgg16", "ssd512_vgg16")
STEPS, HEAVY_STEPS = 15, 7
COMMAND = "python -m bench planner"
Point = dict[str, Any]


def rows() -> list[Row]:
    with tempfile.TemporaryDirectory() as name:
        data = write_small("shelf", Path(name) / "data", num_train=PHOTOS, num_val=2)
        return [*predictions(SSD, data, COMMAND), _plan_seconds(data)]


def predictions(recipes: Points, data: Path, command: str) -> list[Row]:
    """Return the rows about predictions for these recipes."""
    with tempfile.TemporaryDirectory() as name:
        points = [
            point
            for recipe, (sizes, batches) in recipes.items()
            for point in _points(recipe, sizes, batches, data, Path(name))
        ]
    return _predictions(points, ", ".join(recipes), command)


def _points(
    recipe: str, sizes: Sequence[int], batches: Sequence[int], data: Path, folder: Path
) -> list[Point]:
    """Run a few steps for each size and batch, and return what each run predicted and measured."""
    steps = HEAVY_STEPS if recipe in HEAVY else STEPS
    points = []
    for size in sizes:
        for batch in batches:
            run = folder / f"{recipe}-{size}-{batch}"
            words = [f"data={data}", f"size={size}", f"batch={batch}", f"steps={steps}", "trial=true"]
            words += ["evaluation.every_epochs=1000"]  # as in a longer run
            summary = train(run, recipe, *words, "init=scratch", "summaries.tensorboard=false")
            points.append(_point(f"`{recipe}` {size} px, batch {batch}", summary["first_steps"]))
            print(json.dumps(points[-1]), file=sys.stderr)
    return points


def _point(name: str, first: dict[str, Any]) -> Point:
    predicted, measured = first["predicted"], first["measured"]
    likely = predicted["step_seconds"]["likely"]
    return {
        "name": name,
        "step": likely / measured["step_seconds"] - 1,
        "epoch": likely / measured["mean_step_seconds"] - 1,
        "memory": predicted["peak_bytes"] / measured["peak_bytes"] - 1,
        "bytes": measured["peak_bytes"],
        "is_under_the_most": measured["peak_bytes"] <= predicted["most_bytes"],
    }


def _predictions(points: Sequence[Point], recipes: str, command: str) -> list[Row]:
    over = [point["name"] for point in points if not point["is_under_the_most"]]
    errors = [
        _errors("peak memory", "memory", points, 0.08, 0.15),
        Row(
            what="peak memory that was more than the plan said at most",
            ours=f"{len(over)} of {len(points)} runs",
            theirs="aim: none",
            verdict="met" if not over else f"missed: {', '.join(over)}",
            command=COMMAND,
            detail="the same runs",
        ),
        _errors("seconds of a step", "step", points, 0.10, 0.25),
        _errors("seconds of an epoch", "epoch", points, 0.10, None),
    ]
    return [replace(row, what=f"{row.what} ({recipes})", command=command) for row in errors]


def _errors(what: str, key: str, points: Sequence[Point], aim: float, worst_aim: float | None) -> Row:
    errors = {point["name"]: point[key] for point in points}
    median = statistics.median(map(abs, errors.values()))
    worst = max(errors, key=lambda name: abs(errors[name]))
    met = median <= aim and (worst_aim is None or abs(errors[worst]) <= worst_aim)
    aims = f"aim: median {aim:.0%}" + (f", worst {worst_aim:.0%}" if worst_aim else "")
    return Row(
        what=f"predicted {what}, after the trial, against measured",
        ours=f"median {median:.1%} off, worst {errors[worst]:+.1%} ({worst})",
        theirs=aims,
        verdict="met" if met else "missed",
        command=COMMAND,
        detail=f"{len(points)} runs of `boxcrew train` with {PHOTOS} photos, {STEPS} steps ({HEAVY_STEPS} of "
        f"the last two); medians of the steps after the third, an epoch by their mean; all: "
        + ", ".join(f"{name} {error:+.0%}" for name, error in errors.items()),
    )


def _plan_seconds(data: Path) -> Row:
    def ask() -> float:
        start = time.monotonic()
        words = boxcrew("plan", f"data={data}", "trial=false")
        subprocess.run(words, check=True, capture_output=True)
        return time.monotonic() - start

    ask()  # afterwards scans and machine speeds are cached
    (seconds,) = alternate([ask], repeats=5)
    return Row(
        what="`boxcrew plan` without a trial",
        ours=f"{seconds:.1f} s",
        theirs="aim: under 5 s",
        verdict="met" if seconds < 5 else "missed",
        command=COMMAND,
        detail=f"`starter`, {PHOTOS} photos that were looked at before, start of the process included; "
        "median of 5",
    )
