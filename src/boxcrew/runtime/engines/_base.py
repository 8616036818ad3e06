"""The contract of an engine, and the registry of all engines."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import numpy.typing as npt

from boxcrew.core.errors import ModelError, UsageError
from boxcrew.core.registry import Registry
from boxcrew.runtime.model_file import ModelFile

Array = npt.NDArray[Any]


class Engine(Protocol):
    """A network that is ready to compute. Several threads may call `run` at once."""

    @property
    def precision(self) -> str:
        """The numbers that it really computes with, such as fp32."""

    def run(self, inputs: Mapping[str, Array]) -> tuple[Array, ...]:
        """Return the outputs of the network for its inputs by name. An input that it does not have is left
        out.
        """


class EngineClass(Protocol):
    """A kind of engine."""

    package: str  # what has to be installed, for messages
    reads: frozenset[str]  # names of the files that it computes

    def __call__(self, model: ModelFile, *, threads: int) -> Engine: ...


ENGINES: Registry[EngineClass] = Registry("engine", "boxcrew.runtime.engines")
"""All engines by name; a class joins with `@ENGINES.register("onnxruntime")`."""


def open_engine(name: str, model: ModelFile, *, threads: int) -> Engine:
    """Return an engine that computes a model on so many threads; `UsageError` if it is not installed."""
    kind = ENGINES.get(name)
    if not model.files.keys() & kind.reads:
        raise ModelError(
            f"{model.path}: {name} does not compute {', '.join(model.files)}",
            advice="give the engine of this format; boxcrew does not open torch.export programs",
        )
    try:
        return kind(model, threads=threads)
    except ModuleNotFoundError as error:
        raise UsageError(
            f"engine={name}: {error.name} is not installed", advice=f"pip install {kind.package}"
        ) from None
