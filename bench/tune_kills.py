"""A study that is killed again and again, against the same one that never was."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from bench.child import boxcrew
from bench.row import Row
from boxcrew.core.lock_owner import owner_of

COMMAND = "python -m bench tune_kills"
WORDS = (
    *("fc", "steps=27", "batch=16", "pruner=halving", "sampler=tpe", "loader.workers=0"),
    *("search.optim.rate=1e-4..1e-1:log", "search.net.dropout=0..0.5", "evaluation.batch=64"),
)
_LONGEST = 2.5  # seconds that the study runs on before it is killed
_TIMES = {"at", "seconds"}


def rows(*, kills: int = 20, seed: int = 0) -> list[Row]:
    with tempfile.TemporaryDirectory() as folder:
        data, whole, hurt = (Path(folder) / name for name in ("data", "whole", "hurt"))
        write_kinds(data)
        words = ("tune", *WORDS, f"data={data}", f"trials={kills}")
        _start(*words, f"out={whole}").wait()
        done = _search_under_fire(words, hurt, kills=kills, moments=random.Random(seed))
        wrong = _differences(whole, hurt)
    return [
        Row(
            what=f"kill -9 of a study or a training at {sum(done.values())} random moments",
            ours=wrong
            or "decisions, values, weights and best settings equal the uninterrupted study's bit for bit",
            theirs="aim: equal, no trial twice, none left running",
            verdict="missed" if wrong or sum(done.values()) < kills else "met",
            command=COMMAND,
            detail=f"{kills} trials of a perceptron; {done['study']} kills of the study, "
            f"{done['training']} of a training; random seed {seed}",
        )
    ]


def _search_under_fire(
    words: tuple[str, ...], out: Path, *, kills: int, moments: random.Random
) -> Counter[str]:
    """Search, and kill so often; return how often what was killed."""
    done = Counter[str]()
    process = _start(*words, f"out={out}")
    while sum(done.values()) < kills:
        _wait_for_study(process, out)
        time.sleep(moments.uniform(0, _LONGEST))
        if process.poll() is not None:
            break
        if moments.random() < 0.5 and _kill_training(out):  # which the study starts again
            done["training"] += 1
            continue
        process.kill()
        process.wait()
        done["study"] += 1
        is_begun = (out / "study.json").is_file()
        process = _start("tune", "resume", f"study={out}") if is_begun else _start(*words, f"out={out}")
    process.wait()
    return done


def _start(*words: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(boxcrew(*words), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def _wait_for_study(process: subprocess.Popen[bytes], out: Path) -> None:
    """Wait until the process has imported all and has the study's directory."""
    while process.poll() is None:
        owner = owner_of(out)
        if owner is not None and owner.pid == process.pid:
            return
        time.sleep(0.02)


def _kill_training(out: Path) -> bool:
    """Kill the process of a training; return whether there was one."""
    for run in (out / "trials").glob("*"):
        owner = owner_of(run)
        if owner is not None and not owner.is_dead():
            os.kill(owner.pid, signal.SIGKILL)
            return True
    return False


def _differences(whole: Path, hurt: Path) -> str:
    """Return in words what differs between two studies; nothing if they are equal."""
    if not (hurt / "report.json").is_file() or not (whole / "report.json").is_file():
        return "a study did not end"
    wrong = []
    if _events(whole) != _events(hurt):
        wrong.append("other decisions or values")
    runs = sorted(path.name for path in (whole / "trials").iterdir())
    if runs != sorted(path.name for path in (hurt / "trials").iterdir()):
        return "other trials"
    for name in runs:
        first, second = (_tensors(study / "trials" / name) for study in (whole, hurt))
        if first != second:
            wrong.append(f"other weights in trial {name}")
    if (whole / "best.yaml").read_bytes() != (hurt / "best.yaml").read_bytes():
        wrong.append("other best settings")
    states = {trial["state"] for trial in json.loads((hurt / "report.json").read_text())["trials"]}
    if states & {"running", "paused"}:
        wrong.append("trials left running")
    return ", ".join(wrong)


def _events(study: Path) -> list[dict[str, Any]]:
    """Return all events but for their times."""
    lines = (study / "events.jsonl").read_text().splitlines()
    return [{key: value for key, value in json.loads(line).items() if key not in _TIMES} for line in lines]


def _tensors(run: Path) -> dict[str, bytes]:
    """Return the weights of a run, by file."""
    files = [*(run / "weights").glob("*.safetensors"), *run.glob("checkpoints/*/tensors.safetensors")]
    return {str(file.relative_to(run)): file.read_bytes() for file in files}


def write_kinds(folder: Path) -> None:
    """Write rows of three kinds that overlap, in three splits."""
    folder.mkdir(exist_ok=True)
    rng = np.random.default_rng(0)
    for split, count in (("train", 180), ("val", 30), ("test", 30)):
        lines = ["a,b,c,kind"]
        for index in range(count):
            kind = index % 3
            a, b, c = rng.normal((kind, -kind, 0), (1.0, 1.5, 1.0))
            lines.append(f"{a:.3f},{b:.3f},{c:.3f},{'xyz'[kind]}")
        (folder / f"{split}.csv").write_text("\n".join(lines) + "\n")
