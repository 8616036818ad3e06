"""Whole runs on a few small images: what they leave, what they refuse, how they end."""

from __future__ import annotations

import csv
import json
import signal
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from boxcrew.core.config import read_yaml
from boxcrew.core.errors import DataError, ModelError, UsageError
from boxcrew.data.detection.records import Record
from boxcrew.data.detection.source import Source
from boxcrew.plan import search
from boxcrew.plan.plan import Plan
from boxcrew.train.config import RunConfig
from boxcrew.train.loop.checkpoint import list_checkpoints
from boxcrew.train.output.metrics import read_rows
from boxcrew.train.output.outcome import Outcome
from boxcrew.train.output.screen import Screen
from boxcrew.train.planning import trial as probe
from boxcrew.train.run.validate import ValConfig, validate

Run = Callable[..., Outcome]
MakeConfig = Callable[..., RunConfig]
WriteSome = Callable[[Path, Callable[[Source], dict[str, Sequence[Record]]]], Path]
STEPS = 8


def test_a_run_leaves_all_its_files(whole: Path, photos: Path) -> None:
    names = {path.name for path in whole.iterdir()}
    assert names >= {
        *("config.yaml", "plan.json", "hardware.json", "data_report.json", "placement.json"),
        *("metrics.jsonl", "results.csv", "summary.json", "status.json", "train.log"),
        *("checkpoints", "weights", "tensorboard", "plots", "init.json", "evaluation.json"),
    }
    assert {p.name for p in (whole / "weights").iterdir()} == {"best.safetensors", "last.safetensors"}
    assert [p.name for p in list_checkpoints(whole / "checkpoints")] == ["00000006", "00000008"]
    assert any((whole / "tensorboard").iterdir())
    pictures = {"train_batch0.jpg", "val_batch0_labels.jpg", "val_batch0_pred.jpg"}
    assert {p.name for p in (whole / "plots").iterdir()} >= pictures
    assert not list(whole.rglob(".*")), "temporary files"
    for name in ("plan", "hardware", "data_report", "placement", "summary", "status", "evaluation", "init"):
        assert json.loads((whole / f"{name}.json").read_text())


def test_the_numbers_of_a_run(whole: Path) -> None:
    summary = json.loads((whole / "summary.json").read_text())
    assert summary["state"] == "finished"
    assert summary["steps"] == STEPS
    assert summary.keys() >= {"AP", "AP50", "AP75", "train_seconds", "images_per_second", "data_wait_share"}
    assert summary["peak_memory_bytes"] > 1e7
    assert len(summary["classes"]) == 8
    status = json.loads((whole / "status.json").read_text())
    assert (status["state"], status["step"], status["fraction"]) == ("finished", STEPS, 1)
    rows = read_rows(whole / "metrics.jsonl")
    trained = [row for row in rows if "loss" in row]
    assert [row["step"] for row in trained] == [3, 6, 8]
    assert trained[0].keys() >= {
        "epoch",
        "time",
        "loss/class",
        "loss/box",
        "rate",
        "images_per_second",
        "data_wait",
    }
    with (whole / "results.csv").open() as file:
        results = list(csv.DictReader(file))
    assert [int(row["step"]) for row in results] == [row["step"] for row in rows if "AP" in row]
    assert int(results[-1]["step"]) == STEPS
    assert summary["best_step"] in {int(row["step"]) for row in results}


def test_settings_are_stored_whole(whole: Path, photos: Path, config: MakeConfig) -> None:
    stored = RunConfig.of(read_yaml(whole / "config.yaml"))
    assert stored == config(photos, whole, summaries={"tensorboard": True, "images": 2, "graph": True})


def test_classes_the_detector_does_not_know_are_named(
    whole: Path, tmp_path: Path, write_some: WriteSome
) -> None:
    data = write_some(tmp_path / "set", lambda s: {"train": s.split("train")[:1], "val": s.split("val")[:2]})
    text = (data / "classes.txt").read_text()
    (data / "classes.txt").write_text(text.replace("watch", "clock"))
    for page in (data / "Annotations").iterdir():
        page.write_text(page.read_text().replace("<name>watch<", "<name>clock<"))
    screen = Screen()
    report = validate(ValConfig(run=whole, data=str(data)), screen)["best"]
    assert {score["name"]: score["num_objects"] for score in report["classes"]}["watch"] == 0
    screen.open_log(tmp_path / "log")
    screen.close_log()
    assert "classes the detector does not know: clock" in (tmp_path / "log").read_text()


