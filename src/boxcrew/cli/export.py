"""The command `boxcrew export`: write a trained network as a file for other programs."""

from __future__ import annotations

from boxcrew.cli.output import Output, parse_settings, require
from boxcrew.core.config import lift
from boxcrew.data.config import BoxOptions
from boxcrew.export.run import export
from boxcrew.export.settings import ExportConfig


def export_command(words: list[str], out: Output) -> None:
    _, tree = parse_settings(words)
    require(tree, "run", example="boxcrew export run=runs/detect/train")
    out.result(export(ExportConfig.of(lift(tree, "data", BoxOptions.model_fields)), out))
