"""ExecuTorch on the CPU. Its Python package, which tries what is made for phones and boards, needs torch."""

from __future__ import annotations

import contextlib
import importlib
import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from boxcrew.core.errors import ModelError
from boxcrew.runtime.engines._base import ENGINES, Array
from boxcrew.runtime.model_file import ModelFile

PROGRAM = "model.pte"
"""The file of ExecuTorch's format."""


@ENGINES.register("executorch")
class ExecuTorch:
    """A program of ExecuTorch, which computes one sample after the other."""

    package: ClassVar[str] = "'boxcrew[executorch]'"
    reads: ClassVar[frozenset[str]] = frozenset({PROGRAM})

    def __init__(self, model: ModelFile, *, threads: int) -> None:
        runtime = importlib.import_module("executorch.runtime")
        bindings = importlib.import_module("executorch.extension.pybindings.portable_lib")
        with _quiet():
            bindings._unsafe_reset_threadpool(threads)
        try:
            self._program = runtime.Runtime.get().load_program(model.files[PROGRAM])
            self._method: Any = self._program.load_method("forward")
        except RuntimeError as error:
            raise ModelError(f"{model.path}: ExecuTorch cannot use it: {error}") from None
        self._inputs = model.info.inputs
        self._lock = threading.Lock()  # a method has memory of its own for what is in between
        self.precision = model.info.precision

    def run(self, inputs: Mapping[str, Array]) -> tuple[Array, ...]:
        arrays = [np.ascontiguousarray(inputs[name]) for name in self._inputs]
        samples = [
            self._run_one([values[index : index + 1] for values in arrays]) for index in range(len(arrays[0]))
        ]
        return tuple(np.concatenate(rows) for rows in zip(*samples, strict=True))

    def _run_one(self, sample: Sequence[Array]) -> list[Array]:
        torch = importlib.import_module("torch")
        tensors = [torch.from_numpy(values) for values in sample]
        with self._lock:
            return [np.array(output) for output in self._method.execute(tensors)]


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Silence what the library itself, which is not Python, tells about processors."""
    kept = os.dup(2)
    try:
        with Path(os.devnull).open("wb") as nowhere:
            os.dup2(nowhere.fileno(), 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
