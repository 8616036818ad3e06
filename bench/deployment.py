"""The overhead of strategies over a loop written by hand, processes against threads and against torchrun with
torchvision, and the overlap of gradient messages with backward.

`python -m bench.deployment overhead RECIPE` times steps of all loops in one process, taking turns;
`python -m bench.deployment run RECIPE WORDS…` is one short run of the whole command.
"""

from __future__ import annotations

import json
import statistics
import subprocess
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
AIMS = {"clones": 2, "ddp": 3}  # percent over the loop written by hand
LENGTHS = {"ssd300_vgg16": (3, 4), "ssd512_vgg16": (2, 2)}  # steps and batch of slow recipes
USUAL = (12, 8)
RECIPES = (
    "starter",
    "ssdlite_efficientnet_lite0",
    "ssdlite_mobilenetv2",
    "ssdlite320_mobilenetv3",
    "ssd300_vgg16",
    "ssd512_vgg16",
)


def rows(*, repeats: int = 3) -> list[Row]:
    with tempfile.TemporaryDirectory() as folder:
        photos = _photos(Path(folder) / "photos")
        return [
            *_overheads(repeats),
            *(_processes(recipe, photos, repeats) for recipe in RECIPES),
            *(_torchrun(setup, photos, repeats) for setup in SETUPS.values()),
            _overlap(),
        ]


def _photos(folder: Path) -> Path:
    """Write some of the embedded set as JPEGs, which both sides read."""
    from boxcrew.data.detection.source import open_source
    from boxcrew.data.detection.writers import write_source

    source = open_source("shelf")
    source.splits = {"train": source.split("train")[:96], "val": source.split("val")[:8]}
    write_source(source, folder, format="voc")
    return folder


def _overlap() -> Row:
    times = in_child("overlap", "--no-write")
    sent = sum(message["megabytes"] for message in times["messages"])
    return Row(
        what="gradients of `ssd300_vgg16` on two replicas that have arrived before backward ends",
        ours=f"{100 * times['hidden']:.0f}% of {sent:.0f} MB, each sent once",
        theirs="",
        verdict=f"step {times['updated']:.2f} s, of which {times['all there'] - times['end']:.2f} s waiting",
        command="python -m bench deployment",
        detail="one step after two; `python -m bench.overlap` draws it (docs/images/overlap.svg)",
    )


def _overheads(repeats: int) -> list[Row]:
    (seconds,) = alternate_figures([partial(in_child, "deployment", "overhead", RECIPE)], repeats=repeats)
    by_hand = seconds["by hand"]
    return [
        Row(
            what=f"a step of `{RECIPE}` with strategy `{name}` and one clone, against a loop written by hand",
            ours=f"{1000 * seconds[name]:.0f} ms",
            theirs=f"{1000 * by_hand:.0f} ms",
            verdict=f"{100 * (seconds[name] / by_hand - 1):+.1f}% (aim: at most +{aim}%)",
            command="python -m bench deployment",
            detail=f"batch {SETUPS[RECIPE].batch}, 2 threads; medians of {ROUNDS} steps of each, taking "
            f"turns, and of {repeats} processes",
        )
        for name, aim in AIMS.items()
    ]


def _processes(recipe: str, photos: Path, repeats: int) -> Row:
    steps, batch = LENGTHS.get(recipe, USUAL)
    sides = [partial(_ours, recipe, photos, num, steps, batch) for num in (1, 2)]
    threads, processes = alternate_figures(sides, repeats=repeats)
    ratio = processes["images_per_second"] / threads["images_per_second"]
    return Row(
        what=f"`{recipe}`: 2 processes of 1 thread against 1 process of 2 threads",
        ours=f"{processes['images_per_second']:.2f} images/s",
        theirs=f"{threads['images_per_second']:.2f} images/s",
        verdict=f"{ratio:.2f} x (reported)",
        command="python -m bench deployment",
        detail=f"`shelf` as JPEGs, {steps} steps of {batch}, medians of {repeats} runs each, taking turns",
    )


def _torchrun(setup: Setup, photos: Path, repeats: int) -> Row:
    """Compare both sides in 1 process with 2 threads and in 2 with 1."""
    steps, batch = LENGTHS.get(setup.recipe, USUAL)
    sides = [partial(_ours, setup.recipe, photos, num, steps, batch) for num in (1, 2)]
    sides += [partial(_theirs, setup, photos, num, steps, batch) for num in (1, 2)]
    speeds = [figures["images_per_second"] for figures in alternate_figures(sides, repeats=repeats)]
    best, peers_best = max(speeds[:2]), max(speeds[2:])
    return Row(
        what=f"`{setup.recipe}` in the better of 1 x 2 and 2 x 1, against torchrun with torchvision's "
        f"`{setup.peer}`",
        ours=f"{best:.2f} images/s",
        theirs=f"{peers_best:.2f} images/s",
        verdict=f"{best / peers_best:.2f} x (aim: 1 x)",
        command="python -m bench deployment",
        detail=f"the same JPEGs, {steps} steps of {batch}, medians of {repeats} runs each, taking turns; "
        f"2 x 1: {speeds[1]:.2f} against {speeds[3]:.2f}; 1 x 2: {speeds[0]:.2f} against {speeds[2]:.2f}; "
        "the peer augments, computes and averages losses as its reference scripts do",
    )


