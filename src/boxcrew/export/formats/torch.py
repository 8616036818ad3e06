"""torch's own exported programs. Those with operators of boxcrew or torchvision need these packages."""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from boxcrew.export.formats._base import FORMATS, ExportFormat
from boxcrew.export.formats.onnx import dynamic_axes
from boxcrew.export.graphs import ExportGraph
from boxcrew.runtime.engines._base import Array
from boxcrew.runtime.model_file import ModelFile

PROGRAM = "model.pt2"


def torch_files(graph: ExportGraph, model: bytes) -> Mapping[str, bytes]:
    """Return the file of a network, which `torch.export.load` reads."""
    del model
    with torch.no_grad():
        program = torch.export.export(
            graph.module, graph.traced_inputs(), dynamic_shapes=(dynamic_axes(graph),)
        )
    for node in program.graph.nodes:
        node.meta.pop("stack_trace", None)  # paths of source files of this machine
    content = io.BytesIO()
    torch.export.save(program, content)
    return {PROGRAM: content.getvalue()}


class _Program:
    """A program that was just written, to prove it. Files of users are not opened: parts are pickles."""

    precision = "fp32"

    def __init__(self, file: ModelFile) -> None:
        self._module = torch.export.load(io.BytesIO(file.files[PROGRAM])).module()
        self._inputs = file.info.inputs

    def run(self, inputs: Mapping[str, Array]) -> tuple[Array, ...]:
        tensors = [torch.from_numpy(np.asarray(inputs[name])) for name in self._inputs]
        with torch.no_grad():
            outputs: Any = self._module(*tensors)
        return tuple(output.numpy() for output in (outputs if isinstance(outputs, tuple) else (outputs,)))


FORMATS.register("torch")(
    ExportFormat(
        require=lambda: None,
        convert=torch_files,
        open=lambda file, _: _Program(file),
        engine="torch.export",
    )
)
