"""Engines, and what they keep in memory."""

from __future__ import annotations

import sys
from pathlib import Path

import openvino

from boxcrew.export.int8 import quantized
from boxcrew.runtime.engines import open_engine
from boxcrew.runtime.engines.openvino import _precision
from boxcrew.runtime.model_file import MODEL, read_model
from tests.helpers.onnx_chains import DEEP, network, photos


def test_onnx_runtime_does_not_keep_the_file(exported_run: Path) -> None:
    file = read_model(exported_run / "model.onnx")
    before = sys.getrefcount(file.files[MODEL])
    engine = open_engine("onnxruntime", file, threads=1)
    after = sys.getrefcount(file.files[MODEL])
    assert after == before
    assert engine.precision == "fp32"


def opened(model: bytes, precision: str) -> str:
    """Return what OpenVINO computes with if it is asked for a precision."""
    core = openvino.Core()
    settings = {"INFERENCE_PRECISION_HINT": precision}
    return _precision(core.compile_model(core.read_model(model=model), "CPU", settings))


def test_openvino_says_what_it_computes_with() -> None:
    model = network(*DEEP).SerializeToString()
    assert opened(model, "f32") == "fp32"
    assert opened(quantized(model, photos()), "f32") == "int8 and fp32"
    if "BF16" in openvino.Core().get_property("CPU", "OPTIMIZATION_CAPABILITIES"):
        assert opened(model, "bf16") == "bf16"