def test_signals_are_handed_back(photos: Path, tmp_path: Path, run: Run) -> None:
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    run(photos, tmp_path / "run", steps=1)
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before


def test_layers_that_are_neither_filled_nor_learn_are_named(photos: Path, tmp_path: Path, run: Run) -> None:
    """Once: gone on with, such a run has been warned of."""
    heads = {"trainable": "detector.*heads*", "unfreeze": {0.5: "detector.backbone.*"}}
    log, whole = tmp_path / "run" / "train.log", tmp_path / "unstopped" / "train.log"
    warning = "tensors are frozen at their random start, such as detector.extras."
    for steps in (4, 5):
        run(photos, log.parent, steps=steps, **heads)
        assert log.read_text().count(warning) == 1
    run(photos, whole.parent, steps=1)
    assert "random start" not in whole.read_text()


@pytest.mark.parametrize("cache", [0, 30_000])
def test_a_cache_changes_nothing_but_time(photos: Path, tmp_path: Path, cache: int, run: Run) -> None:
    run(photos, tmp_path / "plain", steps=4)
    run(photos, tmp_path / "run", steps=4, loader={"cache": cache, "workers": 1})
    plan = json.loads((tmp_path / "run" / "plan.json").read_text())
    assert plan["cache_bytes"] == cache
    files = [tmp_path / name / "weights" / "last.safetensors" for name in ("plain", "run")]
    plain, cached = (load_file(file) for file in files)
    assert all(torch.equal(plain[name], cached[name]) for name in plain)


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"trainable": "nonsense.*"}, UsageError, "'nonsense.*' matches no parameter"),
        ({"device": "cuda:99"}, UsageError, "not on this machine"),
        ({"data": {"val": "dev"}}, DataError, "no split 'dev'"),
        ({"data": {"path": "absent"}}, DataError, "no such file or directory"),
        ({"detector": {"backbone": "resnet"}}, UsageError, "no such timm network"),
        ({"init": {"kind": "finetune", "checkpoint": "absent"}}, ModelError, "no such run"),
        ({"deploy": {"accumulation": 5}}, UsageError, "accumulation=5: more than batch=4"),
    ],
)
def test_nothing_is_written_before_an_error(
    photos: Path, tmp_path: Path, changes: dict[str, object], error: type[Exception], message: str, run: Run
) -> None:
    with pytest.raises(error, match=message.replace("*", r"\*")):
        run(photos, tmp_path / "run", **changes)
    assert list(tmp_path.iterdir()) == []


def test_an_unreadable_image_is_named_and_left_out(tmp_path: Path, run: Run, write_some: WriteSome) -> None:
    data = write_some(tmp_path / "set", lambda s: {"train": s.split("train")[:5], "val": s.split("val")[:2]})
    broken = sorted((data / "JPEGImages").iterdir())[0]
    broken.write_bytes(broken.read_bytes()[:1000])
    out = tmp_path / "run"
    run(data, out, steps=2)
    report = json.loads((out / "data_report.json").read_text())
    assert [broken.name in problem["file"] for problem in report["problems"]] == [True]
    assert report["problems"][0]["action"] == "left out"
    assert sum(split["images"] for split in report["splits"].values()) == 6
    assert broken.name in (out / "train.log").read_text()


def test_it_stops_when_nothing_gets_better(photos: Path, tmp_path: Path, run: Run) -> None:
    out = tmp_path / "run"
    settings: dict[str, object] = {
        "steps": 100,  # too few for a trial
        "optim": {"rate": 1e-9},
        "evaluation": {"every_epochs": 1.5, "patience": 2},
    }
    outcome = run(photos, out, **settings)
    assert outcome.summary["state"] == "finished"
    assert "evaluation.patience" in outcome.summary["stopped_because"]
    assert outcome.summary["steps"] < 30
    assert len([row for row in read_rows(out / "metrics.jsonl") if "AP" in row]) == 3
    with pytest.raises(UsageError, match="already finished") as caught:
        run(photos, out, **settings)
    assert "patience" in caught.value.advice


