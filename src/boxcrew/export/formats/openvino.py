"""OpenVINO's own files, a graph in XML and its weights."""

from __future__ import annotations

import importlib
import tempfile
from collections.abc import Mapping
from pathlib import Path

from boxcrew.export.formats._base import FORMATS, ExportFormat, require_packages
from boxcrew.export.graphs import ExportGraph
from boxcrew.runtime.engines import open_engine
from boxcrew.runtime.engines.openvino import GRAPH, WEIGHTS


def openvino_files(graph: ExportGraph, model: bytes) -> Mapping[str, bytes]:
    """Return the files of a network, with weights of 32 bits."""
    del graph
    openvino = importlib.import_module("openvino")
    network = openvino.Core().read_model(model=model)
    with tempfile.TemporaryDirectory() as folder:
        openvino.save_model(network, str(Path(folder) / GRAPH), compress_to_fp16=False)
        return {name: (Path(folder) / name).read_bytes() for name in (GRAPH, WEIGHTS)}


FORMATS.register("openvino")(
    ExportFormat(
        require=lambda: require_packages("openvino", "openvino"),
        convert=openvino_files,
        open=lambda file, threads: open_engine("openvino", file, threads=threads),
        engine="openvino",
        takes_int8=True,
    )
)
