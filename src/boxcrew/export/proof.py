"""Proves on real samples that a file gives what the network of torch gives, from the photo to the boxes."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from torch import Tensor

from boxcrew.core.errors import DataError, ExportError, first_line
from boxcrew.core.types import Detections
from boxcrew.data.detection.records import Record
from boxcrew.data.images.reading import read_file
from boxcrew.data.images.source_image import DecodedImage, EncodedImage, SourceImage
from boxcrew.data.loading.workers import Workers
from boxcrew.evaluate.classification import ClassificationEvaluation
from boxcrew.evaluate.detection.evaluator import DetectionEvaluation
from boxcrew.evaluate.detection.metrics import evaluate_detections
from boxcrew.evaluate.detection.types import EvaluatedImage
from boxcrew.evaluate.evaluation import Evaluation, is_measured
from boxcrew.export.graphs import ExportGraph
from boxcrew.export.parity import Difference, Parity, compare_detections, is_within, max_undecided
from boxcrew.runtime.exported import Exported, ExportedPredictor
from boxcrew.runtime.model_info import Suppression
from boxcrew.runtime.predictor import DetectionPredictor, PreparedImage
from boxcrew.tasks.base import TASKS, Task
from boxcrew.tasks.data import EvalOptions, TaskData
from boxcrew.tasks.detection import DetectionData
from boxcrew.train.run.loading import Loaded

Progress = Callable[[int], None]

_NUDGES, _NUDGE = 15, 1e-6  # copies with other last digits, and the deviation of a weight as a share of it


@dataclass(frozen=True, kw_only=True)
class Proof:
    """The result of trying a file on real samples."""

    parity: Parity
    noun: str  # of a sample
    scores: Mapping[str, float]  # what the file reaches in an evaluation

    def sentence(self) -> str:
        return self.parity.sentence(self.noun)


def evaluate_torch(loaded: Loaded, data: TaskData, progress: Progress) -> Evaluation:
    """Evaluate the network of torch, as `boxcrew val` does."""
    options = EvalOptions(batch=8, workers=Workers(), progress=progress)
    with loaded.deployment:
        evaluation: Evaluation = data.evaluate(loaded.task, loaded.deployment.to_device, options)
    return evaluation


def prove(
    exported: Exported, loaded: Loaded, data: TaskData, evaluation: Evaluation, progress: Progress
) -> Proof:
    """Compare an exported network with the evaluation of that of torch, sample by sample."""
    if isinstance(evaluation, DetectionEvaluation) and isinstance(data, DetectionData):
        return _prove_detector(exported, OtherRounding(loaded), data, evaluation, progress)
    info = exported.info
    kind = TASKS.get(info.task["name"])
    config, facts = kind.config_class.of(info.task), kind.facts_class.from_json(info.facts)
    task = kind.build_exported(config, facts, exported)
    measured = data.evaluate(
        task, lambda inputs: inputs, EvalOptions(batch=8, workers=Workers(), progress=progress)
    )
    if isinstance(evaluation, ClassificationEvaluation) and isinstance(measured, ClassificationEvaluation):
        gaps = np.abs(evaluation.probabilities - measured.probabilities).max(axis=1)
        pairs = [(str(i), Difference(score=float(gap))) for i, gap in enumerate(gaps)]
        return Proof(parity=Parity.of(pairs), noun="sample", scores=_scores(measured))
    gaps = {name: abs(value - measured.numbers[name]) for name, value in evaluation.numbers.items()}
    scale = {name: max(1.0, abs(value)) for name, value in evaluation.numbers.items()}
    pairs = [(name, Difference(score=float(gap / scale[name]))) for name, gap in gaps.items()]
    return Proof(parity=Parity.of(pairs), noun="metric", scores=_scores(measured))


def _prove_detector(
    exported: Exported,
    other: OtherRounding,
    data: DetectionData,
    evaluation: DetectionEvaluation,
    progress: Progress,
) -> Proof:
    rule, records = exported.info.suppression, {record.key: record for record in data.val}
    assert rule is not None
    predictor = ExportedPredictor.of(exported)
    pairs: list[tuple[str, Difference]] = []
    images: list[EvaluatedImage] = []
    num_undecided = 0
    # Files with integers differ everywhere and are judged by AP; of others no more can be excused than this.
    num_doubts = 0 if exported.info.precision == "int8" else 1 + max_undecided(len(evaluation.images))
    for image in evaluation.images:
        record = records[image.key]
        photo = source_image(data, record)
        own = _detect(predictor, photo)
        difference = _compare(rule, own, image.detections)
        if not difference.is_allowed and num_doubts:
            num_doubts -= 1
            if other.is_undecided(photo, own, image.detections, rule):
                num_undecided += 1
                difference = Difference()
        pairs.append((image.key, difference))
        images.append(
            EvaluatedImage(
                key=image.key, width=image.width, height=image.height, target=image.target, detections=own
            )
        )
        progress(len(images))
    report = evaluate_detections(images, data.source.classes)
    scores = {name: value for name, value in report.numbers.items() if is_measured(value)}
    parity = Parity.of(pairs, num_undecided=num_undecided)
    return Proof(parity=parity, noun="photo", scores=scores)


class OtherRounding:
    """Computes a detector of torch in other ways that are as right: in double precision, and with weights
    and pixels that differ in the last digits of single precision.

    Of two boxes of which one suppresses the other, rounding decides which is kept where their ranks
    (`nets.static.score_ranks`), or their overlap and its limit, agree to the last digits. There is no right
    list on such a photo, and a file cannot be held to one.
    """

    def __init__(self, loaded: Loaded) -> None:
        self._loaded = loaded
        self._made: list[DetectionPredictor] = []

    def is_undecided(self, photo: SourceImage, own: Detections, usual: Detections, rule: Suppression) -> bool:
        """Return whether rounding explains all by which a file's list differs from the usual one of torch:
        what the file alone finds, torch finds too if it rounds in another way, and what it alone leaves out,
        torch leaves out too.
        """
        lists = [usual]
        for predictor in self._predictors():
            lists.append(_detect(predictor, photo))
            if is_within(own, lists, least=rule.score_threshold, most=rule.max_detections):
                return True
        return False

    def _predictors(self) -> Iterator[DetectionPredictor]:
        """Yield them one after the other; each is made once."""
        for index in range(1 + _NUDGES):
            if index == len(self._made):
                self._made.append(self._make(index))
            yield self._made[index]

    def _make(self, index: int) -> DetectionPredictor:
        loaded = self._loaded
        kind = TASKS.get(loaded.config.name)
        if index == 0:
            return kind.predictor(loaded.config, copy.deepcopy(loaded.task).cpu().double(), _to_double)
        move = partial(_nudged_pixels, seed=index)
        return kind.predictor(loaded.config, _nudged(loaded.task, index), move)


def _to_double(inputs: Tensor) -> Tensor:
    return inputs.double() if inputs.is_floating_point() else inputs


def _nudged_pixels(inputs: Tensor, *, seed: int) -> Tensor:
    """Return images with other last digits: where one is flat, neighbors would stay exactly equal."""
    if inputs.dtype != torch.uint8:
        return inputs
    draw = torch.Generator().manual_seed(seed)
    return inputs * (1 + _NUDGE * torch.randn(inputs.shape, generator=draw))


def _nudged(task: Task, seed: int) -> Task:
    """Return a copy whose weights differ in the last digits."""
    task, draw = copy.deepcopy(task).cpu(), torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in task.parameters():
            parameter.mul_(1 + _NUDGE * torch.randn(parameter.shape, generator=draw))
    return task


def _compare(rule: Suppression, own: Detections, other: Detections) -> Difference:
    return compare_detections(own, other, least=rule.score_threshold, most=rule.max_detections)


def source_image(data: DetectionData, record: Record) -> SourceImage:
    """Return the image of a record as a user has it: a file, where there is one."""
    if record.path is None:
        return DecodedImage(data.source.read(record), name=record.key)
    return EncodedImage(read_file(record.path), name=str(record.path))


def _detect(predictor: DetectionPredictor, image: SourceImage) -> Detections:
    ((detections,), _) = predictor([predictor.prepare(image)])
    return detections


def _scores(evaluation: Evaluation) -> dict[str, float]:
    return {name: value for name, value in evaluation.numbers.items() if is_measured(value)}


def training_inputs(
    predictor: DetectionPredictor, data: DetectionData, *, most: int
) -> Iterator[PreparedImage]:
    """Yield some training photos as a detector sees them, evenly spread over the set; those that cannot be
    read are left out.
    """
    for record in data.train[:: max(1, len(data.train) // most)][:most]:
        try:
            yield predictor.prepare(source_image(data, record))
        except DataError:
            continue


def require_any_length(graph: ExportGraph, exported: Exported) -> None:
    """Run a file with inputs of other lengths than those of tracing; `ExportError` if it fails or gives
    outputs of other shapes than the network of torch: exporters fix axes that were meant to be of any length.
    """
    for inputs in graph.other_inputs():
        _require_shapes(graph, exported, inputs)


def _require_shapes(graph: ExportGraph, exported: Exported, inputs: Sequence[Tensor]) -> None:
    with torch.inference_mode():
        wanted = graph.module(*inputs)
    wanted = wanted if isinstance(wanted, tuple) else (wanted,)
    arrays = {name: values.numpy() for name, values in zip(graph.inputs, inputs, strict=True)}
    try:
        answers = exported.engine.run(arrays)
    except Exception as error:  # noqa: BLE001 - each engine has errors of its own
        reason = first_line(error)
        raise ExportError(f"the file does not run with inputs of another length: {reason}") from None
    for name, own, other in zip(graph.outputs, answers, wanted, strict=True):
        if own.shape != tuple(other.shape):
            raise ExportError(
                f"the file gives {name} of shape {own.shape} where torch gives {tuple(other.shape)}"
            )
