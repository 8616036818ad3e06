"""What strategies cost over a loop written by hand, and processes against threads.

`python -m bench.deployment overhead RECIPE` times steps of all ways in one process, taking turns;
`python -m bench.deployment run RECIPE WORDS…` is one short run of the whole command.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from bench.child import in_child, train
from bench.row import Row, alternate_figures
from bench.train_step import CLASSES, SETUPS, Setup, examples_of
from boxcrew.core.types import Batch

RECIPE = "ssdlite320_mobilenetv3"
ROUNDS = 12
AIMS = {"clones": 2, "ddp": 3}  # per cent over the loop by hand
LENGTHS = {"ssd300_vgg16": (3, 4), "ssd512_vgg16": (2, 2)}  # steps and batch, where the usual would take long
USUAL = (20, 8)
RECIPES = (
    "starter",
    "ssdlite_efficientnet_lite0",
    "ssdlite_mobilenetv2",
    "ssdlite320_mobilenetv3",
    "ssd300_vgg16",
)


def rows(*, repeats: int = 3) -> list[Row]:
    return [*_overheads(repeats), *(_processes(recipe, repeats) for recipe in RECIPES)]


def _overheads(repeats: int) -> list[Row]:
    (found,) = alternate_figures([partial(in_child, "deployment", "overhead", RECIPE)], repeats=repeats)
    by_hand = found["by hand"]
    return [
        Row(
            what=f"a step of `{RECIPE}` with strategy `{name}` and one clone, against a loop written by hand",
            ours=f"{1000 * found[name]:.0f} ms",
            theirs=f"{1000 * by_hand:.0f} ms",
            verdict=f"{100 * (found[name] / by_hand - 1):+.1f}% (aim: at most +{aim}%)",
            command="python -m bench deployment",
            detail=f"batch {SETUPS[RECIPE].batch}, 2 threads; medians of {ROUNDS} steps of each, taking "
            f"turns, and of {repeats} processes",
        )
        for name, aim in AIMS.items()
    ]


def _processes(recipe: str, repeats: int) -> Row:
    steps, batch = LENGTHS.get(recipe, USUAL)
    words = (f"steps={steps}", f"batch={batch}")
    ways = (("deploy.threads=2",), ("deploy.replicas=2", "deploy.threads=1"))
    sides = [partial(in_child, "deployment", "run", recipe, *words, *way) for way in ways]
    threads, processes = alternate_figures(sides, repeats=repeats)
    ratio = processes["images_per_second"] / threads["images_per_second"]
    return Row(
        what=f"`{recipe}`: 2 processes of 1 thread against 1 process of 2 threads",
        ours=f"{processes['images_per_second']:.1f} images/s",
        theirs=f"{threads['images_per_second']:.1f} images/s",
        verdict=f"{ratio:.2f} x (reported)",
        command="python -m bench deployment",
        detail=f"`shelf`, {steps} steps of {batch}, medians of {repeats} runs each, taking turns",
    )


def measure_run(recipe: str, *words: str) -> dict[str, float]:
    quiet = (
        "init=scratch",
        "summaries.tensorboard=false",
        "summaries.images=0",
        "evaluation.every_epochs=1000",
    )
    with tempfile.TemporaryDirectory() as folder:
        summary = train(Path(folder) / "run", recipe, *quiet, *words)
    return {"images_per_second": summary["images_per_second"]}


def measure_overhead(setup: Setup) -> dict[str, float]:
    """Seconds of a step in each way; each has a task and an optimizer of its own."""
    steps = {
        "by hand": _by_hand(setup),
        **{name: _deployed(setup, name) for name in AIMS},
    }
    found: dict[str, list[float]] = {name: [] for name in steps}
    for _ in range(1 + ROUNDS):
        for name, step in steps.items():
            begun = time.perf_counter()
            step()
            found[name].append(time.perf_counter() - begun)
    return {name: statistics.median(seconds[1:]) for name, seconds in found.items()}


def _batch(setup: Setup) -> Batch:
    from boxcrew.core.types import Sample
    from boxcrew.data.collate import collate

    images, targets = examples_of(setup)
    pairs = zip(images, targets, strict=True)
    return collate([Sample(image=image, target=target, key="") for image, target in pairs])


def _by_hand(setup: Setup) -> Callable[[], None]:
    import torch

    from boxcrew.api import run_config
    from boxcrew.detectors.base import build_detector
    from boxcrew.tasks.detection import DetectionTask
    from boxcrew.train.optim import build_optimizer

    config = run_config(setup.recipe, {"batch": setup.batch})
    detector = build_detector(config.detector, CLASSES)
    task = DetectionTask(detector).to(memory_format=torch.channels_last).train()
    optimizer = build_optimizer(task, config.optim, backbone_prefix=f"detector.{detector.backbone_prefix()}")
    batch = _batch(setup)
    assert config.optim.clip is not None
    clip = config.optim.clip

    def step() -> None:
        losses = task(batch.to("cpu", memory_format=torch.channels_last), "train")
        (losses.total() / losses.weight.clamp(min=1)).backward()
        torch.nn.utils.clip_grad_norm_(task.parameters(), clip)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


def _deployed(setup: Setup, strategy: str) -> Callable[[], None]:
    from boxcrew.api import run_config
    from boxcrew.deploy.deployment import deploy
    from boxcrew.detectors.base import build_detector
    from boxcrew.hardware.probe import probe_machine
    from boxcrew.tasks.detection import DetectionTask
    from boxcrew.train.optim import build_optimizer
    from boxcrew.train.planning import choose_plan

    wishes = {"batch": setup.batch, "deploy": {"strategy": strategy, "memory_format": "channels_last"}}
    config = run_config(setup.recipe, wishes)
    detector = build_detector(config.detector, CLASSES)
    task = DetectionTask(detector).train()
    deployment = deploy(choose_plan(config, probe_machine(), detector))
    deployment.__enter__()  # for the life of this process
    deployment.place(task)
    optimizer = build_optimizer(task, config.optim, backbone_prefix=f"detector.{detector.backbone_prefix()}")
    batch = _batch(setup)

    def step() -> None:
        deployment.gradients(task, batch, "train")
        deployment.update(optimizer, max_norm=config.optim.clip)

    return step


if __name__ == "__main__":
    if sys.argv[1] == "overhead":
        print(json.dumps(measure_overhead(SETUPS[sys.argv[2]])))
    else:
        print(json.dumps(measure_run(*sys.argv[2:])))
