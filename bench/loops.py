"""Steps a second of our trainer and of Lightning, each against a loop written by hand: the same network,
optimizer, data and batches. A shared machine changes its speed from one second to the next, so the two loops
of a comparison run in one process and take turns, block by block.

    python -m bench.loops RECIPE [fused]

prints the seconds of our blocks and of those of the loop written by hand: with torch's default optimizer
kernel, or fused, as ours is.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

from bench.child import in_child
from bench.peers import is_installed, missing, run_peer
from bench.real_data import real_data
from bench.row import Row, skipped

RECIPES = {"fc": 60, "cnn": 12, "rnn": 12, "gan": 6}
"""Recipes with the steps of a block, which take about a third of a second."""
PAIRS = 60  # blocks of each loop that count
WARM = 2  # blocks before them that do not
COMMAND = "python -m bench loops"


def rows() -> list[Row]:
    return [row for recipe in RECIPES for row in _rows(recipe)]


def _rows(recipe: str) -> list[Row]:
    if real_data("fashion_mnist") is None:
        return []
    ours, fused = (_Pairs(**in_child("loops", recipe, *words)) for words in ((), ("fused",)))
    against_hand = Row(
        what=f"steps of `{recipe}` against a loop written by hand",
        ours=f"{_speed(recipe, ours.tested):.1f} steps/s",
        theirs=f"{_speed(recipe, ours.plain):.1f} steps/s",
        verdict=f"{ours.ratio:.2f} x (aim: at least 0.97 x)",
        command=COMMAND,
        detail=f"Fashion-MNIST, {PAIRS} blocks of {RECIPES[recipe]} steps each, taking turns in one process; "
        "the ratio is the median over the pairs; the same network, batches and optimizer, which the loop has "
        f"as torch makes it; where it asks for a fused one, as ours is, the ratio is {fused.ratio:.2f}",
    )
    what = f"steps of `{recipe}` against Lightning"
    if not is_installed("lightning"):
        return [
            against_hand,
            skipped(what=what, reason=missing("lightning"), ours=against_hand.ours, command=COMMAND),
        ]
    theirs = _Pairs(**run_peer("lightning", "lightning_loop", recipe))
    return [
        against_hand,
        Row(
            what=what,
            ours=f"{ours.ratio:.3f} x a loop written by hand",
            theirs=f"{theirs.ratio:.3f} x a loop written by hand",
            verdict=f"{ours.ratio / theirs.ratio:.2f} x (aim: above 1 x)",
            command=COMMAND,
            detail="each against the same loop written by hand, as above; Lightning without its logger, "
            "checkpoints and progress bar, ours with all that it does",
        ),
    ]


@dataclass(kw_only=True)
class _Pairs:
    """Seconds of the blocks of both loops, in turns."""

    tested: list[float] = field(default_factory=list)
    plain: list[float] = field(default_factory=list)

    @property
    def ratio(self) -> float:
        """The speed of the tested loop relative to the plain one."""
        return statistics.median(b / a for a, b in zip(self.tested, self.plain, strict=True))

    def print(self) -> None:
        print(json.dumps({"tested": self.tested[WARM:], "plain": self.plain[WARM:]}))


def _speed(recipe: str, seconds: list[float]) -> float:
    return RECIPES[recipe] / statistics.median(seconds)


def num_steps(recipe: str) -> int:
    """Return the number of steps of the tested loop."""
    return RECIPES[recipe] * (PAIRS + WARM) + 1


@dataclass(frozen=True, kw_only=True)
class Turns:
    """Alternates the tested loop with one written by hand, block by block."""

    plain_step: Callable[[], None]
    block: int
    pairs: _Pairs = field(default_factory=_Pairs)

    @classmethod
    def of(cls, recipe: str, *, fused: bool = False) -> Turns:
        return cls(plain_step=plain_loop(recipe, fused=fused), block=RECIPES[recipe])

    def between(self, batches: Iterator[Any]) -> Iterator[Any]:
        """Yield batches to the tested loop; between its blocks the plain loop works."""
        start = 0.0
        for number, batch in enumerate(batches):
            if number % self.block == 0:
                now = time.perf_counter()
                for _ in range(self.block):
                    self.plain_step()
                if number:
                    self.pairs.tested.append(now - start)
                    self.pairs.plain.append(time.perf_counter() - now)
                start = time.perf_counter()
            yield batch


def ours(recipe: str, *, fused: bool) -> _Pairs:
    """Measure our trainer with all hooks; only the source of its batches is replaced."""
    from boxcrew.api import run_config, train_run
    from boxcrew.data.loading.loader import TrainLoader
    from boxcrew.train.output.screen import Screen

    turns = Turns.of(recipe, fused=fused)
    read = TrainLoader.batches

    def in_turns(loader: TrainLoader, *where: Any, **limits: Any) -> Iterator[Any]:
        return turns.between(read(loader, *where, **limits))

    settings: dict[str, Any] = {
        "data": str(real_data("fashion_mnist")),
        "steps": num_steps(recipe),
        "evaluation": {"every_epochs": 1000},
        "loader": {"workers": 0},
        "optim": {"ema": 0.0},  # the others have none
    }
    with tempfile.TemporaryDirectory() as name, mock.patch.object(TrainLoader, "batches", in_turns):
        train_run(run_config(recipe, {**settings, "out": str(Path(name) / "run")}), screen=Screen())
    return turns.pairs


def components(recipe: str, *, fused: bool = False) -> tuple[Any, Iterator[Any], Any, float | None]:
    """Return the recipe's task, batches, optimizer and limit of the gradient norm."""
    import torch

    from boxcrew.api import run_config
    from boxcrew.tasks.data import LoaderOptions
    from boxcrew.train.loop.optim import optimizer_of, set_rate
    from boxcrew.train.output.screen import Screen
    from boxcrew.train.run.data import load_task_data

    config = run_config(recipe, {"data": str(real_data("fashion_mnist"))})
    task_data = load_task_data(config, workers=1, screen=Screen())
    torch.manual_seed(0)
    task = task_data.task().train()
    optimizer = optimizer_of(task, config.optim)
    set_rate(optimizer, config.optim.rate)
    optimizer = optimizer if fused else _with_default_kernel(optimizer)
    batches = task_data.loader(LoaderOptions(batch=config.batch, seed=0)).batches()
    return task, batches, optimizer, config.optim.clip


