"""OpenVINO on the CPU."""

from __future__ import annotations

import importlib
from collections import Counter
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from boxcrew.core.errors import ModelError
from boxcrew.runtime.engines._base import ENGINES, Array
from boxcrew.runtime.model_file import MODEL, ModelFile

GRAPH, WEIGHTS = "model.xml", "model.bin"
"""The files of OpenVINO's own format."""

_WITH_WEIGHTS = {"Convolution", "Deconvolution", "FullyConnected", "MatMul", "RNNSeq", "RNNCell"}
_NAMES = {"f32": "fp32", "f16": "fp16", "u8": "int8", "i8": "int8"}


@ENGINES.register("openvino")
class OpenVino:
    """A network that OpenVINO has compiled."""

    package: ClassVar[str] = "'boxcrew[openvino]'"
    reads: ClassVar[frozenset[str]] = frozenset({MODEL, GRAPH})

    def __init__(self, model: ModelFile, *, threads: int) -> None:
        openvino = importlib.import_module("openvino")
        core = openvino.Core()
        settings = {
            # It computes in bfloat16 where the processor can, unless that is turned off.
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
        self.precision = _precision(self._network)

    def run(self, inputs: Mapping[str, Array]) -> tuple[Array, ...]:
        request = self._network.create_infer_request()
        results = request.infer({name: np.ascontiguousarray(inputs[name]) for name in self._inputs})
        return tuple(np.array(results[output]) for output in self._network.outputs)


def _precision(network: Any) -> str:
    """Return the numbers that the layers with weights of a compiled network compute with, the most usual
    first: what it was asked for is a hint.
    """
    layers = [node.get_rt_info() for node in network.get_runtime_model().get_ops()]
    used = Counter(
        str(layer["runtimePrecision"].astype(str))
        for layer in layers
        if layer["layerType"].astype(str) in _WITH_WEIGHTS
    )
    return " and ".join(dict.fromkeys(_NAMES.get(name, name) for name, _ in used.most_common())) or "fp32"


def _read(core: Any, model: ModelFile) -> Any:
    """Return the network of an ONNX file, or of OpenVINO's own files, from memory."""
    if model.onnx is not None:
        return core.read_model(model=model.onnx)
    if WEIGHTS not in model.files:
        raise ModelError(f"{model.path}: {WEIGHTS} is missing", advice="export it again")
    return core.read_model(model=model.files[GRAPH], weights=model.files[WEIGHTS])
