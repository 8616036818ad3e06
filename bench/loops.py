"""Steps a second of our trainer, of a loop written by hand, and of Lightning: the same network, optimizer,
data and number of loader processes, taking turns, each in a process of its own.

    python -m bench.loops RECIPE ours|plain STEPS

prints what one of them reaches.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from bench.child import in_child, train
from bench.peers import is_installed, run_peer
from bench.real_data import real_data
from bench.row import Row, alternate

RECIPES = {"fc": 600, "cnn": 120, "rnn": 120, "gan": 100}
"""With steps that are timed, some seconds of each."""
WARM = 20  # steps that are not
COMMAND = "python -m bench loops"


def rows(*, repeats: int = 5) -> list[Row]:
    return [row for recipe in RECIPES for row in _rows(recipe, repeats)]


def _rows(recipe: str, repeats: int) -> list[Row]:
    sides: dict[str, Callable[[], float]] = {
        "ours": partial(_measured, recipe, "ours"),
        "a loop written by hand": partial(_measured, recipe, "plain"),
    }
    if is_installed("lightning"):
        sides["Lightning"] = partial(_lightning, recipe)
    ours, *others = alternate(list(sides.values()), repeats=repeats)
    aims = {"a loop written by hand": 0.97, "Lightning": 1.0}
    return [
        Row(
            what=f"steps of `{recipe}` against {peer}",
            ours=f"{ours:.1f} steps/s",
            theirs=f"{theirs:.1f} steps/s",
            verdict=f"{ours / theirs:.2f} x (aim: {aims[peer]} x)",
            command=COMMAND,
            detail=f"Fashion-MNIST, {RECIPES[recipe]} steps after {WARM}, medians of {repeats} processes "
            "each, taking turns; the recipe's batch, optimizer and augmentation on both sides",
        )
        for peer, theirs in zip(list(sides)[1:], others, strict=True)
    ]


def _measured(recipe: str, side: str) -> float:
    return float(in_child("loops", recipe, side)["steps_per_second"])


def _lightning(recipe: str) -> float:
    return float(run_peer("lightning", "lightning_loop", recipe)["steps_per_second"])


def ours(recipe: str) -> float:
    """As a user has it: all hooks at work."""
    steps = RECIPES[recipe] + WARM
    with tempfile.TemporaryDirectory() as name:
        words = [f"data={real_data('fashion_mnist')}", f"steps={steps}", "probe=false"]
        words += ["evaluation.every_epochs=1000", "loader.workers=0"]
        summary = train(Path(name) / "run", recipe, *words)
        seconds = [
            json.loads(line) for line in (Path(name) / "run" / "metrics.jsonl").read_text().splitlines()
        ]
    rows = [row for row in seconds if "images_per_second" in row and row["step"] > WARM]
    times = [row["time"] for row in rows]
    steps_seen = rows[-1]["step"] - rows[0]["step"]
    assert summary["state"] == "finished"
    return float(steps_seen / (times[-1] - times[0]))


def parts(recipe: str) -> tuple[Any, Iterator[Any], Any, float | None]:
    """The task, its batches, its optimizer and what its gradient is clipped to: the recipe's."""
    import torch

    from boxcrew.api import run_config
    from boxcrew.tasks.base import Feed
    from boxcrew.train.data import load_subject
    from boxcrew.train.optim import optimizer_of, set_rate
    from boxcrew.train.screen import Screen

    config = run_config(recipe, {"data": str(real_data("fashion_mnist"))})
    subject = load_subject(config, workers=1, screen=Screen())
    torch.manual_seed(0)
    task = subject.task().train()
    optimizer = optimizer_of(task, config.optim)
    set_rate(optimizer, config.optim.rate)
    batches = subject.loader(Feed(batch=config.batch, seed=0)).batches()
    return task, batches, optimizer, config.optim.clip


def plain(recipe: str) -> float:
    """What people write: forward, backward, clip, step; the loss is looked at every tenth step."""
    import torch

    torch.set_num_threads(2)
    task, batches, optimizer, clip = parts(recipe)
    begun = 0.0
    for step in range(RECIPES[recipe] + WARM):
        if step == WARM:
            begun = time.perf_counter()
        batch = next(batches)
        for phase in task.phases:
            optimizer.zero_grad(set_to_none=True)
            for name, parameter in task.named_parameters() if len(task.phases) > 1 else ():
                parameter.requires_grad = task.learns_in(phase, name)
            losses = task(batch, phase)
            loss = losses.total() / losses.weight
            loss.backward()
            if clip is not None:
                torch.nn.utils.clip_grad_norm_(task.parameters(), clip)
            optimizer.step()
        if step % 10 == 0:
            float(loss.detach())
    return RECIPES[recipe] / (time.perf_counter() - begun)


if __name__ == "__main__":
    name, side = sys.argv[1:3]
    print(json.dumps({"steps_per_second": {"ours": ours, "plain": plain}[side](name)}))