def _ours(recipe: str, photos: Path, num: int, steps: int, batch: int) -> dict[str, float]:
    words = (f"data={photos}", f"steps={1 + steps}", f"batch={batch}", f"deploy.threads={3 - num}")
    return in_child("deployment", "run", recipe, *words, *([f"deploy.replicas={num}"] if num > 1 else []))


def _theirs(setup: Setup, photos: Path, num: int, steps: int, batch: int) -> dict[str, float]:
    words = (setup.peer, photos, setup.size, batch, steps, 3 - num)
    run = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={num}"]
    done = subprocess.run(
        [*run, "-m", "bench.torchvision_ddp", *map(str, words)], stdout=subprocess.PIPE, text=True, check=True
    )
    line = next(line for line in done.stdout.splitlines() if line.startswith("{"))
    figures: dict[str, float] = json.loads(line)
    return figures


def measure_run(recipe: str, *words: str) -> dict[str, float]:
    """Return the images per second, without the first step."""
    quiet = (
        "init=scratch",
        "summaries.tensorboard=false",
        "summaries.images=0",
        "summaries.every_steps=1",
        "evaluation.every_epochs=1000",
        "saver.every_steps=1000",
    )
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        train(run, recipe, *quiet, *words)
        rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    rates = [row["images_per_second"] for row in rows if "images_per_second" in row][1:]
    return {"images_per_second": statistics.harmonic_mean(rates)}


def measure_overhead(setup: Setup) -> dict[str, float]:
    """Return the seconds of a step of each loop; each has its own task and optimizer."""
    steps = {
        "by hand": _by_hand(setup),
        **{name: _deployed(setup, name) for name in AIMS},
    }
    times: dict[str, list[float]] = {name: [] for name in steps}
    for _ in range(1 + ROUNDS):
        for name, step in steps.items():
            start = time.perf_counter()
            step()
            times[name].append(time.perf_counter() - start)
    return {name: statistics.median(seconds[1:]) for name, seconds in times.items()}


def _batch(setup: Setup) -> Batch:
    from boxcrew.core.types import Sample
    from boxcrew.data.loading.collate import collate

    images, targets = examples_of(setup, setup.size)
    pairs = zip(images, targets, strict=True)
    return collate([Sample(image=image, target=target, key="") for image, target in pairs])


def _by_hand(setup: Setup) -> Callable[[], None]:
    import torch

    from boxcrew.api import run_config
    from boxcrew.detectors import build_detector
    from boxcrew.tasks.detection import DetectionTask, require_detection
    from boxcrew.train.loop.optim import optimizer_of

    config = run_config(setup.recipe, {"batch": setup.batch})
    detector = build_detector(require_detection(config.task).detector, CLASSES)
    task = DetectionTask(detector).to(memory_format=torch.channels_last).train()
    optimizer = optimizer_of(task, config.optim)
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
    from bench.ports import free_port
    from boxcrew.api import run_config
    from boxcrew.deploy.deployment import deploy
    from boxcrew.deploy.processes.collectives import DistributedGroup
    from boxcrew.deploy.processes.environments import ProcessEnvironment
    from boxcrew.detectors import build_detector
    from boxcrew.hardware.probe import probe_machine
    from boxcrew.tasks.detection import DetectionTask, require_detection
    from boxcrew.tasks.detection_inputs import largest_batch
    from boxcrew.train.loop.optim import optimizer_of
    from boxcrew.train.planning.from_settings import choose_plan
    from boxcrew.train.planning.workload import estimate_workload

    settings = {"batch": setup.batch, "deploy": {"strategy": strategy, "memory_format": "channels_last"}}
    config = run_config(setup.recipe, settings)
    detector = build_detector(require_detection(config.task).detector, CLASSES)
    task = DetectionTask(detector).train()
    # A group of one process, so that messages are sent and received.
    group = (
        DistributedGroup(ProcessEnvironment(rank=0, world_size=1, port=free_port()))
        if strategy == "ddp"
        else None
    )
    examples = partial(largest_batch, canvas=detector.config.size.canvas(()), num_objects=10)
    workload = estimate_workload(config, task, examples)
    deployment = deploy(choose_plan(config, probe_machine(), workload, num_samples=1), group=group)
    deployment.__enter__()  # for the life of this process
    deployment.setup_module(task)
    optimizer = optimizer_of(task, config.optim)
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
