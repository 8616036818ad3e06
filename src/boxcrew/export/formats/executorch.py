"""ExecuTorch, for phones and boards: a program whose layers XNNPACK computes, one sample at a time."""

from __future__ import annotations

import copy
import importlib
import warnings
from collections.abc import Mapping

import torch

from boxcrew.core.errors import ExportError, first_line
from boxcrew.export.formats._base import FORMATS, ExportFormat, require_packages
from boxcrew.export.graphs import ExportGraph
from boxcrew.runtime.engines import open_engine
from boxcrew.runtime.engines.executorch import PROGRAM


def executorch_files(graph: ExportGraph, model: bytes) -> Mapping[str, bytes]:
    """Return the file of a network; `ExportError` if it has an operator that ExecuTorch has not."""
    del model
    exir = importlib.import_module("executorch.exir")
    xnnpack = importlib.import_module("executorch.backends.xnnpack.partition.xnnpack_partitioner")
    module = copy.deepcopy(graph.module).to(memory_format=torch.contiguous_format)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what it prepares and leaves out is not for users
        traced = torch.export.export(module, graph.single_inputs("executorch"))
        try:
            lowered = exir.to_edge_transform_and_lower(traced, partitioner=[xnnpack.XnnpackPartitioner()])
            program = lowered.to_executorch()
        except Exception as error:  # the library has classes of its own, which share no base
            reason = first_line(error)
            problem = f"format=executorch: an operator of the network is not among its own: {reason}"
            raise ExportError(problem, advice="format=onnx has it") from error
    content: bytes = program.buffer
    return {PROGRAM: content}


FORMATS.register("executorch")(
    ExportFormat(
        require=lambda: require_packages("executorch", "executorch"),
        convert=executorch_files,
        open=lambda file, threads: open_engine("executorch", file, threads=threads),
        engine="executorch",
        takes_batches=False,
    )
)
