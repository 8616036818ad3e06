"""Files that compute with integers of 8 bits: static quantization, calibrated on training photos."""

from __future__ import annotations

import contextlib
import importlib
import io
import logging
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from boxcrew.core.errors import ExportError
from boxcrew.runtime.exported import EXTRA, IMAGES, THRESHOLD
from boxcrew.runtime.predictor import Array, PreparedImage

_WITH_WEIGHTS = frozenset({"Conv", "ConvTranspose", "Gemm", "MatMul"})
"""The operators with weights, which take nearly all of the time."""


def calibration_inputs(
    images: Sequence[PreparedImage], *, score_threshold: float
) -> Iterator[Mapping[str, Array]]:
    """Yield the inputs of a detector for one photo after the other."""
    for image in images:
        extra = {name: values[None] for name, values in image.extra().items()}
        pixels = np.ascontiguousarray(image.pixels.transpose(2, 0, 1)[None])
        yield {
            IMAGES: pixels,
            **{name: extra[key] for name, key in zip(EXTRA, extra, strict=False)},
            THRESHOLD: np.array([score_threshold], np.float32),
        }


def quantized(model: bytes, inputs: Sequence[Mapping[str, Array]]) -> bytes:
    """Return an ONNX model with weights and activations of 8 bits, scaled by what the inputs give.

    Weights have a scale for each channel. What comes after the last layer with weights (the decoding of
    boxes, softmax) keeps its precision.
    """
    quantization = importlib.import_module("onnxruntime.quantization")
    onnx = importlib.import_module("onnx")
    if not inputs:
        raise ExportError("int8=true: there is no photo to calibrate with", advice="give data=… with photos")
    with tempfile.TemporaryDirectory() as folder, _quiet():
        written, source, target = (Path(folder) / f"{name}.onnx" for name in ("model", "shapes", "int8"))
        written.write_bytes(model)
        # Shapes are inferred first; the graph itself stays as it is.
        quantization.shape_inference.quant_pre_process(
            str(written), str(source), skip_optimization=True, skip_symbolic_shape=True
        )
        prepared = onnx.load(str(source))
        names = {entry.name for entry in prepared.graph.input}
        quantization.quantize_static(
            prepared,
            str(target),
            _Reader([{name: each[name] for name in names} for each in inputs]),
            quant_format=quantization.QuantFormat.QDQ,
            per_channel=True,
            reduce_range=_lacks_vnni(),
            activation_type=quantization.QuantType.QUInt8,
            weight_type=quantization.QuantType.QInt8,
            calibrate_method=quantization.CalibrationMethod.MinMax,
            nodes_to_exclude=_after_the_last_weights(prepared.graph),
        )
        return target.read_bytes()


class _Reader:
    """Gives the inputs of calibration one after the other, as ONNX Runtime asks for them."""

    def __init__(self, inputs: Sequence[Mapping[str, Array]]) -> None:
        self._inputs = inputs
        self._rest = iter(inputs)

    def get_next(self) -> Mapping[str, Array] | None:
        return next(self._rest, None)

    def rewind(self) -> None:
        self._rest = iter(self._inputs)


def _after_the_last_weights(graph: Any) -> list[str]:
    """Return the names of the nodes whose results no layer with weights uses."""
    needed: set[str] = set()
    after: list[str] = []
    for node in reversed(graph.node):  # nodes are sorted: those that use a result come after it
        if node.op_type in _WITH_WEIGHTS or needed.intersection(node.output):
            needed.update(node.input)
        else:
            after.append(node.name)
    return after


def _lacks_vnni() -> bool:
    """Return whether sums of products of 8 bits may overflow on this processor, which then needs 7 bits."""
    try:
        flags = Path("/proc/cpuinfo").read_text(encoding="ascii", errors="replace")
    except OSError:
        return False
    return "avx2" in flags and "vnni" not in flags


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Silence the remarks of the library, which are not for users."""
    root = logging.getLogger()
    level = root.level
    root.setLevel(logging.ERROR)
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            yield
    finally:
        root.setLevel(level)
