"""A training in a bucket: its computer is lost, and another goes on as if nothing had been."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path

from boxcrew.core.config import to_yaml
from boxcrew.core.storage.address import Url
from boxcrew.train.bucket.records import everything, local_run
from boxcrew.train.config import RunConfig
from tests.helpers.forked import UNDRAWN, boxcrew
from tests.helpers.runs import require_same_run
from tests.helpers.s3 import S3Server

PROMPT = """
from boxcrew.train.bucket import uploader
uploader.PERIOD = 0.02
"""
ELSEWHERE = """
import socket
from boxcrew.train.bucket import lease
socket.gethostname = lambda: "elsewhere"
lease.EXPIRY = 1.0
"""


def test_a_lost_computer_costs_nothing(
    photos: Path,
    whole: Path,
    tmp_path: Path,
    home: Path,
    config: Callable[..., RunConfig],
    s3: S3Server,
    bucket: Url,
) -> None:
    """The process is killed when a checkpoint has just got its COMMIT, while it trains on."""
    settings, url, first = tmp_path / "settings.yaml", bucket / "runs" / "a", tmp_path / "first"
    settings.write_text(to_yaml(config(photos, tmp_path, summaries={"tensorboard": True})))
    first.mkdir()
    started: list[int] = []

    def kill(method: str, path: str) -> str | None:
        if method == "PUT" and path.endswith("checkpoints/00000003/COMMIT"):
            os.kill(started[0], signal.SIGKILL)
        return None

    s3.after = kill
    words = ("train", str(settings), f"out={url}")
    process = boxcrew(*words, first=PROMPT + UNDRAWN, cwd=first, HOME=str(home))
    started.append(process.pid)
    assert process.wait() == -signal.SIGKILL
    s3.after = None
    other = tmp_path / "other"
    other.mkdir()
    run = {"first": ELSEWHERE + UNDRAWN, "cwd": other, "HOME": str(home)}
    resumed = boxcrew("resume", f"run={url}", "--json", **run)  # type: ignore[arg-type]
    out, err = resumed.communicate()
    assert resumed.returncode == 0, err
    assert "gives no sign of life; its run is taken over" in err
    assert "continuing from this run's own checkpoint at step 3" in err
    assert json.loads(out)["run"] == url
    require_same_run(whole, local_run(url, everything))
    state = boxcrew("status", f"run={url}", "--json", **run)  # type: ignore[arg-type]
    status = json.loads(state.communicate()[0])
    assert (status["state"], status["checkpoint"], status["takeovers"]) == ("finished", 8, 1)
    measured = boxcrew("val", f"run={url}", **run)  # type: ignore[arg-type]
    _, err = measured.communicate()
    assert measured.returncode == 0, err
    assert not (tmp_path / "s3:").exists()
