"""The command `boxcrew serve`: put detectors behind HTTP, with a page in the browser."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from boxcrew.cli.output import Output, parse_settings
from boxcrew.core.errors import UsageError
from boxcrew.serve.settings import ServeConfig

if TYPE_CHECKING:
    from boxcrew.serve.models import ModelSource

_PACKAGES = frozenset({"onnxruntime", "prometheus_client", "python_multipart", "starlette", "uvicorn"})
"""Packages of the extra `serve`."""


def serve_command(words: list[str], out: Output) -> None:  # noqa: ARG001  the same for all commands
    _, tree = parse_settings(words)
    tree.setdefault("token", os.environ.get("BOXCREW_TOKEN"))
    config = ServeConfig.of(tree)
    try:
        _serve(config)
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in {*_PACKAGES, "ray"}:
            raise
        extras = "serve,ray" if config.on == "ray" else "serve"
        raise UsageError(f"{package} is not installed", advice=f"pip install 'boxcrew[{extras}]'") from None


def _serve(config: ServeConfig) -> None:
    from boxcrew.cli.served_files import served_files

    if config.on == "ray":
        from boxcrew.serve.ray import serve_on_ray as serve
    else:
        from boxcrew.serve.run import serve
    sources = served_files(config)
    serve(config, sources, _announcement(sources))


def _announcement(sources: Sequence[ModelSource]) -> Callable[[str], None]:
    names = ", ".join(source.name for source in sources)
    return lambda url: print(f"boxcrew serves {names} at {url}", flush=True)
