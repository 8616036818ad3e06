"""A search with `boxcrew tune`: what it costs besides training, when it ends, and trials in the same time."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.child import boxcrew
from bench.optuna_search import search
from bench.row import Row

COMMAND = "python -m bench tune"
STEPS = 63
RUNGS = (7, 21, 63)
SPACE = {"optim.rate": (1e-4, 1e-2), "optim.weight_decay": (1e-5, 1e-1)}
WORDS = ("starter", "size=96", "batch=8", f"steps={STEPS}", "trial=false", "saver.keep=1")
QUIET = ("summaries.tensorboard=false", f"evaluation.at={[step / STEPS for step in RUNGS]}")
OVERHEAD, LATE, RATIO = 0.03, 0.05, 1.5  # aims


@dataclass(frozen=True, kw_only=True)
class Searched:
    """A study that has ended."""

    seconds: float  # of the command, from its start to its end
    report: dict[str, Any]
    processes: float  # seconds of the trainings' processes
    trained: float  # seconds of these in which steps were taken and evaluated


def rows(*, time: float = 180.0) -> list[Row]:
    """Search for so long, and let Optuna do so too."""
    with tempfile.TemporaryDirectory() as folder:
        ours = _search(Path(folder) / "study", time)
        theirs = search(Path(folder) / "peer", [*WORDS, *QUIET], space=SPACE, rungs=RUNGS, time_=time)
    return [_overhead(ours), _end(ours, time), _trials(ours, theirs, time)]


def _search(out: Path, limit: float) -> Searched:
    space = [f"search.{key}={low:g}..{high:g}:log" for key, (low, high) in SPACE.items()]
    words = (*WORDS, *space, "pruner=halving", "sampler=tpe", f"time={limit:g}s", f"out={out}")
    began = time.monotonic()
    subprocess.run(boxcrew("tune", *words), check=True, stdout=sys.stderr)
    seconds = time.monotonic() - began
    events = [json.loads(line) for line in (out / "events.jsonl").read_text().splitlines()]
    runs = [*(out / "trials").iterdir(), *(out / "repeats").glob("*")]
    return Searched(
        seconds=seconds,
        report=json.loads((out / "report.json").read_text()),
        processes=sum(event["seconds"] for event in events if event["event"] == "ended"),
        trained=sum(json.loads((run / "status.json").read_text())["train_seconds"] for run in runs),
    )


def _overhead(study: Searched) -> Row:
    share = study.seconds / study.processes - 1
    return Row(
        what="time of a study besides its trainings",
        ours=f"{share:.1%} of the trainings' time",
        theirs=f"aim: at most {OVERHEAD:.0%}",
        verdict="met" if share <= OVERHEAD else "missed",
        command=COMMAND,
        detail=f"the command took {study.seconds:.1f} s, the processes of its trainings "
        f"{study.processes:.1f} s: {study.trained:.1f} s of training, the rest their start and end",
    )


def _end(study: Searched, limit: float) -> Row:
    share = study.seconds / limit - 1
    return Row(
        what=f"end of a study with time={limit:g}s",
        ours=f"{study.seconds:.1f} s ({share:+.1%})",
        theirs=f"aim: within {LATE:.0%}",
        verdict="met" if abs(share) <= LATE else "missed",
        command=COMMAND,
        detail="from the start of the command to its end, with the start of Python and the report",
    )


def _trials(study: Searched, peer: Mapping[str, int], limit: float) -> Row:
    counts = study.report["counts"]
    ours, theirs = counts["complete"] + counts["stopped_early"], sum(peer.values())
    ratio = ours / max(1, theirs)
    return Row(
        what=f"trials in {limit:g} s, against Optuna around `boxcrew train`",
        ours=f"{ours} ({counts['complete']} complete, {counts['stopped_early']} stopped early)",
        theirs=f"{theirs} ({peer['complete']} complete, {peer['pruned']} pruned)",
        verdict=f"{ratio:.2f} x (aim: at least {RATIO} x)",
        command=COMMAND,
        detail=f"`{' '.join(WORDS)}` on the embedded shelves; TPE, successive halving after {RUNGS[0]} and "
        f"{RUNGS[1]} steps; trials that the end of the time cuts off are not counted",
    )
