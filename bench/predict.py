"""One photo from array to boxes on one thread: ours, and torchvision's SSDLite.

`python -m bench.predict ours|torchvision` is one measurement in a separate process; `rows` makes the two
take turns.
"""

from __future__ import annotations

import json
import sys
import tempfile
from functools import partial
from pathlib import Path

import numpy as np

from bench.child import in_child, one_core
from bench.row import Row, alternate_figures
from bench.timing import time_calls

WIDTH, HEIGHT = 640, 480
CLASSES = tuple(f"class {i}" for i in range(8))
PREDICTIONS = 30


def rows(*, repeats: int = 5) -> list[Row]:
    with one_core():
        sides = [partial(in_child, "predict", side) for side in ("ours", "torchvision")]
        ours, theirs = alternate_figures(sides, repeats=repeats)
    return [
        Row(
            what=f"one {WIDTH} x {HEIGHT} photo, array to boxes, `ssdlite320_mobilenetv3`, one thread, "
            "against torchvision's",
            ours=f"{1000 * ours['seconds']:.1f} ms",
            theirs=f"{1000 * theirs['seconds']:.1f} ms",
            verdict=f"{theirs['seconds'] / ours['seconds']:.2f} x (reported)",
            command="python -m bench predict",
            detail=f"PyTorch, random weights of {len(CLASSES)} classes: on both sides the suppression has "
            f"more to do than in a trained detector; medians of {PREDICTIONS} photos and of {repeats} "
            f"processes each, taking turns, held to one core; {1000 * ours['cpu_seconds']:.1f} ms of CPU "
            f"against {1000 * theirs['cpu_seconds']:.1f}",
        )
    ]


def measure_ours() -> dict[str, float]:
    """Time `Detector.predict` as a user calls it, with boxes of all scores."""
    import torch

    from boxcrew.api import Detector, run_config
    from boxcrew.detectors import build_detector
    from boxcrew.tasks.detection import DetectionTask, require_detection
    from boxcrew.tasks.facts import DataFacts
    from boxcrew.train.output.outcome import save_task

    config = run_config("ssdlite320_mobilenetv3", {})
    torch.manual_seed(0)
    task = DetectionTask(build_detector(require_detection(config.task).detector, CLASSES))
    with tempfile.TemporaryDirectory() as folder:
        weights = Path(folder) / "weights" / "best.safetensors"
        save_task(weights, task, config.task, DataFacts(classes=CLASSES), step=0, seed=0)
        detector = Detector.load(weights, device="cpu")
    photo = _photo()
    return time_calls(lambda: detector.predict(photo, score=0.0), num=PREDICTIONS)


def measure_torchvision() -> dict[str, float]:
    import torch
    from torchvision.models.detection import ssdlite320_mobilenet_v3_large

    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = ssdlite320_mobilenet_v3_large(weights=None, weights_backbone=None, num_classes=1 + len(CLASSES))
    model.eval()
    photo = _photo()

    def predict() -> object:
        with torch.inference_mode():
            return model([torch.from_numpy(photo).permute(2, 0, 1).float() / 255])

    return time_calls(predict, num=PREDICTIONS)


def _photo() -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (HEIGHT, WIDTH, 3), dtype=np.uint8)


if __name__ == "__main__":
    print(json.dumps(measure_ours() if sys.argv[1] == "ours" else measure_torchvision()))
