"""The command `boxcrew plan`: how a run would use the machine."""

from __future__ import annotations

import json
from pathlib import Path

from boxcrew.api import plan_run, run_config
from boxcrew.cli.output import Output, parse_settings, require_new
from boxcrew.core.errors import UsageError
from boxcrew.core.files import write_text
from boxcrew.hardware.assumed import assumed_machine


def plan_command(words: list[str], out: Output) -> None:
    names, tree = parse_settings(words, positional=1)
    file = _output_file(tree.pop("out", None))
    machine = assumed_machine(str(tree.pop("assume"))) if "assume" in tree else None
    config = run_config(names[0] if names else None, tree)
    if file is not None and config.task.stages():
        raise UsageError(
            f"out={file}: a run with stages has several plans, not one",
            advice="leave out= out; --json prints the plan of each stage",
        )
    drawing = file if file is not None and file.suffix == ".png" else None
    explained = plan_run(config, out, machine, with_steps=bool(config.trial), drawing=drawing)
    if file is not None and file.suffix == ".json":
        write_text(file, json.dumps(explained["plan"], indent=2) + "\n")
        out.info(f"plan: {file}; use it with: boxcrew train … plan={file}")
    out.result(explained)


def _output_file(out: object) -> Path | None:
    """Return the new file for the plan or its drawing; None if there is none."""
    if out is None:
        return None
    path = Path(str(out))
    if path.suffix not in {".json", ".png"}:
        advice = "give a name such as plan.json or plan.png"
        raise UsageError(f"out={path}: neither .json nor .png", advice=advice)
    require_new(path)
    if not path.parent.is_dir():
        raise UsageError(f"out={path}: no such directory: {path.parent}")
    return path
