"""Optuna's own loop around the plain command: each trial is one `boxcrew train`, which Optuna may prune."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import optuna

from bench.child import boxcrew
from boxcrew.tune.record import ETA

_POLL = 0.05  # seconds


def search(
    out: Path,
    words: Sequence[str],
    *,
    space: Mapping[str, tuple[float, float]],
    rungs: Sequence[int],
    time_: float,
) -> Mapping[str, int]:
    """Search logarithmic ranges for `time_` seconds; count the trials that were completed and pruned.

    The pruner is Optuna's successive halving with the same rungs. A trial that it stops is over; one that the
    end of the time stops is not counted.
    """
    began = time.monotonic()
    pruner = optuna.pruners.SuccessiveHalvingPruner(min_resource=rungs[0], reduction_factor=ETA)
    sampler = optuna.samplers.TPESampler(seed=0)
    study = optuna.create_study(direction="maximize", sampler=sampler, pruner=pruner)
    counts = {"complete": 0, "pruned": 0}
    while (left := time_ - (time.monotonic() - began)) > 0:
        trial = study.ask()
        drawn = [f"{key}={trial.suggest_float(key, *ends, log=True)}" for key, ends in space.items()]
        state = _train(trial, out / str(trial.number), [*words, *drawn], until=time.monotonic() + left)
        if state is None:
            break
        if state == "complete":
            study.tell(trial, max(value for _, value in _values(out / str(trial.number))))
        else:
            study.tell(trial, state=optuna.trial.TrialState.PRUNED)
        counts[state] += 1
    return counts


def _train(trial: optuna.Trial, run: Path, words: Sequence[str], *, until: float) -> str | None:
    """Train until the end or until the pruner stops it; None if the time was over first."""
    command = boxcrew("train", *words, f"out={run}")
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        reported = 0
        while (code := process.poll()) is None:
            values = _values(run)
            for step, value in values[reported:]:
                trial.report(value, step)
            if len(values) > reported and trial.should_prune():
                process.send_signal(signal.SIGTERM)
                process.wait()
                return "pruned"
            reported = len(values)
            if time.monotonic() > until:
                process.kill()
                return None
            time.sleep(_POLL)
    assert code == 0, f"{command} ended with {code}"
    for step, value in _values(run)[reported:]:
        trial.report(value, step)
    return "complete"


def _values(run: Path) -> list[tuple[int, float]]:
    """Return the steps and values of AP so far."""
    file = run / "metrics.jsonl"
    lines = file.read_text().split("\n")[:-1] if file.is_file() else []
    rows = [json.loads(line) for line in lines]
    return [(row["step"], row["AP"]) for row in rows if "AP" in row and "rate" not in row]
