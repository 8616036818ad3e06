"""Files that compute with integers of 8 bits: static quantization, calibrated on training photos."""

from __future__ import annotations

import contextlib
import importlib
import io
import logging
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from boxcrew.core.errors import ExportError
from boxcrew.export.int8_biases import correct_biases
from boxcrew.export.int8_layers import WITH_WEIGHTS, float_nodes, pool_means
from boxcrew.runtime.exported import EXTRA, IMAGES, THRESHOLD
from boxcrew.runtime.predictor import Array, PreparedImage

_LEVELS, _FEW_LEVELS = 127, 64
"""The steps of weights on either side of 0, with 8 bits and with 7."""

_FOR_MEANS = 32  # photos, about: means need fewer than ranges


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

    Weights have a scale for each channel, and biases make up for their rounding. `float_nodes` says what
    keeps its precision; `ExportError` if that is everything.
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
        pool_means(prepared.graph)
        kept = float_nodes(prepared.graph)
        layers = frozenset(node.name for node in prepared.graph.node if node.op_type in WITH_WEIGHTS) - kept
        if not layers:
            problem = "int8=true: no layer of this network gains from integers"
            raise ExportError(problem, advice="leave int8= out")
        names = {entry.name for entry in prepared.graph.input}
        needed = [{name: each[name] for name in names} for each in inputs]
        few = _lacks_vnni()
        some = needed[:: max(1, len(needed) // _FOR_MEANS)]
        correct_biases(prepared, some, layers=layers, levels=_FEW_LEVELS if few else _LEVELS)
        quantization.quantize_static(
            prepared,
            str(target),
            _Reader(needed),
            quant_format=quantization.QuantFormat.QDQ,
            per_channel=True,
            reduce_range=few,
            activation_type=quantization.QuantType.QUInt8,
            weight_type=quantization.QuantType.QInt8,
            calibrate_method=quantization.CalibrationMethod.MinMax,
            nodes_to_exclude=sorted(kept),
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
