"""ONNX Runtime on the CPU."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import ClassVar

from boxcrew.core.errors import ModelError, first_line
from boxcrew.runtime.engines._base import ENGINES, Array
from boxcrew.runtime.model_file import MODEL, ModelFile

_ERRORS_ONLY = 3


@ENGINES.register("onnxruntime")
class OnnxRuntime:
    """A session of ONNX Runtime. Its threads sleep where there is nothing to do: they share the machine."""

    package: ClassVar[str] = "'boxcrew[runtime]'"
    reads: ClassVar[frozenset[str]] = frozenset({MODEL})

    def __init__(self, model: ModelFile, *, threads: int) -> None:
        runtime = importlib.import_module("onnxruntime")
        options = runtime.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
        options.log_severity_level = _ERRORS_ONLY
        # Its pool of memory grows to what the threads use together, and no further. Without it, each photo
        # takes and frees so much that the heap of the process becomes twice as large. Patterns add to it.
        options.enable_mem_pattern = False
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        try:
            # From memory, so that nothing on disk is opened beside the file that was verified.
            self._session = runtime.InferenceSession(
                model.files[MODEL], options, providers=["CPUExecutionProvider"]
            )
        except Exception as error:  # noqa: BLE001  the library has classes of its own, which share no base
            reason = first_line(error)
            raise ModelError(
                f"{model.path}: ONNX Runtime {runtime.__version__} cannot use it: {reason}",
                advice="install the version that boxcrew names, or export the model again",
            ) from None
        # The library would keep the file for another attempt on another device.
        self._session.disable_fallback()
        if hasattr(self._session, "_model_bytes"):
            self._session._model_bytes = None
        self._inputs = tuple(each.name for each in self._session.get_inputs())
        self.precision = model.info.precision

    def run(self, inputs: Mapping[str, Array]) -> tuple[Array, ...]:
        return tuple(self._session.run(None, {name: inputs[name] for name in self._inputs}))
