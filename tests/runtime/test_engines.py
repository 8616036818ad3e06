"""Engines, and what they keep in memory."""

from __future__ import annotations

import sys
from pathlib import Path

from boxcrew.runtime.engines import open_engine
from boxcrew.runtime.model_file import MODEL, read_model


def test_onnx_runtime_does_not_keep_the_file(exported_run: Path) -> None:
    file = read_model(exported_run / "model.onnx")
    before = sys.getrefcount(file.files[MODEL])
    engine = open_engine("onnxruntime", file, threads=1)
    after = sys.getrefcount(file.files[MODEL])
    assert after == before
    assert engine.precision == "fp32"
