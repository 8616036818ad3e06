"""The numbers of several stages as those of one run."""

from __future__ import annotations

import io
from typing import Any

import pytest
from rich.console import Console

from boxcrew.train.output.screen import Screen
from boxcrew.train.run.stage_summary import StageResult, combined_summary, print_summary

RARE = {"cause": "rare", "message": "few cups"}
DESCENT: dict[str, Any] = {
    "state": "finished",
    "stopped_because": None,
    "AP": 0.3,
    "best_step": 80,
    "steps": 100,
    "epochs": 2.5,
    "images": 400,
    "skipped_steps": 2,
    "rollbacks": 1,
    "train_seconds": 50.0,
    "images_per_second": 10.0,  # 40 seconds
    "data_wait_share": 0.5,
    "peak_memory_bytes": 3 << 20,
    "milliseconds": {"network": 2.0},
    "classes": [{"name": "cup"}],
    "first_steps": {"measured": {}},
    "advice": [RARE],
}
SOLVE = DESCENT | {
    "AP": 0.4,
    "steps": 0,
    "epochs": 0.0,
    "images": 0,
    "skipped_steps": 0,
    "rollbacks": 0,
    "train_seconds": 70.0,
    "images_per_second": 0.0,
    "data_wait_share": 0.0,
    "peak_memory_bytes": 5 << 20,
    "first_steps": None,
    "advice": [],
}
TUNE = DESCENT | {
    "state": "interrupted",
    "stopped_because": "stopped by SIGINT",
    "AP": 0.5,
    "best_step": 7,
    "steps": 10,
    "images": 40,
    "images_per_second": 4.0,  # 10 seconds
    "data_wait_share": 0.0,
    "advice": [RARE, {"cause": "overfitting"}],
}


def results(*summaries: dict[str, Any]) -> list[StageResult]:
    kinds = ("descend", "solve", "descend")
    return [
        StageResult(folder=f"{i + 1}-part", kind=kinds[i], summary=summary)
        for i, summary in enumerate(summaries)
    ]


def test_numbers_of_all_stages() -> None:
    summary = combined_summary(results(DESCENT, SOLVE, TUNE))
    assert (summary["steps"], summary["epochs"], summary["images"]) == (110, 5.0, 440)
    assert (summary["skipped_steps"], summary["rollbacks"], summary["train_seconds"]) == (4, 2, 170.0)
    assert summary["images_per_second"] == pytest.approx(440 / 50)
    assert summary["data_wait_share"] == pytest.approx(20 / 50)
    assert summary["peak_memory_bytes"] == 5 << 20
    assert (summary["state"], summary["stopped_because"]) == ("interrupted", "stopped by SIGINT")
    assert (summary["AP"], summary["best_step"]) == (0.5, 7)
    assert summary["advice"] == [RARE, {"cause": "overfitting"}]
    assert summary.keys() == {*DESCENT, "stages"}


def test_a_run_that_ends_with_a_solve_has_the_speed_of_its_steps() -> None:
    summary = combined_summary(results(DESCENT, SOLVE))
    assert (summary["images_per_second"], summary["data_wait_share"]) == (10.0, 0.5)
    assert summary["first_steps"] == DESCENT["first_steps"]
    assert summary["AP"] == 0.4


def test_each_stage_has_its_own() -> None:
    stages = combined_summary(results(DESCENT, SOLVE, TUNE))["stages"]
    assert [(stage["folder"], stage["kind"], stage["AP"]) for stage in stages] == [
        ("1-part", "descend", 0.3),
        ("2-part", "solve", 0.4),
        ("3-part", "descend", 0.5),
    ]
    assert [stage["train_seconds"] for stage in stages] == [50.0, 70.0, 50.0]
    assert not any("advice" in stage or "classes" in stage for stage in stages)


def test_a_run_without_any_step() -> None:
    summary = combined_summary(results(SOLVE, SOLVE))
    assert (summary["images_per_second"], summary["data_wait_share"], summary["first_steps"]) == (0, 0, None)


def test_the_last_lines_on_the_screen() -> None:
    text = io.StringIO()
    print_summary(combined_summary(results(DESCENT, SOLVE, TUNE)), Screen(Console(file=text)))
    assert text.getvalue().splitlines() == [
        "stage 1-part: 50s, 100 steps",
        "stage 2-part: 1m10s, closed form",
        "stage 3-part: 50s, 10 steps",
        "training, all stages: 2m50s, 110 steps, 8.8 samples/s, data wait 40%, peak memory 5.0 MiB",
    ]
