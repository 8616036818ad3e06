"""Measurements in separate processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


def in_child(module: str, *words: str, preload: str = "", home: Path | None = None) -> dict[str, Any]:
    """Run `python -m bench.MODULE WORDS` and return the JSON object in its last line.

    `preload` is a library to be loaded before all others, `home` the home directory of the process.
    """
    command = [sys.executable, "-m", f"bench.{module}", *words]
    environment = os.environ | ({"LD_PRELOAD": preload} if preload else {})
    environment |= {"HOME": str(home)} if home else {}
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env=environment)
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def boxcrew(*words: str) -> list[str]:
    """Return the command line of `boxcrew WORDS`."""
    return [str(Path(sys.executable).with_name("boxcrew")), *words]


def train(out: Path, *words: str) -> dict[str, Any]:
    """Run `boxcrew train WORDS` into `out`, in a separate process, and return its summary."""
    subprocess.run(boxcrew("train", *words, f"out={out}"), check=True, stdout=sys.stderr)
    summary: dict[str, Any] = json.loads((out / "summary.json").read_text())
    return summary


@contextmanager
def one_core() -> Iterator[None]:
    """Restrict all processes that are started inside to one core, however many threads they have."""
    if not hasattr(os, "sched_setaffinity"):
        yield
        return
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {max(allowed)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, allowed)