def test_time_ends_a_run(photos: Path, tmp_path: Path, run: Run) -> None:
    start = time.monotonic()
    outcome = run(photos, tmp_path / "run", steps=None, time="2s")
    assert time.monotonic() - start < 20
    assert 2 <= outcome.summary["train_seconds"] < 4
    assert outcome.summary["state"] == "finished"


def test_a_tiny_set_is_learned(tmp_path: Path, run: Run, write_some: WriteSome) -> None:
    def large(source: Source) -> dict[str, Sequence[Record]]:
        def smallest_side(record: Record) -> float:
            boxes = record.target.boxes
            return float((boxes[:, 2:] - boxes[:, :2]).min()) if len(boxes) > 1 else 0.0

        chosen = sorted(source.split("train"), key=smallest_side, reverse=True)
        return {"train": tuple(chosen[:4]), "val": source.split("val")[:1]}

    data = write_some(tmp_path / "set", large)
    outcome = run(
        data,
        tmp_path / "run",
        data={"val": "train"},
        steps=60,
        detector={"size": 128, "finest_stride": 8},
        optim={"name": "adamw", "rate": 3e-3, "weight_decay": 0, "ema": 0},
        transforms={"expand": 1, "crop": False, "color": 0, "flip": 0},
        evaluation={"every_epochs": 15},
        saver={"every_steps": 1000},
        deploy={"threads": 2},
    )
    assert outcome.summary["AP50"] > 0.9
    reports = validate(ValConfig(run=outcome.folder, weights="both", split="train", batch=3), Screen())
    assert reports.keys() == {"best", "last"}
    for name in ("AP", "AP50", "AR100", "F1"):
        assert reports["best"]["numbers"][name] == pytest.approx(outcome.summary[name], abs=0.02)


def test_a_run_that_is_worth_it_tries_steps_first_and_is_the_same_for_it(
    photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Run
) -> None:
    """But for the way that is chosen, which is the usual one here: nothing is that much faster. It goes on in
    the way it began.
    """
    run(photos, tmp_path / "plain", steps=3)
    monkeypatch.setattr(probe, "WORTH_STEPS", 2)
    monkeypatch.setattr(search, "MIN_SPEEDUP", 1e9)
    monkeypatch.setattr(probe.run_trial, "__kwdefaults__", {"seconds": 60.0})  # also on a busy machine
    run(photos, tmp_path / "tried", steps=3)
    begun = Plan.read(tmp_path / "tried" / "plan.json", setting="plan")
    assert any("measured 4-sample steps: channels_last on 1 thread" in reason for reason in begun.reasons)
    assert begun.predicted is not None
    assert begun.predicted.basis.startswith("measured steps of ")
    plain, tried = (
        load_file(tmp_path / name / "weights" / "last.safetensors") for name in ("plain", "tried")
    )
    assert all(torch.equal(plain[name], tried[name]) for name in plain)
    run(photos, tmp_path / "tried", steps=4)
    gone_on = Plan.read(tmp_path / "tried" / "plan.json", setting="plan")
    assert gone_on.memory_format == begun.memory_format
    assert (
        gone_on.reasons[-1]
        == "memory format, accumulation, recompute, precision kept from the start of the run"
    )


def test_the_first_steps_are_held_against_the_plan(photos: Path, tmp_path: Path, run: Run) -> None:
    outcome = run(photos, tmp_path / "run", steps=STEPS)
    first_steps = outcome.summary["first_steps"]
    assert first_steps["measured"]["step_seconds"] > 0
    assert first_steps["predicted"]["step_seconds"]["low"] < first_steps["predicted"]["step_seconds"]["high"]
    log = (tmp_path / "run" / "train.log").read_text()
    assert "s per step (" in log
    assert "; measured " in log
