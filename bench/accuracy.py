"""The accuracy after 15 minutes of training on a CPU: ours, pretrained and from scratch, and the peers.

All train on real data sets and are measured by one evaluator on `val`.
`python -m bench accuracy [SET [CONTESTANT]] [time=15m]` measures all, or some. Each curve is stored.
"""

from __future__ import annotations

import json
import tempfile
import time as clock
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from bench.child import in_child, train
from bench.curves import NUM_EVALUATIONS, PLOT, Curve, Curves, Point, plot_curves, read_curves, write_curves
from bench.data import open_data
from bench.machine import commit, machine_line
from bench.peers import is_installed, missing, run_peer
from bench.real_data import real_data, real_weights
from bench.row import Row, skipped
from boxcrew.api import run_config
from boxcrew.core.config import parse_words
from boxcrew.core.errors import UsageError
from boxcrew.core.types import Detections
from boxcrew.core.units import format_duration
from boxcrew.data.detection.writers import file_stems, write_source
from boxcrew.evaluate.detection.metrics import evaluate_detections
from boxcrew.evaluate.detection.types import EvaluatedImage
from boxcrew.hardware.probe import usable_cores
from boxcrew.tasks.detection import DetectionData, require_detection

SETS = ("groceries8_voc", "fashion8_coco", "bccd_voc")
OURS = {
    "starter": ("starter",),
    "starter_large": ("starter_large",),
    "picodet": ("picodet",),
    "yolo": ("yolo",),
    "ssdlite": ("ssdlite",),
    "faster_rcnn_mobile": ("faster_rcnn_mobile",),
    "scratch": ("ssdlite", "init=scratch", "trainable=*", "optim.backbone_rate=1"),
}
LABELS = {
    "starter": "boxcrew starter",
    "starter_large": "boxcrew starter_large",
    "picodet": "boxcrew picodet",
    "yolo": "boxcrew yolo",
    "ssdlite": "boxcrew ssdlite",
    "faster_rcnn_mobile": "boxcrew faster_rcnn_mobile",
    "torchvision": "torchvision SSDLite, ImageNet weights",
    "scratch": "boxcrew ssdlite from scratch",
    "ultralytics": "Ultralytics YOLO11n from scratch",
}
RIVALS = {name: "ultralytics" if name == "scratch" else "torchvision" for name in OURS}
AIMS = {
    ("groceries8_voc", "starter"): "AP50 0.76, AP 0.54",
    ("fashion8_coco", "starter_large"): "AP50 0.70, AP 0.47",
    ("bccd_voc", "starter"): "AP50 0.90, AP 0.58",
    ("groceries8_voc", "scratch"): "higher at every evaluation",
}
MOBILENET = "mobilenet_v2_imagenet_features.pth"

FirstSteps = tuple[tuple[Point, ...], str]
"""The curve, and how it was measured, in words."""


def rows(*words: str, time: float = 900.0, write: bool = True) -> list[Row]:
    sets, contestants = _chosen(words)
    curves = read_curves()
    for name in sets:
        for contestant in contestants:
            if reason := _missing(name, contestant):
                print(f"accuracy {name} {contestant}: skipped: {reason}")
                continue
            curves[name, contestant] = measured = _measure(name, contestant, time)
            print(f"accuracy {name}: {_result(measured)}: {measured.sentence()}")
            if write:
                write_curves(curves)
                plot_curves(curves, SETS, LABELS, PLOT)
    asked = [name for name in SETS if write or name in sets]
    return [row for name in asked for ours in OURS if (row := _row(curves, name, ours)) is not None]


