"""The command `boxcrew watch`: a live page of trainings."""

from __future__ import annotations

import os

from boxcrew.cli.output import Output, parse_settings
from boxcrew.core.errors import UsageError


def watch_command(words: list[str], out: Output) -> None:  # noqa: ARG001 - as all commands
    _, tree = parse_settings(words, verbatim=("token",))
    if token := os.environ.get("BOXCREW_TOKEN"):
        tree.setdefault("token", token)
    try:
        from boxcrew.serve.watch.server import watch
        from boxcrew.serve.watch.settings import WatchConfig
    except ModuleNotFoundError as error:
        raise UsageError(f"{error.name} is not installed", advice="pip install 'boxcrew[serve]'") from None
    config = WatchConfig.of(tree)
    shown = ", ".join(map(str, config.run))
    watch(config, lambda url: print(f"boxcrew watches {shown} at {url}", flush=True))
