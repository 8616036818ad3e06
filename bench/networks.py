"""The accuracy of the recipes for classic networks on real data, after a given time: 40 minutes."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.child import boxcrew, train
from bench.real_data import real_data
from bench.row import Row

COMMAND = "python -m bench networks"


@dataclass(frozen=True, kw_only=True)
class Aim:
    recipe: str
    data: str  # a path below the real data
    minutes: float
    metric: str
    limit: float  # at least, or of a loss at most
    split: str = "val"  # of the final evaluation; during training it is val

    @property
    def is_loss(self) -> bool:
        return self.metric in {"val_loss", "frechet"}


FASHION, SHAKESPEARE = "fashion_mnist", "text/tinyshakespeare/input.txt"
AIMS = (
    Aim(recipe="fc", data=FASHION, minutes=1, metric="accuracy", limit=0.88, split="test"),
    Aim(recipe="cnn", data=FASHION, minutes=6, metric="accuracy", limit=0.925, split="test"),
    Aim(recipe="rnn", data=FASHION, minutes=5, metric="accuracy", limit=0.88, split="test"),
    Aim(recipe="rnn", data=SHAKESPEARE, minutes=15, metric="val_loss", limit=1.70),
)
GAN = Aim(recipe="gan", data=FASHION, minutes=10, metric="frechet", limit=1 / 3)


def rows() -> list[Row]:
    folder = real_data(FASHION)
    if folder is None:
        return []
    with tempfile.TemporaryDirectory() as name:
        runs = Path(name)
        return [*(_row(aim, folder.parent, runs) for aim in AIMS), _gan(folder, runs)]


def _row(aim: Aim, sets: Path, runs: Path) -> Row:
    out = runs / f"{aim.recipe}-{Path(aim.data).stem}"
    summary = train(out, aim.recipe, f"data={sets / aim.data}", f"time={aim.minutes}m", "epochs=none")
    reached = _number(out, aim.metric, split=aim.split)
    met = reached <= aim.limit if aim.is_loss else reached >= aim.limit
    return Row(
        what=f"`{aim.recipe}` on {Path(aim.data).parent.name if 'txt' in aim.data else aim.data}",
        ours=f"{aim.metric} {reached:.4f} in {summary['train_seconds'] / 60:.1f} minutes",
        theirs=f"aim: {aim.limit} in {aim.minutes:g} minutes",
        verdict="met" if met else "missed",
        command=COMMAND,
        detail=f"`boxcrew train {aim.recipe} time={aim.minutes:g}m`, then `boxcrew val split={aim.split}`, "
        f"{summary['epochs']:.1f} epochs, {summary['images_per_second']:.0f} samples/s",
    )


def _gan(folder: Path, runs: Path) -> Row:
    untrained, out = runs / "untrained", runs / "gan"
    train(untrained, GAN.recipe, f"data={folder}", "steps=1", "optim.rate=1e-12", "optim.ema=0")
    first = _number(untrained, GAN.metric)
    train(out, GAN.recipe, f"data={folder}", f"time={GAN.minutes}m", "epochs=none")
    last = _number(out, GAN.metric)
    return Row(
        what="`gan` on fashion_mnist: Fréchet distance by features of our own classifier",
        ours=f"{last:.2f}, untrained {first:.2f}: {last / first:.3f} of it",
        theirs="aim: a third in 10 minutes",
        verdict="met" if last <= GAN.limit * first else "missed",
        command=COMMAND,
        detail=f"`boxcrew train gan time={GAN.minutes:g}m`, 2000 pictures made and real, validation split",
    )


def _number(run: Path, name: str, *, split: str = "val") -> float:
    """Return a metric of the run's best weights."""
    words = boxcrew("val", f"run={run}", f"split={split}", "batch=256", "--json")
    done = subprocess.run(words, check=True, stdout=subprocess.PIPE, stderr=sys.stderr, text=True)
    report: dict[str, Any] = json.loads(done.stdout)
    return float(report["best"]["numbers"][name])
