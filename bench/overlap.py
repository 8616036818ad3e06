"""The overlap of gradient messages with backward. `python -m bench.overlap` draws docs/images/overlap.svg."""

from __future__ import annotations

import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch import multiprocessing as processes

from bench.ports import free_port
from bench.train_step import CLASSES, SETUPS, examples_of
from boxcrew.deploy.deployment import deploy
from boxcrew.deploy.processes.collectives import DistributedGroup, Wait
from boxcrew.deploy.processes.environments import ProcessEnvironment
from boxcrew.plan.plan import Clone, Plan, Replica

PLOT = Path(__file__).parents[1] / "docs" / "images" / "overlap.svg"
RECIPE = "ssd300_vgg16"
SHARE = 2  # samples of each replica
WARM_UP = 2


class Timed(DistributedGroup):
    """Records when each message left and arrived."""

    def __init__(self, env: ProcessEnvironment) -> None:
        super().__init__(env)
        self.records: list[dict[str, float]] = []

    def all_reduce_async(self, tensor: Tensor) -> Wait:
        note = {"megabytes": tensor.nbytes / 1e6, "left": time.monotonic()}
        self.records.append(note)
        work = dist.all_reduce(tensor, async_op=True)
        assert work is not None
        work.get_future().add_done_callback(lambda _: note.update(arrived=time.monotonic()))

        def wait() -> None:
            work.wait()

        return wait


def _replica(rank: int, port: int, folder: str) -> None:
    from boxcrew.api import run_config
    from boxcrew.core.types import Sample
    from boxcrew.data.loading.collate import collate
    from boxcrew.detectors import build_detector
    from boxcrew.tasks.detection import DetectionTask, require_detection

    torch.set_num_threads(1)
    group = Timed(ProcessEnvironment(rank=rank, world_size=2, port=port))
    clones = (Clone(device="cpu", share=SHARE),)
    plan = Plan(
        strategy="ddp",
        replicas=(Replica(clones=clones), Replica(clones=clones)),
        parameter_device="cpu",
        optimizer_device="cpu",
        batch=2 * SHARE,
        threads=1,
        loader_workers=0,
    )
    images, targets = examples_of(SETUPS[RECIPE], SETUPS[RECIPE].size)
    pairs = list(zip(images, targets, strict=True))[rank * SHARE : (rank + 1) * SHARE]
    batch = collate([Sample(image=image, target=target, key="") for image, target in pairs])
    torch.manual_seed(0)
    times: dict[str, Any] = {}
    with deploy(plan, group=group) as deployment:
        task = deployment.setup_module(
            DetectionTask(build_detector(require_detection(run_config(RECIPE, {}).task).detector, CLASSES))
        )
        task.train().register_forward_pre_hook(lambda *_: times.update(forward=time.monotonic()))
        task.register_forward_hook(lambda *_: times.update(backward=time.monotonic()))
        first = next(task.parameters())  # its gradient is computed last
        first.register_post_accumulate_grad_hook(  # type: ignore[no-untyped-call]
            lambda _: times.update(end=time.monotonic())
        )
        optimizer = torch.optim.SGD(task.parameters(), lr=1e-4)
        for _ in range(WARM_UP + 1):
            group.records.clear()
            deployment.gradients(task, batch, "train")
            times["all there"] = time.monotonic()
            deployment.update(optimizer, max_norm=None)
            times["updated"] = time.monotonic()
    if rank == 0:
        times["messages"] = group.records
        (Path(folder) / "times.json").write_text(json.dumps(times))
    group.close()


def measure() -> dict[str, Any]:
    """Return the seconds since the begin of a step, on the first replica."""
    with tempfile.TemporaryDirectory() as folder:
        processes.start_processes(  # type: ignore[attr-defined,no-untyped-call]
            _replica, args=(free_port(), folder), nprocs=2, start_method="spawn"
        )
        times: dict[str, Any] = json.loads((Path(folder) / "times.json").read_text())
    start = times["forward"]
    relative: dict[str, Any] = {name: value - start for name, value in times.items() if name != "messages"}
    relative["messages"] = [
        {name: value - start if name != "megabytes" else value for name, value in message.items()}
        for message in times["messages"]
    ]
    return relative


def draw(times: dict[str, Any], path: Path = PLOT) -> None:
    import matplotlib as mpl

    mpl.use("svg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(8, 3.2))
    stages = [
        ("forward", times["forward"], times["backward"], "#4c78a8"),
        ("backward", times["backward"], times["end"], "#72b7b2"),
        ("wait", times["end"], times["all there"], "#d9d9d9"),
        ("update", times["all there"], times["updated"], "#f58518"),
    ]
    for name, begin, end, color in stages:
        axes.barh(0, end - begin, left=begin, color=color, height=0.6, label=name)
    messages = times["messages"]
    for row, message in enumerate(messages, 1):
        axes.barh(
            row, message["arrived"] - message["left"], left=message["left"], color="#e45756", height=0.6
        )
    axes.set_yticks(range(len(messages) + 1))
    labels = [f"{message['megabytes']:.0f} MB" for message in messages]
    axes.set_yticklabels(["computing", *labels], fontsize=7)
    axes.invert_yaxis()
    axes.set_xlabel("seconds of a step")
    axes.legend(ncols=4, fontsize=7, frameon=False, loc="upper center", bbox_to_anchor=(0.5, 1.14))
    axes.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)


def share_hidden(times: dict[str, Any]) -> float:
    """Return the share of bytes that arrived before backward ended."""
    messages = times["messages"]
    early: float = sum(each["megabytes"] for each in messages if each["arrived"] <= times["end"])
    total: float = sum(each["megabytes"] for each in messages)
    return early / total


if __name__ == "__main__":
    measured = measure()
    if "--no-write" not in sys.argv:
        draw(measured)
    print(json.dumps({"hidden": share_hidden(measured), **measured}))
