"""Kills of replicas of a training: how often it goes on, after how many seconds, and what is done again.

In one training a replica other than the chief is killed again and again, each time once its successor has
joined; in another the chief is. About 10 minutes.
"""

from __future__ import annotations

import json
import math
import os
import random
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import psutil

from bench.row import Row, alternate
from bench.small_set import write_small
from boxcrew.core.parent_process import MEMBER

REPLICAS = 3
COMMAND = "python -m bench elastic_kills"
PATIENCE = 120.0  # seconds until the next step
AIMS = {"worker": 3.0, "chief": 15.0}  # seconds of the 95th percentile
_SETTINGS = ("size=64", "batch=8", "init=scratch", "loader.workers=0", "deploy.threads=1", "trial=false")
_QUIET = ("evaluation.every_epochs=100000", "summaries.tensorboard=false", "summaries.images=0")


class Kill(NamedTuple):
    """The cost of one kill."""

    seconds: float  # until the next step was finished
    steps: int  # that were finished before, and were done again


def rows(trials: int = 20) -> list[Row]:
    with tempfile.TemporaryDirectory() as name:
        data = write_small("shelf", Path(name) / "data", num_train=48, num_val=2)
        kills = [_row(who, _kills(who, data, Path(name) / who, trials), trials) for who in AIMS]
        return [*kills, _row_of_sums(data, Path(name))]


def _row(who: str, kills: Sequence[Kill], trials: int) -> Row:
    seconds = sorted(kill.seconds for kill in kills)
    p95 = seconds[math.ceil(0.95 * len(seconds)) - 1] if seconds else math.nan
    redone = max((kill.steps for kill in kills), default=0)
    is_met = len(kills) == trials and p95 <= AIMS[who]
    median = statistics.median(seconds) if seconds else math.nan
    return Row(
        what=f"kill -9 of {'the chief' if who == 'chief' else 'another replica'}, to the next finished step",
        ours=f"{len(kills)} of {trials} go on; median {median:.1f} s, p95 {p95:.1f} s",
        theirs=f"aim: all, p95 {AIMS[who]:.0f} s",
        verdict="met" if is_met else "missed",
        command=COMMAND,
        detail=f"`ssdlite`, 64 px, {REPLICAS} replicas of one thread on {os.cpu_count()} cores, 4 clones; at "
        f"most {redone} finished steps done again; load {os.getloadavg()[0]:.0f} at the end",
    )


def _kills(who: str, data: Path, run: Path, trials: int) -> list[Kill]:
    """Kill a replica so often, or until the run does not go on."""
    choice = random.Random(0)
    kills: list[Kill] = []
    words = (
        f"deploy.replicas={REPLICAS}",
        "deploy.logical_clones=4",
        "deploy.restarts=1000",
        "steps=1000000",
    )
    with _training(data, run, *words, "summaries.every_steps=1", "saver.every_steps=20") as launcher:
        _wait(lambda: _last_step(run) >= 3, launcher)
        while len(kills) < trials:
            if not _wait(lambda: len(_members(launcher)) == REPLICAS and _is_whole(run), launcher):
                break
            time.sleep(choice.uniform(0, 2))
            members = _members(launcher)
            victim = members[min(members)] if who == "chief" else members[choice.choice(sorted(members)[1:])]
            before, num_starts = _last_step(run), len(_starts(run))
            begun = time.monotonic()
            victim.kill()
            has_gone_on = _has_gone_on(who, run, before, num_starts)
            if not _wait(has_gone_on, launcher):
                break
            seconds = time.monotonic() - begun
            starts = _starts(run)
            kills.append(Kill(seconds, before - starts[-1] if len(starts) > num_starts else 0))
            print(f"{who} {len(kills)}: {kills[-1]}", file=sys.stderr, flush=True)
    return kills


def _has_gone_on(who: str, run: Path, before: int, num_starts: int) -> Callable[[], bool]:
    """Return what says whether a step was finished after a kill; of the chief, by the next start."""
    if who != "chief":
        return lambda: _last_step(run) > before
    return lambda: len(_starts(run)) > num_starts and _last_step(run) > _starts(run)[-1]


def _is_whole(run: Path) -> bool:
    """Return whether as many replicas train as at first, by the last word in the log."""
    words = re.findall(r"(\d+) replicas? go on|training: (\d)", (run / "train.log").read_text())
    return bool(words) and words[-1][0] in {"", str(REPLICAS)}


def _starts(run: Path) -> list[int]:
    """Return the step at which each start has begun."""
    text = (run / "train.log").read_text()
    begun = re.findall(r"own checkpoint at step (\d+)|(init: )", text)
    return [int(step or 0) for step, _ in begun]


@contextmanager
def _training(data: Path, run: Path, *words: str) -> Iterator[psutil.Process]:
    command = (sys.executable, "-m", "boxcrew", "train", "ssdlite", f"data={data}", f"out={run}")
    process = subprocess.Popen(
        [*command, *_SETTINGS, *_QUIET, *words],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        yield psutil.Process(process.pid)
    finally:
        process.send_signal(signal.SIGKILL)  # its replicas die with it
        process.wait()


def _members(launcher: psutil.Process) -> dict[int, psutil.Process]:
    """Return the living replicas by their numbers."""
    members = {}
    for child in launcher.children():
        try:
            if child.status() != psutil.STATUS_ZOMBIE:
                members[int(child.environ()[MEMBER])] = child
        except (psutil.Error, KeyError):
            continue
    return members


def _wait(condition: Callable[[], bool], launcher: psutil.Process) -> bool:
    """Wait until something is so; return False if the run has ended or nothing happens."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end and launcher.is_running() and launcher.status() != psutil.STATUS_ZOMBIE:
        if condition():
            return True
        time.sleep(0.01)
    return False


def _last_step(run: Path) -> int:
    file = run / "metrics.jsonl"
    lines = file.read_text().split("\n")[:-1] if file.is_file() else []
    return int(json.loads(lines[-1])["step"]) if lines else 0


def _row_of_sums(data: Path, folder: Path) -> Row:
    """Compare sums in the order of clones with those in any, where every clone has a replica of its own."""

    def seconds(exact: str) -> Callable[[], float]:
        def run() -> float:
            with tempfile.TemporaryDirectory(dir=folder) as name:
                out = Path(name) / "run"
                words = ("deploy.replicas=4", "deploy.logical_clones=4", f"deploy.exact={exact}", "steps=30")
                with _training(data, out, *words) as launcher:
                    _wait((out / "summary.json").is_file, launcher)
                    summary = json.loads((out / "summary.json").read_text())
            return float(summary["first_steps"]["measured"]["step_seconds"])

        return run

    exact, plain = alternate([seconds("true"), seconds("false")], repeats=3)
    return Row(
        what="a step of 4 clones on 4 replicas: sums in the order of clones, against any order",
        ours=f"{exact * 1000:.0f} ms",
        theirs=f"{plain * 1000:.0f} ms",
        verdict=f"{exact / plain:.2f} x (aim: at most 1.3 x)",
        command=COMMAND,
        detail=f"`ssdlite`, 64 px, batch 8, 4 replicas of one thread on {os.cpu_count()} cores; medians of 3",
    )
