"""A model folder for Triton: the file in a numbered version, and `config.pbtxt`."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor

from boxcrew.core.files import write_text
from boxcrew.export.graphs import BATCH, ExportGraph

_TYPES = {
    torch.uint8: "TYPE_UINT8",
    torch.int64: "TYPE_INT64",
    torch.float32: "TYPE_FP32",
    torch.bool: "TYPE_BOOL",
}
_MOST = 64  # samples that Triton may put together


def triton_folder(out: Path) -> Path:
    """Return the folder that belongs to an exported file."""
    return out.with_name(f"{out.stem}_triton")


def write_triton(folder: Path, graph: ExportGraph, file: Path) -> Path:
    """Write a new folder with `config.pbtxt` and a copy of the file as `1/model.onnx`; return it."""
    (folder / "1").mkdir(parents=True)
    shutil.copyfile(file, folder / "1" / "model.onnx")
    write_text(folder / "config.pbtxt", _config(folder.name, graph))
    return folder


def _config(name: str, graph: ExportGraph) -> str:
    """Return the settings of a model whose first axes are all the batch, or that takes no batches."""
    traced, other = _tensors(graph, graph.traced_inputs()), _tensors(graph, graph.other_inputs()[-1])
    batched = all(axes.get(0) == BATCH for axes in graph.axes.values())
    lines = [f'name: "{name}"', 'platform: "onnxruntime_onnx"', f"max_batch_size: {_MOST if batched else 0}"]
    for kind, names in (("input", graph.inputs), ("output", graph.outputs)):
        for tensor in names:
            sides = zip(traced[tensor].shape, other[tensor].shape, strict=True)
            dims = [-1 if first != second else first for first, second in sides][1 if batched else 0 :]
            shape = f"data_type: {_TYPES[traced[tensor].dtype]} dims: [ {', '.join(map(str, dims))} ]"
            lines.append(f'{kind} [{{ name: "{tensor}" {shape} }}]')
    return "\n".join(lines) + "\n"


def _tensors(graph: ExportGraph, inputs: Sequence[Tensor]) -> Mapping[str, Tensor]:
    """Return the inputs and what the network makes of them, by name."""
    with torch.inference_mode():
        results = graph.module(*inputs)
    results = results if isinstance(results, tuple) else (results,)
    return dict(zip((*graph.inputs, *graph.outputs), (*inputs, *results), strict=True))
