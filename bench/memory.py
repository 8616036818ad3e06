"""The memory of all processes of a run: the last epoch against an early one."""

from __future__ import annotations

import json
import math
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil

from bench.child import boxcrew
from bench.row import Row
from bench.small_set import write_small

PHOTOS, VAL_PHOTOS, BATCH, SIZE = 64, 16, 8, 160
EARLY = 2  # the epoch that the last is compared with: by then everything was done once
INTERVAL = 0.05  # seconds between measurements
AIM = 0.03


def rows(*, epochs: int = 12) -> list[Row]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        data = write_small("shelf", folder / "data", num_train=PHOTOS, num_val=VAL_PHOTOS)
        settings = (f"data={data}", f"epochs={epochs}", f"batch={BATCH}", f"size={SIZE}")
        peaks = watch(folder / "run", *settings)
    early, late = peaks[EARLY], peaks[epochs]
    growth = late / early - 1
    return [
        Row(
            what=f"memory of a `starter` run over {epochs} epochs",
            ours=f"{_mebibytes(early)} in epoch {EARLY}, {_mebibytes(late)} in epoch {epochs}",
            theirs=f"aim: less than {AIM:.0%} more",
            verdict=f"{'met' if growth < AIM else 'missed'}: {growth:+.1%}",
            command="python -m bench memory",
            detail=f"{PHOTOS} photos at {SIZE} px, batch {BATCH}, an evaluation and a checkpoint in each "
            f"epoch; the highest resident memory of all processes in an epoch, measured every {INTERVAL} s, "
            f"what they share counted once; at most {_mebibytes(max(peaks.values()))}",
        )
    ]


def watch(run: Path, *settings: str) -> dict[int, int]:
    """Train, and return the highest memory in bytes of each epoch with its evaluation, from 1 on."""
    every_epoch = ("evaluation.every_epochs=1", "saver.every_epochs=1", "summaries.every_steps=1")
    command = boxcrew("train", "starter", *settings, *every_epoch, f"out={run}")
    peaks: dict[int, int] = {}
    with subprocess.Popen(command, stdout=sys.stderr) as process:
        root = psutil.Process(process.pid)
        while process.poll() is None:
            if not (run / "summary.json").is_file():  # plots after the training do not count
                epoch = max(1, math.ceil(_epochs_done(run)))
                peaks[epoch] = max(peaks.get(epoch, 0), _resident(root))
            time.sleep(INTERVAL)
    assert process.returncode == 0, process.returncode
    return peaks


def _resident(root: psutil.Process) -> int:
    """Return the bytes; shared pages are counted once if the system reports them."""
    total = 0
    for process in (root, *root.children(recursive=True)):
        try:
            memory = process.memory_full_info()
            total += getattr(memory, "pss", memory.rss)
        except (psutil.NoSuchProcess, psutil.AccessDenied):  # it ended since
            continue
    return total


def _mebibytes(count: int) -> str:
    """Format bytes in MiB, which is finer than GiB."""
    return f"{count / 2**20:,.0f} MiB"


def _epochs_done(run: Path) -> float:
    """Return the epochs by the last complete line of the metrics."""
    file = run / "metrics.jsonl"
    lines = file.read_text().split("\n")[:-1] if file.is_file() else []
    return float(json.loads(lines[-1])["epoch"]) if lines else 0.0
