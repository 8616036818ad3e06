"""Train steps: ours as a user gets them, and torchvision's as they come.

`python -m bench.train_step NAME ours|torchvision` is one measurement in a process of its own; `rows` makes
the two take turns.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from bench.child import in_child
from bench.row import Row, alternate_figures
from boxcrew.core.types import Target

if TYPE_CHECKING:
    from torch import Tensor

THREADS = 2
CLASSES = tuple(f"class {i}" for i in range(8))
MOST_OBJECTS = 12  # in an image


@dataclass(frozen=True, kw_only=True)
class Setup:
    name: str
    recipe: str
    peer: str  # torchvision's name
    size: int
    batch: int
    num_steps: int
    aim: float
    own_size: int | None = None  # of our input, if it is another one
    settings: Mapping[str, Any] = field(default_factory=dict)  # of the detector, other than the recipe's


_FASTER_RCNN_MOBILE = "fasterrcnn_mobilenet_v3_large_320_fpn"
_AS_TORCHVISION = {
    "backbone": "mobilenetv3_large_100",
    "maps": "late",
    "levels": 3,
    "anchor_sizes": [32, 64, 128, 256, 512],
    "size": 320,
}
"""What is not already torchvision's in the recipe `faster_rcnn`."""

SETUPS = {
    setup.name: setup
    for setup in (
        Setup(
            name="ssdlite320_mobilenetv3",
            recipe="ssdlite320_mobilenetv3",
            peer="ssdlite320_mobilenet_v3_large",
            size=320,
            batch=16,
            num_steps=6,
            aim=1.5,
        ),
        Setup(
            name="ssd300_vgg16",
            recipe="ssd300_vgg16",
            peer="ssd300_vgg16",
            size=300,
            batch=4,
            num_steps=4,
            aim=1.0,
        ),
        Setup(
            name="faster_rcnn with torchvision's settings",
            recipe="faster_rcnn",
            peer=_FASTER_RCNN_MOBILE,
            size=320,
            batch=4,
            num_steps=5,
            aim=1.0,
            settings=_AS_TORCHVISION,
        ),
        Setup(
            name="faster_rcnn_mobile",
            recipe="faster_rcnn_mobile",
            peer=_FASTER_RCNN_MOBILE,
            size=320,
            own_size=256,
            batch=8,
            num_steps=5,
            aim=4.0,
            # The training set would decide these.
            settings={"finest_stride": 8, "anchor_sizes": [32, 64, 128]},
        ),
    )
}


def rows(*, repeats: int = 5) -> list[Row]:
    return [_row(setup, repeats) for setup in SETUPS.values()]


def _row(setup: Setup, repeats: int) -> Row:
    sides = [partial(in_child, "train_step", setup.name, side) for side in ("ours", "torchvision")]
    ours, theirs = alternate_figures(sides, repeats=repeats)
    own = f" ({setup.own_size} for ours)" if setup.own_size else ""
    ratio = ours["images_per_second"] / theirs["images_per_second"]
    cpu, cpu_theirs = (1000 * side["cpu_seconds_per_image"] for side in (ours, theirs))
    return Row(
        what=f"train step `{setup.name}` against torchvision's `{setup.peer}`",
        ours=f"{ours['images_per_second']:.2f} images/s",
        theirs=f"{theirs['images_per_second']:.2f} images/s",
        verdict=f"{ratio:.2f} x (aim: {setup.aim} x)",
        command="python -m bench train_step",
        detail=f"batch {setup.batch}, {setup.size} px{own}, {len(CLASSES)} classes, {THREADS} threads, "
        f"medians of {repeats} processes each, taking turns; "
        f"{cpu:.0f} ms of CPU an image against {cpu_theirs:.0f}",
    )


