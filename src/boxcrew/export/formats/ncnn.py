"""NCNN, for phones and boards, converted by PNNX. Files give every box: NCNN has no operator to choose."""

from __future__ import annotations

import importlib
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from boxcrew.core.errors import ExportError
from boxcrew.detectors import DetectorNet
from boxcrew.export.formats._base import FORMATS, ExportFormat, require_packages
from boxcrew.export.formats.onnx import onnx_model
from boxcrew.export.graphs import BATCH, DetectorModule, ExportGraph
from boxcrew.runtime.engines import Engine, open_engine
from boxcrew.runtime.engines.ncnn import GRAPH, WEIGHTS, Ncnn
from boxcrew.runtime.exported import IMAGES
from boxcrew.runtime.model_file import ModelFile

_SECONDS = 600  # of the converter, at most


def ncnn_files(graph: ExportGraph, model: bytes) -> Mapping[str, bytes]:
    """Return the files of a detector of one stage; `ExportError` if it is another network."""
    del model
    module = graph.module
    raw = graph.single_inputs("ncnn")
    if not isinstance(module, DetectorModule) or len(raw) > 1:
        raise ExportError("format=ncnn: is for detectors of photos alone", advice="format=onnx")
    every = _EveryBox(module.detector, module.size)
    with torch.no_grad():
        if every(raw[0].float()) is None:
            problem = (
                f"format=ncnn: {module.detector.config.name} chooses regions, for which NCNN has no operator"
            )
            raise ExportError(problem, advice="format=onnx has them")
    single = ExportGraph(
        module=every.eval(),
        axes={IMAGES: {}},
        outputs=("boxes", "scores"),
        make_inputs=lambda _: (graph.make_inputs({BATCH: 1})[0].float(),),
    )
    return _converted(onnx_model(single, others=_OTHERS))


def _sum(values: Any, dim: Sequence[int], keepdim: bool = False, dtype: int = -1) -> Any:  # noqa: FBT001, FBT002
    """Write a sum over the last axis as a product with ones: PNNX forgets the axis of sums over one alone."""
    op = importlib.import_module("onnxscript").opset20
    *shape, last = values.shape
    if keepdim or dtype != -1 or [axis % len(values.shape) for axis in dim] != [len(shape)]:
        return op.ReduceSum(values, op.Constant(value_ints=list(dim)), keepdims=int(keepdim))
    ones = op.Reshape(op.Constant(value_floats=[1.0] * last), op.Constant(value_ints=[last, 1]))
    return op.Reshape(op.MatMul(values, ones), op.Constant(value_ints=list(shape)))


_OTHERS = {torch.ops.aten.sum.dim_IntList: _sum}


class _EveryBox(nn.Module):
    """A detector up to all its boxes and their scores."""

    def __init__(self, detector: DetectorNet, size: tuple[int, int]) -> None:
        super().__init__()
        self.detector, self.size = detector, size

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...] | None:
        scored = self.detector.scored_boxes(self.detector(*inputs), self.size)
        return None if scored is None else tuple(scored)


def _converted(model: bytes) -> Mapping[str, bytes]:
    """Return what PNNX makes of an ONNX model, with weights of 32 bits."""
    program = importlib.import_module("pnnx").EXEC_PATH
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "model.onnx").write_bytes(model)
        command = [program, "model.onnx", "fp16=0"]
        done = subprocess.run(  # noqa: S603  the converter's own program
            command, cwd=folder, capture_output=True, text=True, timeout=_SECONDS, check=False
        )
        unknown = [line for line in (done.stdout + done.stderr).splitlines() if "not supported" in line]
        if done.returncode or unknown or not (folder / WEIGHTS).is_file():
            reason = unknown[0] if unknown else f"PNNX ends with {done.returncode}"
            raise ExportError(f"format=ncnn: NCNN cannot have this network: {reason}", advice="format=onnx")
        return {file: (folder / file).read_bytes() for file in (GRAPH, WEIGHTS)}


def _open(file: ModelFile, threads: int) -> Engine:
    """Open converted files; `ExportError` if the converter has made something else of the network."""
    engine = open_engine("ncnn", file, threads=threads)
    assert isinstance(engine, Ncnn)
    side = engine.rule.side
    boxes, scores = engine.scored_boxes(np.zeros((3, side, side), np.uint8))
    if boxes.shape != (len(scores), 4):
        problem = f"format=ncnn: PNNX changes this network: its boxes have the shape {boxes.shape}"
        raise ExportError(problem, advice="format=onnx")
    return engine


FORMATS.register("ncnn")(
    ExportFormat(
        require=lambda: require_packages("ncnn", "ncnn", "pnnx"),
        convert=ncnn_files,
        open=_open,
        engine="ncnn",
        takes_batches=False,
        chooses=False,
    )
)
