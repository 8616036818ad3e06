"""The command `boxcrew val`: measure a trained network on a data set."""

from __future__ import annotations

from boxcrew.cli.output import Output, parse_settings, require_run
from boxcrew.core.config import lift
from boxcrew.data.config import BoxOptions
from boxcrew.train.run.validate import ValConfig, validate


def val_command(words: list[str], out: Output) -> None:
    _, tree = parse_settings(words)
    require_run(tree, example="boxcrew val run=runs/detect/train")
    out.result(validate(ValConfig.of(lift(tree, "data", BoxOptions.model_fields)), out))
