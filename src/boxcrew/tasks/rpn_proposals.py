"""Proposals of a trained detector of two stages, for detectors that classify the regions of others."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
import torch

from boxcrew.core import boxes as box_math
from boxcrew.core.errors import ModelError, UsageError
from boxcrew.core.types import Floats, Image
from boxcrew.data.checks.stamps import file_stamp
from boxcrew.data.images.source_image import DecodedImage
from boxcrew.data.loading.collate import stack_images
from boxcrew.evaluate.detection.predictor import Predictor
from boxcrew.nets.weights import find_weights, read_weights
from boxcrew.tasks.base import TASKS, stored_config

_ADVICE = "give fast, quality, or a run of faster_rcnn"


@dataclass(frozen=True)
class RpnProposals:
    """A `ProposalMethod`: the regions that a trained Faster R-CNN proposes, the most likely first. The
    network is loaded once in each process, and computes on the CPU.
    """

    source: str  # a run directory or a weight file

    @property
    def key(self) -> str:
        file = find_weights(Path(self.source), which="best")
        return f"region proposal network {_digest(file, str(file_stamp(file)))}"

    def __call__(self, image: Image) -> Floats:
        file = find_weights(Path(self.source), which="best")
        predictor = _load(file, str(file_stamp(file)))
        height, width = image.shape[:2]
        prepared = predictor.prepare(DecodedImage(image))
        with torch.inference_mode():
            proposals = predictor.detector.proposals(stack_images([prepared.pixels]))
        if proposals is None:
            name = predictor.detector.config.name
            raise ModelError(f"{self.source}: a detector {name}, which proposes no regions", advice=_ADVICE)
        boxes: Floats = box_math.clip(prepared.view.inverse_boxes(proposals[0].numpy()), width, height)
        return boxes


def require_rpn(source: str) -> RpnProposals:
    """Return the method that uses these weights; an error if they are not of a detector that proposes."""
    if not Path(source).exists():
        raise UsageError(f"{source}: not a method that proposes regions, and no such run", advice=_ADVICE)
    method = RpnProposals(source)
    method(np.zeros((64, 64, 3), dtype=np.uint8))  # is it of such a detector?
    return method


@lru_cache(maxsize=2)
def _digest(file: Path, _stamp: str) -> str:
    """Return the digest of a file's content; the stamp makes sure that it is that of the present content."""
    return hashlib.blake2b(file.read_bytes(), digest_size=16).hexdigest()


@lru_cache(maxsize=1)
def _load(file: Path, _stamp: str) -> Predictor:
    """Return the detector of a weight file with all that comes before it, on the CPU."""
    weights = read_weights(file)
    if weights.meta is None or "task" not in weights.meta:
        raise ModelError(f"{file}: tensors without a description: not written by boxcrew", advice=_ADVICE)
    kind = TASKS.get(weights.meta["task"]["name"])
    config = stored_config(weights.meta["task"], file)
    task = kind.build(config, kind.facts_class.from_json(weights.meta["facts"])).eval()
    task.network.load_state_dict(weights.state)
    predictor = kind.predictor(config, task, lambda inputs: inputs)
    if not isinstance(predictor, Predictor):
        raise ModelError(f"{file}: the weights are not those of a detector", advice=_ADVICE)
    return predictor