def _chosen(words: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    known = (SETS, tuple(LABELS))
    for word, names in zip(words, known, strict=False):
        if word not in names:
            raise UsageError(f"accuracy: {word}: not known", advice=f"there are: {', '.join(names)}")
    if len(words) > len(known):
        raise UsageError("accuracy: too many words", advice="python -m bench accuracy [SET [CONTESTANT]]")
    return words[:1] or SETS, words[1:] or tuple(LABELS)


def _missing(name: str, contestant: str) -> str | None:
    """Return why a contestant cannot be measured; None if it can."""
    if real_data(name) is None:
        return f"no {name}"
    if contestant == "torchvision" and real_weights(MOBILENET) is None:
        return f"no {MOBILENET}"
    if contestant == "ultralytics" and not is_installed("ultralytics"):
        return missing("ultralytics")
    return None


def _measure(name: str, contestant: str, seconds: float) -> Curve:
    data = real_data(name)
    assert data is not None
    if contestant in OURS:
        points, how = _ours(OURS[contestant], data, seconds)
    else:
        points, how = {"torchvision": _torchvision, "ultralytics": _ultralytics}[contestant](data, seconds)
    return Curve(
        data=name,
        contestant=contestant,
        allowed=seconds,
        points=points,
        how=how,
        stamp={"machine": machine_line(), "commit": commit(), "date": clock.strftime("%Y-%m-%d")},
    )


def _ours(words: tuple[str, ...], data: Path, seconds: float) -> FirstSteps:
    """Train ours. All evaluations of the run but the last count as training time."""
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        summary = train(run, *words, f"data={data}", f"time={seconds:g}s")
        lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    points = [
        Point(seconds=line["time"], AP50=line["AP50"], AP=line["AP"]) for line in lines if "AP50" in line
    ]
    how = (
        f"`boxcrew train {' '.join(words)} time={format_duration(seconds)}`, its own evaluations within "
        f"that time, {summary['images_per_second']:.1f} images/s, {summary['epochs']:.1f} epochs"
    )
    return tuple(points), how


def _torchvision(data: Path, seconds: float) -> FirstSteps:
    weights = real_weights(MOBILENET)
    result = in_child("torchvision_ssdlite", str(data), str(weights), str(seconds))
    return tuple(Point(**point) for point in result["points"]), f"{result['how']}, evaluations not counted"


def _ultralytics(folder: Path, seconds: float) -> FirstSteps:
    cores = max(1, int(usable_cores()))
    data = open_data(folder, workers=cores)
    size = _size(OURS["scratch"])
    with tempfile.TemporaryDirectory() as name:
        root, out = Path(name) / "data", Path(name) / "out"
        out.mkdir()
        write_source(data.source, root, format="yolo")
        words = (str(root / "data.yaml"), str(out), str(seconds), str(size), str(NUM_EVALUATIONS), str(cores))
        result = run_peer("ultralytics", "ultralytics_train", *words)
        points = [_point(data, each["seconds"], Path(each["file"])) for each in result["evaluations"]]
    how = (
        f"Ultralytics {result['version']} as it comes but for {cores} threads and 1 worker, {size} px as "
        f"ours, {result['epochs']} epochs, evaluations not counted, its boxes measured by our evaluator"
    )
    return tuple(points), how


def _size(words: tuple[str, ...]) -> int:
    recipes, settings = parse_words(words)
    return require_detection(run_config(recipes[0], settings).task).detector.size.sides[-1]


def _point(data: DetectionData, seconds: float, file: Path) -> Point:
    detections = json.loads(file.read_text())
    stems = file_stems(data.source)
    evaluated = [
        EvaluatedImage(
            key=record.key,
            width=record.width,
            height=record.height,
            target=record.target,
            detections=_detections(detections[stems[record.key]]),
        )
        for record in data.val
    ]
    numbers = evaluate_detections(evaluated, data.source.classes).numbers
    return Point(seconds=seconds, AP50=numbers["AP50"], AP=numbers["AP"])


def _detections(stored: Mapping[str, Any]) -> Detections:
    return Detections.of(
        boxes=torch.tensor(stored["boxes"], dtype=torch.float32).reshape(-1, 4),
        scores=torch.tensor(stored["scores"], dtype=torch.float32),
        labels=torch.tensor(stored["labels"], dtype=torch.int64),
    )


def _row(curves: Curves, name: str, contestant: str) -> Row | None:
    """Return ours beside its rival with equal time; None if ours was not measured yet, but could be."""
    ours, theirs = curves.get((name, contestant)), curves.get((name, RIVALS[contestant]))
    command = f"python -m bench accuracy {name}"
    versus = f"{LABELS[contestant]}, against {LABELS[RIVALS[contestant]]}"
    if ours is None:
        absent = _missing(name, contestant)
        return skipped(what=f"`{name}` val, {versus}", reason=absent, command=command) if absent else None
    aim = AIMS.get((name, contestant))
    what = f"`{name}` val after {format_duration(ours.allowed)}, {versus}"
    row = {"what": what, "ours": _result(ours), "command": command}
    if theirs is None or theirs.allowed != ours.allowed:
        reason = _missing(name, RIVALS[contestant]) or "not measured in as much time"
        return Row(**row, theirs="", verdict=f"skipped: {reason}", detail=ours.sentence())
    ratio = ours.result.AP50 / max(theirs.result.AP50, 1e-9)
    return Row(
        **row,
        theirs=_result(theirs),
        verdict=f"{ratio:.2f} x" + (f" (aim: {aim})" if aim else " (reported)"),
        detail=f"one run each; {ours.sentence()}; {theirs.sentence()}",
    )


def _result(curve: Curve) -> str:
    return f"AP50 {curve.result.AP50:.3f}, AP {curve.result.AP:.3f}"
