"""The command `boxcrew val`: measure a trained network on a data set."""

from __future__ import annotations

from boxcrew.cli.output import make_screen, parse_settings, print_json, require
from boxcrew.train.run.validate import ValConfig, validate


def val_command(words: list[str], *, as_json: bool) -> None:
    _, tree = parse_settings(words)
    require(tree, "run", example="boxcrew val run=runs/detect/train")
    reports = validate(ValConfig.of(tree), make_screen(as_json=as_json))
    if as_json:
        print_json(reports)
