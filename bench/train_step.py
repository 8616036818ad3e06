"""Train steps of SSD300-VGG16: ours as a user gets it, and torchvision's as it comes.

`python -m bench.train_step ours|torchvision` is one measurement in a process of its own; `rows` makes the two
take turns.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from functools import partial

from bench.row import Row, alternate

BATCH, THREADS, STEPS, REPEATS = 4, 2, 4, 5
CLASSES = 8


def measure_ours() -> tuple[float, float]:
    import torch

    from boxcrew.core.types import Batch
    from boxcrew.deploy.deployment import deploy
    from boxcrew.detectors.base import build_detector
    from boxcrew.detectors.ssd import SsdConfig
    from boxcrew.plan.plan import Plan
    from boxcrew.tasks.detection import DetectionTask
    from boxcrew.train.optim import OptimConfig, build_optimizer

    images, boxes, labels = _batch()
    batch = Batch(inputs=images, targets={"boxes": boxes, "labels": labels}, keys=("",) * BATCH)
    plan = Plan(
        clone_device="cpu",
        parameter_device="cpu",
        optimizer_device="cpu",
        batch=BATCH,
        threads=THREADS,
        loader_workers=0,
    )
    torch.manual_seed(0)
    task = DetectionTask(build_detector(SsdConfig(), tuple(str(i) for i in range(CLASSES))))
    optimizer = build_optimizer(task, OptimConfig(), backbone_prefix="detector.backbone.")
    with deploy(plan) as deployment:
        deployment.place(task).train()

        def step() -> None:
            deployment.gradients(task, batch, "train")
            deployment.update(optimizer, max_norm=10.0)

        return _time(step)


def measure_torchvision() -> tuple[float, float]:
    import torch
    from torchvision.models.detection import ssd300_vgg16

    images, boxes, labels = _batch()
    floats = list(images.float() / 255)
    targets = [{"boxes": b, "labels": c + 1} for b, c in zip(boxes, labels, strict=True)]
    torch.set_num_threads(THREADS)
    torch.manual_seed(0)
    model = ssd300_vgg16(weights=None, weights_backbone=None, num_classes=1 + CLASSES).train()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9, weight_decay=5e-4)

    def step() -> None:
        sum(model(floats, targets).values()).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 10.0)
        optimizer.step()
        optimizer.zero_grad()

    return _time(step)


def _batch() -> tuple:  # type: ignore[type-arg]
    import torch

    torch.manual_seed(1)
    images = torch.randint(0, 256, (BATCH, 3, 300, 300), dtype=torch.uint8)
    corners = torch.rand(BATCH, 6, 2) * 200
    boxes = torch.cat((corners, corners + 20 + torch.rand(BATCH, 6, 2) * 80), dim=-1)
    return images, boxes, torch.randint(0, CLASSES, (BATCH, 6))


def _time(step: object) -> tuple[float, float]:
    """Images a second, and CPU seconds an image: medians over the steps after the first."""
    assert callable(step)
    wall, cpu = [], []
    for _ in range(1 + STEPS):
        begun, cpu_begun = time.perf_counter(), time.process_time()
        step()
        wall.append(time.perf_counter() - begun)
        cpu.append(time.process_time() - cpu_begun)
    return BATCH / statistics.median(wall[1:]), statistics.median(cpu[1:]) / BATCH


def _child(which: str) -> float:
    done = subprocess.run(
        [sys.executable, "-m", "bench.train_step", which], capture_output=True, text=True, check=True
    )
    return float(json.loads(done.stdout)["images_per_second"])


def rows() -> list[Row]:
    ours, theirs = alternate([partial(_child, "ours"), partial(_child, "torchvision")], repeats=REPEATS)
    return [
        Row(
            what="train step `ssd300_vgg16` against torchvision's",
            ours=f"{ours:.2f} images/s",
            theirs=f"{theirs:.2f} images/s",
            verdict=f"{ours / theirs:.2f} x (aim: 0.95 x)",
            command="python -m bench train_step",
            detail=f"batch {BATCH}, {THREADS} threads, medians of {REPEATS} processes each, taking turns",
        )
    ]


if __name__ == "__main__":
    measured = measure_ours() if sys.argv[1] == "ours" else measure_torchvision()
    print(json.dumps({"images_per_second": measured[0], "cpu_seconds_per_image": measured[1]}))
