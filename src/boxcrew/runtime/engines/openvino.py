"""OpenVINO on the CPU."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from boxcrew.core.errors import ModelError
from boxcrew.runtime.engines._base import ENGINES, Array
from boxcrew.runtime.model_file import MODEL, ModelFile

GRAPH, WEIGHTS = "model.xml", "model.bin"
"""The files of OpenVINO's own format."""


@ENGINES.register("openvino")
class OpenVino:
    """A network that OpenVINO has compiled."""

    package: ClassVar[str] = "'boxcrew[openvino]'"
    reads: ClassVar[frozenset[str]] = frozenset({MODEL, GRAPH})

    def __init__(self, model: ModelFile, *, threads: int) -> None:
        openvino = importlib.import_module("openvino")
        core = openvino.Core()
        settings = {
            # It computes in bfloat16 where the processor can, unless it is told not to.
            "INFERENCE_PRECISION_HINT": "f32",
            "INFERENCE_NUM_THREADS": threads,
            "PERFORMANCE_HINT": "LATENCY",
        }
        try:
            self._network = core.compile_model(_read(core, model), "CPU", settings)
        except RuntimeError as error:
            reason = str(error).strip().splitlines()[-1]
            raise ModelError(f"{model.path}: OpenVINO cannot use it: {reason}") from None
        self._inputs = tuple(each.get_any_name() for each in self._network.inputs)
        self.precision: str = model.info.precision
        hint = str(self._network.get_property("INFERENCE_PRECISION_HINT"))
        if "f32" not in hint and "float32" not in hint:
            self.precision = hint

    def run(self, inputs: Mapping[str, Array]) -> tuple[Array, ...]:
        request = self._network.create_infer_request()
        results = request.infer({name: np.ascontiguousarray(inputs[name]) for name in self._inputs})
        return tuple(np.array(results[output]) for output in self._network.outputs)


def _read(core: Any, model: ModelFile) -> Any:
    """Return the network of an ONNX file, or of OpenVINO's own files, from memory."""
    if model.onnx is not None:
        return core.read_model(model=model.onnx)
    if WEIGHTS not in model.files:
        raise ModelError(f"{model.path}: {WEIGHTS} is missing", advice="export it again")
    return core.read_model(model=model.files[GRAPH], weights=model.files[WEIGHTS])
