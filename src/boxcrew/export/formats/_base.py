"""The contract of an export format, and the registry of all formats."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from boxcrew.core.errors import ExportError
from boxcrew.core.registry import Registry
from boxcrew.export.graphs import ExportGraph
from boxcrew.runtime.engines import Engine
from boxcrew.runtime.model_file import ModelFile


@dataclass(frozen=True, kw_only=True)
class ExportFormat:
    """A kind of file, and what computes it."""

    require: Callable[[], None]
    """A check that its packages are installed; `ExportError` if not."""
    convert: Callable[[ExportGraph, bytes], Mapping[str, bytes]]
    """A function that returns the files of a network, by name. It is also given an ONNX model of it."""
    open: Callable[[ModelFile, int], Engine]
    """A function that returns an engine for such files, with a number of threads."""
    engine: str
    """Name of that engine."""
    takes_int8: bool = False
    """Whether an ONNX model with integers can be converted."""
    chooses: bool = True
    """Whether the file of a detector chooses candidates; it gives every box if not."""
    takes_batches: bool = True
    """Whether a file computes several samples at once; its engine computes one after the other if not."""


FORMATS: Registry[ExportFormat] = Registry("export format", "boxcrew.export.formats")
"""All formats by name; one joins with `FORMATS.register("onnx")(ExportFormat(…))`."""


def require_packages(extra: str, *packages: str) -> None:
    """Raise `ExportError` unless the packages of a format are installed; `extra` has its name and theirs."""
    for package in packages:
        try:
            importlib.import_module(package)
        except ModuleNotFoundError:
            advice = f"pip install 'boxcrew[{extra}]'"
            raise ExportError(f"format={extra}: {package} is not installed", advice=advice) from None
