"""The command `boxcrew export`: write a trained network as a file for other programs."""

from __future__ import annotations

from boxcrew.cli.output import Output, parse_settings, require_run
from boxcrew.core.config import lift
from boxcrew.core.errors import UsageError
from boxcrew.core.storage.address import is_url
from boxcrew.data.config import BoxOptions
from boxcrew.export.run import export
from boxcrew.export.settings import ExportConfig


def export_command(words: list[str], out: Output) -> None:
    _, tree = parse_settings(words)
    url = str(tree.get("run"))
    require_run(tree, example="boxcrew export run=runs/detect/train")
    if is_url(url) and "out" not in tree:
        raise UsageError(
            f"run={url}: its directory is not here", advice="say where to write the file: out=FILE"
        )
    out.result(export(ExportConfig.of(lift(tree, "data", BoxOptions.model_fields)), out))
