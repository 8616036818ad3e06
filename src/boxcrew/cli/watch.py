"""The command `boxcrew watch`: a live page of trainings."""

from __future__ import annotations

import os

from boxcrew.cli.output import Output, parse_settings
from boxcrew.core.errors import UsageError
from boxcrew.serve.watch.settings import WatchConfig

TOKEN = "BOXCREW_TOKEN"  # noqa: S105 - the name of a variable


def watch_command(words: list[str], out: Output) -> None:
    _, tree = parse_settings(words, verbatim=("token",))
    if os.environ.get(TOKEN):
        tree.setdefault("token", os.environ[TOKEN])
    config = WatchConfig.of(tree)
    try:
        from boxcrew.serve.watch.server import run_server
    except ModuleNotFoundError as error:
        problem, advice = f"{error.name} is not installed", "pip install 'boxcrew[serve]'"
        raise UsageError(problem, advice=advice) from None
    shown = ", ".join(map(str, config.run))
    run_server(config, lambda url: out.info(f"boxcrew watches {shown} at {url}"))
