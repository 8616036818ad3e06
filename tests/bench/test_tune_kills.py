"""The comparison of a study that was killed with the same one that was not."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from bench.tune_kills import _differences


def study(folder: Path, value: float = 0.5, at: float = 1.0) -> Path:
    """Write what is compared of a study."""
    weights = folder / "trials" / "0000" / "weights"
    weights.mkdir(parents=True)
    (weights / "best.safetensors").write_bytes(b"weights")
    event = {"event": "ended", "job": 0, "value": value, "at": at, "seconds": at}
    (folder / "events.jsonl").write_text(json.dumps(event) + "\n")
    (folder / "best.yaml").write_text("steps: 1\n")
    (folder / "report.json").write_text(json.dumps({"trials": [{"state": "complete"}]}))
    return folder


def test_only_times_may_differ(tmp_path: Path) -> None:
    whole = study(tmp_path / "whole")
    assert _differences(whole, study(tmp_path / "later", at=7.0)) == ""
    assert "values" in _differences(whole, study(tmp_path / "other", value=0.6))


def test_weights_states_and_trials_are_compared(tmp_path: Path) -> None:
    whole, hurt = study(tmp_path / "whole"), study(tmp_path / "hurt")
    (hurt / "trials" / "0000" / "weights" / "best.safetensors").write_bytes(b"Weights")
    (hurt / "report.json").write_text(json.dumps({"trials": [{"state": "paused"}]}))
    assert _differences(whole, hurt) == "other weights in trial 0000, trials left running"
    shutil.copytree(hurt / "trials" / "0000", hurt / "trials" / "0001")
    assert _differences(whole, hurt) == "other trials"
    (hurt / "report.json").unlink()
    assert _differences(whole, hurt) == "a study did not end"
