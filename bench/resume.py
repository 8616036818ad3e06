"""The seconds from process start to the first step: of a resumed run, against a fresh one."""

from __future__ import annotations

import json
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench.row import Row

REPEATS = 5
PATIENCE = 120  # seconds


def rows() -> list[Row]:
    fresh, resumed = [], []
    for _ in range(REPEATS):
        with tempfile.TemporaryDirectory() as folder:
            run = Path(folder) / "run"
            fresh.append(
                _seconds_to_step("train", "starter", f"out={run}", "summaries.every_steps=1", run=run)
            )
            resumed.append(_seconds_to_step("resume", f"run={run}", run=run))
    ratio = statistics.median(resumed) / statistics.median(fresh)
    return [
        Row(
            what="first step of `boxcrew resume` against that of a fresh `boxcrew train`",
            ours=f"{statistics.median(resumed):.2f} s",
            theirs=f"{statistics.median(fresh):.2f} s",
            verdict=f"{ratio:.2f} x (aim: at most 1.2 x)",
            command="python -m bench resume",
            detail=f"`starter`, from the start of the process to the first line of metrics.jsonl; medians of "
            f"{REPEATS} processes each, taking turns",
        )
    ]


def _seconds_to_step(*words: str, run: Path) -> float:
    """Return the seconds until the next step is finished; the run is then stopped, and can be resumed."""
    before = _last_step(run)
    start = time.perf_counter()
    process = subprocess.Popen(
        [Path(sys.executable).with_name("boxcrew"), *words],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        while _last_step(run) <= before:
            assert process.poll() is None, f"{words} ended with {process.returncode} before its first step"
            assert time.perf_counter() - start < PATIENCE, f"{words} took no step in {PATIENCE} s"
            time.sleep(0.01)
        return time.perf_counter() - start
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait()


def _last_step(run: Path) -> int:
    """Return the last step with a complete line in the metrics; 0 before the first."""
    file = run / "metrics.jsonl"
    lines = file.read_text().split("\n")[:-1] if file.is_file() else []
    return int(json.loads(lines[-1])["step"]) if lines else 0
