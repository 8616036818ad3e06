"""Detectors that torch computes, with what comes before and after them."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor

from boxcrew.core.types import Detections
from boxcrew.detectors import DetectorNet, input_hw
from boxcrew.nets.layers import eval_mode
from boxcrew.runtime.predictor import Array, DetectionPredictor, PredictSeconds


@dataclass(frozen=True, kw_only=True, eq=False)
class Predictor(DetectionPredictor):
    """A detector of torch on any device; `move` brings inputs there."""

    detector: DetectorNet
    move: Callable[[Tensor], Tensor]

    def compute(self, inputs: Sequence[Array]) -> tuple[list[Detections], PredictSeconds]:
        start = time.perf_counter()
        in_eval_mode = eval_mode(self.detector) if self.detector.training else nullcontext()
        with torch.inference_mode(), in_eval_mode:
            tensors = [self.move(torch.from_numpy(values)) for values in inputs]
            raw = self.detector(*tensors)
            if raw[0].is_cuda:
                torch.cuda.synchronize()
            computed = time.perf_counter()
            detections = self.detector.decode(raw, input_hw(tensors[0])).unpad()
        post = time.perf_counter() - computed
        return detections, PredictSeconds(network=computed - start, post=post, num_images=len(detections))
