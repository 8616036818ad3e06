"""The seconds that `boxcrew --help` takes."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

from bench.row import Row, alternate

REPEATS = 9


def _help() -> float:
    start = time.perf_counter()
    subprocess.run([Path(sys.executable).with_name("boxcrew"), "--help"], capture_output=True, check=True)
    return time.perf_counter() - start


def rows() -> list[Row]:
    (seconds,) = alternate([_help], repeats=REPEATS)
    return [
        Row(
            what="`boxcrew --help`",
            ours=f"{seconds:.2f} s",
            theirs="aim: under 0.5 s",
            verdict="met" if seconds < 0.5 else "missed",
            command="python -m bench start_up",
            detail=f"median of {REPEATS}",
        )
    ]
