"""The command `boxcrew plan`: how a run would use the machine."""

from __future__ import annotations

import json
from pathlib import Path

from boxcrew.api import plan_run, run_config
from boxcrew.cli.output import make_screen, parse_settings, print_json, require_new
from boxcrew.core.errors import UsageError
from boxcrew.core.files import write_text
from boxcrew.hardware.inventory import assumed_machine

SUFFIXES = (".json", ".png")


def plan_command(words: list[str], *, as_json: bool) -> None:
    names, tree = parse_settings(words, positional=1)
    out = _output_file(tree.pop("out", None))
    machine = assumed_machine(str(tree.pop("assume"))) if "assume" in tree else None
    config = run_config(names[0] if names else None, tree)
    if out is not None and config.task.stages():
        raise UsageError(
            f"out={out}: a run with stages has several plans, not one",
            advice="leave out= out; --json prints the plan of each stage",
        )
    screen = make_screen(as_json=as_json)
    drawing = out if out is not None and out.suffix == ".png" else None
    explained = plan_run(config, screen, machine, with_steps=bool(config.trial), drawing=drawing)
    if out is not None and out.suffix == ".json":
        write_text(out, json.dumps(explained["plan"], indent=2) + "\n")
        screen.say(f"plan: {out}; use it with: boxcrew train … plan={out}")
    if as_json:
        print_json(explained)


def _output_file(out: object) -> Path | None:
    """Return the new file for the plan or its drawing; None if there is none."""
    if out is None:
        return None
    path = Path(str(out))
    if path.suffix not in SUFFIXES:
        raise UsageError(
            f"out={path}: neither .json nor .png", advice="give a name such as plan.json or plan.png"
        )
    require_new(path)
    if not path.parent.is_dir():
        raise UsageError(f"out={path}: no such directory: {path.parent}")
    return path
