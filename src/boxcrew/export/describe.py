"""The description that goes into an exported file."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import torch

from boxcrew.core.config import Tree
from boxcrew.core.errors import ExportError
from boxcrew.data.proposals.methods import SELECTIVE_SEARCH
from boxcrew.detectors import DetectorNet, ProposalConfig
from boxcrew.nets.network import Network
from boxcrew.runtime.model_info import CandidateRule, ImageInput, ModelInfo, ProposalSource, Suppression
from boxcrew.tasks.base import TASKS
from boxcrew.tasks.detection import DetectionConfig, detector_of
from boxcrew.train.run.loading import Loaded

_MAIN_SCORES = ("AP", "AP50", "AP75", "accuracy", "accuracy5", "val_loss", "perplexity", "frechet")


def describe(loaded: Loaded, *, inputs: tuple[str, ...], with_nms: bool, chooses: bool = True) -> ModelInfo:
    """Return the description of a network, before anything was measured."""
    task, network = loaded.config, loaded.task.network
    is_detector = isinstance(task, DetectionConfig)
    further = (
        _of_detector(task, detector_of(loaded.task), with_nms=with_nms, chooses=chooses)
        if is_detector
        else {}
    )
    return ModelInfo(
        predicts=TASKS.get(task.name).predicts(loaded.facts),
        network=task.detector.name if is_detector else task.title.rpartition(" by ")[2],
        classes=network.classes,
        inputs=inputs,
        weights=_digest(network),
        task=task.tree(),
        facts=loaded.facts.to_json(),
        seed=loaded.seed,
        **further,
    )


def _of_detector(task: DetectionConfig, network: DetectorNet, *, with_nms: bool, chooses: bool) -> Tree:
    detector, normalize = task.detector, network.normalize
    image = ImageInput(
        size=detector.size.largest,
        resize=task.transforms.resize,
        fill=task.transforms.fill,
        mean=tuple(normalize.mean.tolist()),
        std=tuple(normalize.std.tolist()),
    )
    suppression = Suppression(
        inside=with_nms,
        score_threshold=detector.score_threshold,
        nms_iou=detector.nms_iou,
        max_detections=detector.max_detections,
    )
    rule = CandidateRule(
        count=network.num_candidates, each=network.candidates_each, side=detector.size.largest.square
    )
    return {
        "image": image,
        "candidates": None if chooses else rule,
        "suppression": suppression,
        "proposals": _proposals(task),
    }


def _proposals(task: DetectionConfig) -> ProposalSource | None:
    detector = task.detector
    if not isinstance(detector, ProposalConfig):
        return None
    if detector.proposal_method not in SELECTIVE_SEARCH:
        raise ExportError(
            f"detector.proposal_method={detector.proposal_method}: a file cannot contain another run",
            advice="only detectors with regions of selective search can be exported",
        )
    return ProposalSource.of({"method": detector.proposal_method, "count": detector.proposals})


def main_scores(numbers: Mapping[str, float]) -> dict[str, float]:
    """Return the scores that describe a network, without those of sizes and thresholds."""
    return {name: float(numbers[name]) for name in _MAIN_SCORES if name in numbers}


def _digest(network: Network) -> str:
    """Return a digest of the weights."""
    digest = hashlib.sha256()
    for name, tensor in sorted(network.state_dict().items()):
        digest.update(name.encode())
        digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()
