"""NCNN on the CPU. It computes one photo at a time, gives every box, and the candidates are chosen here."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from boxcrew.core.errors import ModelError
from boxcrew.runtime.choice import choose_candidates
from boxcrew.runtime.engines._base import ENGINES, Array
from boxcrew.runtime.model_file import ModelFile

GRAPH, WEIGHTS = "model.ncnn.param", "model.ncnn.bin"
"""The files of NCNN's format."""

INPUT, OUTPUTS = "in0", ("out0", "out1")
"""The names in them: of the pixels as floats of 0..255, and of boxes (N, 4) and scores (N, C)."""

_HALF = ("use_fp16_packed", "use_fp16_storage", "use_fp16_arithmetic", "use_bf16_packed", "use_bf16_storage")


@ENGINES.register("ncnn")
class Ncnn:
    """A network of NCNN, set to compute with 32 bits. Each call has memory of its own."""

    package: ClassVar[str] = "'boxcrew[ncnn]'"
    reads: ClassVar[frozenset[str]] = frozenset({GRAPH})

    def __init__(self, model: ModelFile, *, threads: int) -> None:
        self._ncnn = importlib.import_module("ncnn")
        self._model = model  # whose bytes the network reads
        rule = model.info.candidates
        if rule is None or WEIGHTS not in model.files:
            raise ModelError(f"{model.path}: is not complete", advice="export it again")
        self.rule = rule
        self._net = self._ncnn.Net()
        options = self._net.opt
        options.num_threads, options.use_vulkan_compute = threads, False
        for name in _HALF:
            setattr(options, name, False)
        failed = self._net.load_param_mem(model.files[GRAPH].decode())
        if failed:
            raise ModelError(f"{model.path}: NCNN {self._ncnn.__version__} cannot use it")
        self._net.load_model_mem(model.files[WEIGHTS])
        self.precision = model.info.precision

    def run(self, inputs: Mapping[str, Array]) -> tuple[Array, ...]:
        (name,) = self._model.info.inputs
        samples = [choose_candidates(*self.scored_boxes(pixels), self.rule) for pixels in inputs[name]]
        return tuple(np.stack(rows) for rows in zip(*samples, strict=True))

    def scored_boxes(self, pixels: Array) -> tuple[Array, Array]:
        """Return all boxes (N, 4) of a photo (3, H, W), and the score (N, C) of each class."""
        extractor = self._net.create_extractor()
        floats = np.ascontiguousarray(pixels, dtype=np.float32)
        extractor.input(INPUT, self._ncnn.Mat(floats))
        boxes, scores = (np.array(extractor.extract(output)[1]) for output in OUTPUTS)
        return boxes, scores
