"""The share of time that training waits for data, with every recipe."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

from bench.child import train
from bench.real_data import real_data
from bench.row import Row, skipped
from bench.small_set import write_small
from boxcrew.recipes import RECIPES
from boxcrew.tasks.detection import require_detection

NUM_PHOTOS, NUM_VAL = 120, 2
BATCH = 8  # for every recipe: larger ones would take hours
HEAVY = "ssd"  # the family whose steps take long
HEAVY_BATCH, HEAVY_STEPS = 4, 6
UNCOUNTED = 2  # steps: the first waits for the loader to start
AIM = 0.05
COMMAND = "python -m bench data_wait"


def rows(*, steps: int = 60) -> list[Row]:
    original = real_data("coco128_yolo")
    if original is None:
        return [skipped(what="data wait in training", reason="no coco128_yolo", command=COMMAND)]
    with tempfile.TemporaryDirectory() as folder:
        data = write_small(original, Path(folder) / "data", num_train=NUM_PHOTOS, num_val=NUM_VAL)
        return [_row(name, data, Path(folder) / name, steps) for name in RECIPES.names()]


def _row(recipe: str, data: Path, run: Path, steps: int) -> Row:
    heavy = require_detection(RECIPES.get(recipe)().task).detector.name == HEAVY
    steps, batch = (min(steps, HEAVY_STEPS), HEAVY_BATCH) if heavy else (steps, BATCH)
    limits = (f"steps={steps}", f"batch={batch}", "summaries.every_steps=1", "evaluation.every_epochs=1000")
    summary = train(run, recipe, f"data={data}", "init=scratch", *limits)
    share = _share_after_start(run)
    return Row(
        what=f"data wait of `{recipe}`",
        ours=f"{share:.1%} of the time",
        theirs=f"aim: under {AIM:.0%}",
        verdict="met" if share < AIM else "missed",
        command=COMMAND,
        detail=f"`coco128_yolo`, {steps} steps of {batch} at {summary['images_per_second']:.1f} images/s, "
        f"the first {UNCOUNTED} not counted; with them {summary['data_wait_share']:.1%}",
    )


def _share_after_start(run: Path) -> float:
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    steps = [line for line in lines if "data_wait" in line][UNCOUNTED:]
    seconds = [1 / line["images_per_second"] for line in steps]  # per image; all steps have equally many
    waits = [line["data_wait"] * time for line, time in zip(steps, seconds, strict=True)]
    return float(sum(waits) / sum(seconds))
