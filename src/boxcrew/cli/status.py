"""The command `boxcrew status`: how far a run is, who trains it, and what was lost."""

from __future__ import annotations

from pathlib import Path

from boxcrew.cli.output import Output, parse_settings, require
from boxcrew.core.config import Config
from boxcrew.core.storage.address import Url
from boxcrew.train.bucket.state import stored_state
from boxcrew.train.run.directory import require_run, run_of_stage
from boxcrew.train.run.state import run_state


class StatusConfig(Config):
    run: Url | Path


def status_command(words: list[str], out: Output) -> None:
    _, tree = parse_settings(words)
    require(tree, "run", example="boxcrew status run=runs/detect/train")
    run = StatusConfig.of(tree).run
    if isinstance(run, Url):
        state = stored_state(run, out.info)
    else:
        run = run_of_stage(run) or require_run(run)
        state = run_state(run, out.info)
    out.result({"run": str(run), **state.to_json()})
    for line in state.lines(run):
        out.info(line)
