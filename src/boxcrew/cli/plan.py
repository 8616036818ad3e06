"""`boxcrew plan`."""

from __future__ import annotations

import json
from pathlib import Path

from boxcrew.api import plan_run, run_config
from boxcrew.cli.output import print_json, screen, settings
from boxcrew.core.errors import UsageError
from boxcrew.core.files import write_text
from boxcrew.hardware.inventory import assumed_machine

SUFFIXES = (".json", ".png")


def plan_command(words: list[str], *, as_json: bool) -> None:
    places, tree = settings(words, positional=1)
    out = _place(tree.pop("out", None))
    machine = assumed_machine(str(tree.pop("assume"))) if "assume" in tree else None
    config = run_config(places[0] if places else None, tree)
    say = screen(as_json=as_json)
    picture = out if out is not None and out.suffix == ".png" else None
    explained = plan_run(config, say, machine, with_steps=bool(config.trial), picture=picture)
    if out is not None and out.suffix == ".json":
        write_text(out, json.dumps(explained["plan"], indent=2) + "\n")
        say.say(f"plan: {out}; use it with: boxcrew train … plan={out}")
    if as_json:
        print_json(explained)


def _place(out: object) -> Path | None:
    """Where the plan or its picture is to go: nowhere that something is."""
    if out is None:
        return None
    path = Path(str(out))
    if path.suffix not in SUFFIXES:
        raise UsageError(f"out={path}: neither a plan nor a picture", advice="such as plan.json or plan.png")
    if path.exists():
        raise UsageError(f"out={path}: is there already", advice="give another name")
    if not path.parent.is_dir():
        raise UsageError(f"out={path}: no such directory: {path.parent}")
    return path
