"""The command `boxcrew status`: how far a run is, who trains it, and what was lost."""

from __future__ import annotations

from pathlib import Path

from boxcrew.cli.output import Output, parse_settings, require
from boxcrew.core.config import Config
from boxcrew.train.run.directory import require_run, run_of_stage
from boxcrew.train.run.state import run_state


class StatusConfig(Config):
    run: Path


def status_command(words: list[str], out: Output) -> None:
    _, tree = parse_settings(words)
    require(tree, "run", example="boxcrew status run=runs/detect/train")
    folder = StatusConfig.of(tree).run
    folder = run_of_stage(folder) or require_run(folder)
    state = run_state(folder, out.info)
    out.result({"run": str(folder), **state.to_json()})
    for line in state.lines(folder):
        out.info(line)