def _with_default_kernel(optimizer: Any) -> Any:
    """Return the optimizer with torch's default choice of a kernel."""
    chosen = {"fused", "foreach"}
    groups = [{k: v for k, v in group.items() if k not in chosen} for group in optimizer.param_groups]
    return type(optimizer)(groups, lr=groups[0]["lr"])


def plain_loop(recipe: str, *, fused: bool) -> Callable[[], None]:
    """Return a step as people write it: forward, backward, clip, update; the loss is read."""
    import torch

    from boxcrew.core.torch_tools.tracked_weights import track_weights

    task, batches, optimizer, clip = components(recipe, fused=fused)

    def step() -> None:
        batch = next(batches)
        for phase in task.phases:
            optimizer.zero_grad(set_to_none=True)
            for name, parameter in task.named_parameters() if len(task.phases) > 1 else ():
                parameter.requires_grad = task.learns_in(phase, name)
            if len(task.phases) > 1:
                track_weights(task)  # of spectral norms, as torch's own do in forward
            losses = task(batch, phase)
            loss = losses.total() / losses.weight
            loss.backward()
            if clip is not None:
                torch.nn.utils.clip_grad_norm_(task.parameters(), clip)
            optimizer.step()
            float(loss.detach())

    return step


if __name__ == "__main__":
    ours(sys.argv[1], fused="fused" in sys.argv[2:]).print()
