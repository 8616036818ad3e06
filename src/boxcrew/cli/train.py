"""`boxcrew train` and `boxcrew resume`."""

from __future__ import annotations

import sys
from pathlib import Path

from boxcrew.api import explain_run, resume_run, run_config, train_run
from boxcrew.cli.output import print_json, screen, settings
from boxcrew.core.errors import UsageError
from boxcrew.train.outcome import Outcome


def train_command(words: list[str], *, as_json: bool, only_explain: bool = False) -> None:
    places, tree = settings(words, positional=1)
    config = run_config(places[0] if places else None, tree)
    if only_explain:
        explained = explain_run(config, screen(as_json=as_json))
        if as_json:
            print_json(explained)
        return
    _finish(train_run(config, screen(as_json=as_json)), as_json=as_json)


def resume_command(words: list[str], *, as_json: bool) -> None:
    _, tree = settings(words)
    if "run" not in tree:
        raise UsageError("resume: which run?", advice="boxcrew resume run=runs/detect/train")
    folder = Path(str(tree.pop("run")))
    _finish(resume_run(folder, tree, screen(as_json=as_json)), as_json=as_json)


def _finish(outcome: Outcome, *, as_json: bool) -> None:
    if as_json:
        print_json({"run": str(outcome.folder), **outcome.summary})
    if outcome.interrupted:
        sys.exit(130)
