"""The time and accuracy of `make train`, a new user's first command."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

from bench.child import train
from bench.row import Row


def rows() -> list[Row]:
    with tempfile.TemporaryDirectory() as folder:
        start = time.monotonic()
        summary = train(Path(folder) / "run")
        seconds = time.monotonic() - start
    met = summary["AP50"] > 0.95 and summary["AP"] > 0.68 and seconds < 360
    return [
        Row(
            what="`make train` after set-up, on the embedded set",
            ours=f"AP50 {summary['AP50']:.3f}, AP {summary['AP']:.3f} in {seconds / 60:.1f} minutes",
            theirs="aim: AP50 above 0.95, AP above 0.68 in at most 6 minutes",
            verdict="met" if met else "missed",
            command="python -m bench starter",
            detail=f"{summary['images_per_second']:.1f} images/s, "
            f"data wait {summary['data_wait_share']:.1%}, one run",
        )
    ]
