"""Exported files, opened as networks that can be computed and as detectors that predict."""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Self

import numpy as np

from boxcrew.core.errors import ModelError, UsageError
from boxcrew.core.types import Detections
from boxcrew.data.proposals.methods import SELECTIVE_SEARCH, Proposer
from boxcrew.runtime.choice import below_rank
from boxcrew.runtime.engine_facts import EngineFacts
from boxcrew.runtime.engines import ENGINES, Engine, open_engine
from boxcrew.runtime.model_file import ModelFile, read_model
from boxcrew.runtime.model_info import ModelInfo, Suppression
from boxcrew.runtime.predictor import Array, DetectionPredictor, PredictSeconds
from boxcrew.runtime.suppression import suppress

AUTO = "auto"
"""The name that stands for the fastest engine here."""

IMAGES, EXTRA, THRESHOLD = "images", ("regions", "regions_valid"), "score_threshold"
"""The names of a detector's inputs."""

_USUAL = ("onnxruntime", "openvino", "executorch", "ncnn")
_MEASURED = 2.0  # seconds that all engines are measured for


@dataclass(frozen=True, kw_only=True, eq=False)
class Exported:
    """An exported network with the engine that computes it."""

    file: ModelFile
    engine: Engine
    engine_name: str
    threads: int
    measured: Mapping[str, float] = field(default_factory=dict)  # by `auto`: ms of a photo in each engine

    @property
    def info(self) -> ModelInfo:
        return self.file.info

    @property
    def engine_facts(self) -> EngineFacts:
        return EngineFacts(
            name=self.engine_name,
            precision=self.engine.precision,
            device="cpu",
            threads=self.threads,
            measured=self.measured,
        )


def open_exported(path: Path, *, engine: str | None = None, threads: int = 1) -> Exported:
    """Open an exported file; `ModelError` if it cannot be used. Without an `engine`, the usual one for its
    kind computes it; `auto` measures all that are installed for two seconds.
    """
    file = read_model(path)
    _require_usable(file)
    if engine == AUTO:
        return _fastest(file, threads=threads)
    name = engine or _usual_engine(file)
    opened = open_engine(name, file, threads=threads)
    return Exported(file=file, engine=opened, engine_name=name, threads=threads)


def _usual_engine(file: ModelFile) -> str:
    """Return the engine that a kind of file is made for."""
    return next((name for name in _USUAL if ENGINES.get(name).reads & file.files.keys()), _USUAL[0])


def _require_usable(file: ModelFile) -> None:
    """Raise `ModelError` if a description cannot be that of a file that boxcrew wrote."""
    info = file.info
    is_complete = "name" in info.task and (info.predicts != "boxes" or (info.image and info.suppression))
    is_square = info.image is None or (info.image.size.limit is None and len(info.image.size.sides) == 1)
    if not (is_complete and is_square):
        raise ModelError(f"{file.path}: its description is not complete", advice="export it again")


def _fastest(file: ModelFile, *, threads: int) -> Exported:
    """Return the file in the engine that computes a photo fastest; `UsageError` if it is no detector."""
    image = file.info.image
    if image is None or file.info.proposals is not None:
        raise UsageError(
            f"engine=auto: {file.path} is not a detector of photos alone", advice="name the engine"
        )
    side = image.size.square
    inputs: Mapping[str, Array] = {
        IMAGES: np.zeros((1, 3, side, side), dtype=np.uint8),
        THRESHOLD: np.array([0.5], np.float32),
    }
    engines, seconds = {}, {}
    for name in ENGINES.names():
        try:
            engines[name] = open_engine(name, file, threads=threads)
        except (ModelError, UsageError):  # not for this file, or not installed
            continue
        seconds[name] = _seconds(engines[name], inputs, _MEASURED / len(ENGINES.names()))
    if not engines:
        raise UsageError(f"engine=auto: no engine for {file.path}", advice="pip install 'boxcrew[runtime]'")
    name = min(seconds, key=lambda each: seconds[each])
    measured = {each: 1000 * value for each, value in seconds.items()}
    return Exported(file=file, engine=engines[name], engine_name=name, threads=threads, measured=measured)


def _seconds(engine: Engine, inputs: Mapping[str, Array], budget: float) -> float:
    """Return the median time of a call."""
    engine.run(inputs)
    taken: list[float] = []
    until = time.perf_counter() + budget
    while time.perf_counter() < until:
        start = time.perf_counter()
        engine.run(inputs)
        taken.append(time.perf_counter() - start)
    return statistics.median(taken or [budget])


@dataclass(frozen=True, kw_only=True, eq=False)
class ExportedPredictor(DetectionPredictor):
    """An exported detector, with what comes before and after it."""

    exported: Exported
    least_score: float = 0.0  # candidates that have no more are not looked at, whatever the file's own rule

    def above(self, score: float) -> Self:
        """Return a predictor that finds the same objects with at least this score, for less work; of those
        below, it may find some.
        """
        # What has a lower rank suppresses nothing that is asked for.
        return replace(self, least_score=below_rank(score))

    def compute(self, inputs: Sequence[Array]) -> tuple[list[Detections], PredictSeconds]:
        rule = self._suppression()
        start = time.perf_counter()
        named = dict(zip((IMAGES, *EXTRA), map(np.ascontiguousarray, inputs), strict=False))
        outputs = self.exported.engine.run({**named, THRESHOLD: np.array([rule.score_threshold], np.float32)})
        computed = time.perf_counter()
        rule = rule.model_copy(update={"score_threshold": max(rule.score_threshold, self.least_score)})
        detections = [_detections(rule, *rows) for rows in zip(*outputs, strict=True)]
        post = time.perf_counter() - computed
        return detections, PredictSeconds(network=computed - start, post=post, num_images=len(detections))

    @classmethod
    def of(cls, exported: Exported) -> Self:
        """Return the predictor of an exported detector; `ModelError` if it is none."""
        info = exported.info
        if info.image is None:
            raise ModelError(f"{exported.file.path}: not a detector")
        propose = None
        if info.proposals is not None:
            method = SELECTIVE_SEARCH[info.proposals.method]
            propose = Proposer(method=method, count=info.proposals.count)
        return cls(pipeline=info.image.pipeline(), propose=propose, exported=exported)

    def _suppression(self) -> Suppression:
        rule = self.exported.info.suppression
        if rule is None:
            raise ModelError(f"{self.exported.file.path}: not a detector")
        return rule


def _detections(rule: Suppression, boxes: Array, scores: Array, labels: Array) -> Detections:
    """Return the detections of one image from its candidates, or from the rows that the file has chosen, of
    which those without a score are padding.
    """
    if rule.inside:
        num = int((scores > 0).sum())
        return Detections(boxes=boxes[:num], scores=scores[:num], labels=labels[:num])
    return suppress(
        boxes,
        scores,
        labels,
        score_threshold=rule.score_threshold,
        iou=rule.nms_iou,
        most=rule.max_detections,
    )