def measure_ours(setup: Setup) -> dict[str, float]:
    """The settings are the recipe's; the plan and its deployment are made as for a run."""
    import torch

    from boxcrew.api import run_config
    from boxcrew.core.types import Sample
    from boxcrew.data.loading.collate import collate
    from boxcrew.deploy.deployment import deploy
    from boxcrew.detectors import build_detector
    from boxcrew.hardware.probe import probe_machine
    from boxcrew.tasks.detection import DetectionTask, require_detection
    from boxcrew.tasks.detection_inputs import largest_batch
    from boxcrew.train.loop.optim import optimizer_of
    from boxcrew.train.planning.from_settings import choose_plan
    from boxcrew.train.planning.workload import estimate_workload

    settings = {"batch": setup.batch, "deploy": {"threads": THREADS}, "detector": setup.settings}
    config = run_config(setup.recipe, settings)
    images, targets = examples_of(setup, setup.own_size or setup.size)
    pairs = zip(images, targets, strict=True)
    batch = collate([Sample(image=image, target=target, key="") for image, target in pairs])
    torch.manual_seed(0)
    detector = build_detector(require_detection(config.task).detector, CLASSES)
    task = DetectionTask(detector)
    optimizer = optimizer_of(task, config.optim)
    examples = partial(largest_batch, canvas=detector.config.size.canvas(()), num_objects=10)
    workload = estimate_workload(config, task, examples)
    with deploy(choose_plan(config, probe_machine(), workload, num_samples=1)) as deployment:
        deployment.setup_module(task).train()

        def step() -> None:
            deployment.gradients(task, batch, "train")
            deployment.update(optimizer, max_norm=config.optim.clip)

        return _time(step, setup)


def measure_torchvision(setup: Setup) -> dict[str, float]:
    """Its transform inside the network, which resizes and normalizes, is a part of the step."""
    import torch
    from torchvision.models import get_model

    images, targets = examples_of(setup, setup.size)
    floats = [torch.from_numpy(image).permute(2, 0, 1).float() / 255 for image in images]
    wanted = [
        {"boxes": torch.from_numpy(target.boxes), "labels": torch.from_numpy(target.labels) + 1}
        for target in targets
    ]
    torch.set_num_threads(THREADS)
    torch.manual_seed(0)
    model = get_model(setup.peer, weights=None, weights_backbone=None, num_classes=1 + len(CLASSES)).train()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9, weight_decay=5e-4)

    def step() -> None:
        losses: dict[str, Tensor] = model(floats, wanted)
        optimizer.zero_grad()
        sum(losses.values(), start=torch.zeros(())).backward()  # type: ignore[no-untyped-call]
        optimizer.step()

    return _time(step, setup)


def examples_of(setup: Setup, size: int) -> tuple[list[np.ndarray], list[Target]]:
    """Noise with a few objects, most of them small: what they are does not change what a step costs, how
    many they are and what they match does.
    """
    rng = np.random.default_rng(1)
    images, targets = [], []
    for _ in range(setup.batch):
        count = rng.integers(1, MOST_OBJECTS, endpoint=True)
        sides = size * np.exp(rng.uniform(np.log(0.05), np.log(0.7), (count, 2)))
        corners = rng.uniform(0, 1, (count, 2)) * (size - sides)
        boxes = np.concatenate((corners, corners + sides), axis=1)
        targets.append(Target.of(boxes, rng.integers(0, len(CLASSES), count)))
        images.append(rng.integers(0, 256, (size, size, 3), dtype=np.uint8))
    return images, targets


def _time(step: Callable[[], None], setup: Setup) -> dict[str, float]:
    """Medians over the steps after the first."""
    wall, cpu = [], []
    for _ in range(1 + setup.num_steps):
        start, cpu_start = time.perf_counter(), time.process_time()
        step()
        wall.append(time.perf_counter() - start)
        cpu.append(time.process_time() - cpu_start)
    return {
        "images_per_second": setup.batch / statistics.median(wall[1:]),
        "cpu_seconds_per_image": statistics.median(cpu[1:]) / setup.batch,
    }


if __name__ == "__main__":
    measure = {"ours": measure_ours, "torchvision": measure_torchvision}[sys.argv[2]]
    print(json.dumps(measure(SETUPS[sys.argv[1]])))
