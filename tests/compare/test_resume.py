"""A comparison that is killed goes on, and ends with the table of one that was not."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from tests.helpers.tiny import BACKBONE

SETTINGS = (
    "detectors=ssdlite,yolo",
    f"detector.backbone={BACKBONE}",
    "init=scratch",
    "trainable=*",
    "size=64",
    "batch=4",
    "steps=6",
    "saver.every_steps=1",
    "loader.workers=0",
    "deploy.threads=1",
)


def command(*words: str) -> list[str]:
    return [sys.executable, "-m", "boxcrew", *words]


def scores(folder: Path) -> list[dict[str, Any]]:
    rows = json.loads((folder / "compare.json").read_text())["rows"]
    return [{key: row[key] for key in ("name", "scores", "num_parameters", "weight_bytes")} for row in rows]


MOMENTS = (
    "comparison.json",
    "ssdlite/config.yaml",
    "ssdlite/checkpoints/*/COMMIT",
    "ssdlite/summary.json",
    "yolo/checkpoints/*/COMMIT",
)
"""Files whose appearance is the moment of a kill, one after the other."""


def kill_at(moment: str, folder: Path, *words: str, environment: dict[str, str]) -> None:
    """Run a command, and kill it when a file appears in the folder."""
    process = subprocess.Popen(command(*words), env=environment, stdout=subprocess.DEVNULL)
    while not any(folder.glob(moment)):
        assert process.poll() is None, f"it ended before {moment}"
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    process.wait()


def test_killed_five_times_and_resumed(tiny_set: Path, tmp_path: Path, home: Path) -> None:
    environment = {**os.environ, "HOME": str(home)}
    settings = [f"data={tiny_set}", *SETTINGS]
    killed, whole = tmp_path / "killed", tmp_path / "whole"
    words = ["compare", *settings, f"out={killed}"]
    for moment in MOMENTS:
        kill_at(moment, killed, *words, environment=environment)
        assert not (killed / "compare.json").exists()
        words = ["resume", f"run={killed}"]
    for last in (words, ["compare", *settings, f"out={whole}"]):
        subprocess.run(command(*last), env=environment, check=True, stdout=subprocess.DEVNULL)
    assert scores(killed) == scores(whole)
    assert [row["name"] for row in scores(whole)] == ["ssdlite", "yolo"]
    for name in ("compare.md", "compare.csv", "scatter.png", "photos.jpg", "index.html"):
        assert (killed / name).stat().st_size > 100
