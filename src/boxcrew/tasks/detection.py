"""The detection task: settings, loss, data and evaluation of detectors."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import SerializeAsAny

from boxcrew.core.config import ChosenBy
from boxcrew.core.errors import DataError, UsageError
from boxcrew.core.input_size import Extent
from boxcrew.core.stage import Stage
from boxcrew.core.types import Batch, Losses
from boxcrew.core.units import format_count
from boxcrew.data.checks.problem import Problem, first_problem
from boxcrew.data.detection.opening import OpenRequest, open_scanned
from boxcrew.data.detection.records import Records
from boxcrew.data.detection.source import ImageReader, Source
from boxcrew.data.detection.source_report import source_report
from boxcrew.data.images.cache import ImageCache
from boxcrew.data.loading.detection_samples import DetectionSamples, ImagePasses, Regions
from boxcrew.data.loading.loader import TrainLoader
from boxcrew.data.loading.shard_order import in_order, order_of
from boxcrew.data.proposals.coverage import proposal_coverage
from boxcrew.data.transforms.pipeline import TransformsConfig, eval_pipeline, train_pipeline
from boxcrew.detectors import (
    DETECTORS,
    DetectorConfig,
    DetectorNet,
    Objects,
    build_detector,
    counted_objects,
    detector_config_class,
    matched_fraction,
)
from boxcrew.detectors.ssdlite import SsdLiteConfig
from boxcrew.evaluate.advice import (
    Advice,
    detection_gap,
    doubted_objects,
    rare_class_missed,
    uncovered_objects,
    unmatched_objects,
)
from boxcrew.evaluate.detection.evaluator import DetectionEvaluation, DetectionEvaluator
from boxcrew.evaluate.detection.predictor import Predictor
from boxcrew.evaluate.detection.suspects import suspects_of
from boxcrew.evaluate.evaluation import is_measured
from boxcrew.runtime.exported import ExportedPredictor
from boxcrew.runtime.predictor import DetectionPredictor
from boxcrew.tasks.base import TASKS, Task, TaskConfig
from boxcrew.tasks.cost.flops import forward_flops
from boxcrew.tasks.data import (
    ALL_SPLITS,
    EvalOptions,
    ImageSheets,
    Loader,
    LoaderOptions,
    OpenOptions,
    ScoreTable,
    SolveOptions,
    TaskData,
    ToDevice,
)
from boxcrew.tasks.detection_inputs import largest_batch, proposer_of, stored_regions
from boxcrew.tasks.drawing import render_batch, render_predictions, render_proposals
from boxcrew.tasks.exported import ExportedNetwork
from boxcrew.tasks.facts import DataFacts

METRICS = (
    "AP", "AP50", "AP75", "APs", "APm", "APl", "AR1", "AR10", "AR100", "ARs", "ARm", "ARl",
    "AP50_voc07", "AP50_voc12", "precision", "recall", "F1",
)  # fmt: skip

NUM_TRAIN_EVALUATED = 48  # training images: enough to see overfitting


class DetectionTask(Task):
    network_name = "detector"

    def __init__(self, detector: DetectorNet) -> None:
        super().__init__()
        self.detector = detector

    def forward(self, batch: Batch, phase: str = "train") -> Losses:
        assert phase in self.phases
        return self.detector.losses(batch)


def detector_of(task: Task) -> DetectorNet:
    """Return the detector of a task, which torch must compute: that of an exported file is a `TypeError`."""
    network = task.network
    if not isinstance(network, DetectorNet):
        raise TypeError(f"the network is a {type(network).__name__}, not a DetectorNet")
    return network


class DetectionConfig(TaskConfig):
    hoisted = ("detector", "transforms")
    aliases: ClassVar[Mapping[str, str]] = {"size": "detector.size"}
    choices: ClassVar[Mapping[str, str]] = {"detector": "name"}
    default_data = "shelf"
    metrics: ClassVar[Mapping[str, bool]] = dict.fromkeys(METRICS, True)
    folder = "detect"
    predicts = "boxes"
    sample = "an image"

    name: Literal["detection"] = "detection"
    detector: Annotated[
        SerializeAsAny[DetectorConfig],
        ChosenBy(setting="name", default="ssdlite", lookup=detector_config_class, options=DETECTORS.names),
    ] = SsdLiteConfig()
    transforms: TransformsConfig = TransformsConfig()

    @property
    def title(self) -> str:
        return f"detection by {self.detector.name}"

    def stages(self) -> tuple[Stage, ...]:
        return self.detector.stages()

    @property
    def balance(self) -> str:
        return "add images of the rare ones; evaluation.metric=AP50 counts all classes alike"


def require_detection(config: TaskConfig) -> DetectionConfig:
    """Return the settings as those of detection; `UsageError` if they are of another task."""
    if not isinstance(config, DetectionConfig):
        raise UsageError(f"task={config.name}: this works for detectors only")
    return config


_SIZES: Mapping[str, tuple[str, tuple[float, float]]] = {
    "s": ("small ", (0.0, 32.0**2)),
    "m": ("medium-sized ", (32.0**2, 96.0**2)),
    "l": ("large ", (96.0**2, math.inf)),
}
"""By the last letter of a metric such as APs: the boxes that COCO counts for it, and their areas."""


@TASKS.register("detection")
@dataclass(frozen=True, kw_only=True, eq=False)
class DetectionData(TaskData[DetectionConfig, DataFacts, DetectionEvaluation]):
    """A source of images with boxes."""

    config_class = DetectionConfig
    facts_class = DataFacts

    config: DetectionConfig
    source: Source
    train: Records
    val: Records
    images: ImageReader  # the source, or a cache in front of it
    regions: Regions | None = None  # for a detector that takes them

    @classmethod
    def open(cls, config: DetectionConfig, options: OpenOptions, facts: DataFacts | None = None) -> Self:
        data = options.data
        request = OpenRequest(
            path=data.path,
            format=data.format,
            seed=options.seed,
            options=data.box_options(),
            disk=data.disk,
        )
        source = open_scanned(request, workers=options.workers, progress=options.progress)
        source = in_order(source, data)
        if facts is not None and source.classes != facts.classes:
            source = source.with_classes(facts.classes)
        if facts is None or data.val != ALL_SPLITS:
            opened = cls.of(config, source, val=data.val)
        else:
            opened = replace(cls.of(config, source, val="train"), val=source.records)
        records = Records.joined([opened.train, opened.val])
        return replace(opened, regions=stored_regions(config.detector, source, records, options))

    @classmethod
    def of(cls, config: DetectionConfig, source: Source, *, val: str = "val") -> Self:
        train = source.split("train")
        return cls(config=config, source=source, train=train, val=source.split(val), images=source)

    @classmethod
    def build(cls, config: DetectionConfig, facts: DataFacts) -> DetectionTask:
        return DetectionTask(build_detector(config.detector, facts.classes))

    @classmethod
    def predictor(cls, config: DetectionConfig, task: Task, move: ToDevice) -> DetectionPredictor:
        if isinstance(task.network, ExportedNetwork):
            return ExportedPredictor.of(task.network.exported)
        return cls.torch_predictor(config, task, move)

    @classmethod
    def torch_predictor(cls, config: DetectionConfig, task: Task, move: ToDevice) -> Predictor:
        """Return the predictor of a network that torch computes."""
        pipeline = eval_pipeline(config.transforms, config.detector.size)
        propose = proposer_of(config.detector)
        return Predictor(detector=detector_of(task), pipeline=pipeline, move=move, propose=propose)

    @property
    def facts(self) -> DataFacts:
        return DataFacts(classes=self.source.classes)

    @property
    def problems(self) -> tuple[Problem, ...]:
        return self.source.problems

    @property
    def num_train(self) -> int:
        return len(self.train)

    def require_learnable(self) -> None:
        if not self.train.counts.any():
            advice = first_problem(self.problems) or "annotate some images first"
            raise DataError(f"{self.source.place}: no training image has a box", advice=advice)

    def adapted(self) -> tuple[Self, str]:
        """Return this with default boxes adapted to the training objects, and a sentence about them, or
        about the regions that cover these objects.
        """
        if self.regions is not None:
            return self, proposal_coverage(self.train, self.regions).sentence()
        objects = self._train_objects()
        detector, sentence = objects.adapt(self.config.detector, self.config.transforms)
        return replace(self, config=self.config.model_copy(update={"detector": detector})), sentence

    def train_records(self) -> Records:
        return self.train

    def _train_objects(self) -> Objects:
        return counted_objects(self.train.objects(), self.train.counts, self.train.sizes)[1]

    def class_counts(self) -> Mapping[str, int]:
        counts = self.train.label_counts(len(self.source.classes)).tolist()
        return dict(zip(self.source.classes, counts, strict=True))

    def headline(self) -> str:
        splits = self.source.splits
        counts = ", ".join(f"{name} {len(records)}" for name, records in splits.items())
        boxes = self.source.records.counts.sum()
        return f"({self.source.format}): {counts} images, {boxes} boxes, {len(self.source.classes)} classes"

    def report(self) -> dict[str, Any]:
        return source_report(self.source)

    def digest(self) -> str:
        digest, content = self.train.digest, self.source.content
        return f"{digest}-{content}" if content else digest

    def describe(self, task: Task) -> str:
        detector, size = task.network, self.config.detector.size.describe()
        parameters = format_count(sum(p.numel() for p in detector.parameters()))
        flops = forward_flops(detector, *task.network_inputs(self.largest_batch(1))) / 1e9
        name = self.config.detector.name
        return f"detector: {name} at {size}: {parameters} parameters, {flops:.1f} GFLOPs an image"

    def largest_batch(self, num_samples: int) -> Batch:
        num_regions = None
        if self.regions:
            num_regions = self._num_mixed * max(len(self.regions(record)) for record in self.train)
        canvas, most = self._largest_canvas(), self._most_objects()
        return largest_batch(num_samples, canvas=canvas, num_objects=most, num_regions=num_regions)

    @property
    def _num_mixed(self) -> int:
        """The most images that one training sample is made of."""
        mixing = self.config.transforms.mixing
        return 1 if mixing is None else mixing.num_images

    def _most_objects(self) -> int:
        return self._num_mixed * int(self.train.counts.max())

    def _largest_canvas(self) -> Extent:
        """Return the largest (width, height) that the input of a step can have."""
        return self.config.detector.size.canvas(self.train.extents())

    def cost_key(self) -> Mapping[str, Any]:
        return {"most_objects": self._most_objects(), "largest_canvas": self._largest_canvas()}

    def with_cache(self, num_bytes: int) -> Self:
        if not num_bytes:
            return self
        return replace(
            self, images=ImageCache(self.source, Records.joined([self.train, self.val]), budget=num_bytes)
        )

    @property
    def cached_bytes(self) -> int | None:
        return self.images.used_bytes if isinstance(self.images, ImageCache) else None

    @property
    def sample_bytes(self) -> int:
        return 3 * int(self.train.sizes.prod(axis=1).sum()) // len(self.train)

    @property
    def max_sample_bytes(self) -> int:
        return 3 * int(self.train.sizes.prod(axis=1).max()) * self._num_mixed

    def loader(self, options: LoaderOptions) -> Loader:
        size, transforms = self.config.detector.size, self.config.transforms
        samples = DetectionSamples(
            self.images,
            self.train,
            train_pipeline(transforms, size.largest if options.largest else size),
            self.regions,
            mixing=transforms.mixing,
            mixed_steps=options.mixed_steps,
        )
        return TrainLoader(
            samples,
            order_of(self.source, self.train, options.seed),
            batch=options.batch,
            workers=options.workers,
            positions=options.positions,
            share_sizes=options.share_sizes,
        )

    @property
    def mixed_fraction(self) -> float:
        transforms = self.config.transforms
        return 1.0 if transforms.mixing is None else transforms.mix_until

    def unmeasured(self, metric: str) -> str | None:
        kind, (low, high) = _SIZES.get(metric[2:], ("", (0.0, math.inf)))
        objects = self.val.objects()
        boxes = objects.boxes[~objects.crowd]
        areas = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
        if ((areas >= low) & (areas <= high)).any():
            return None
        return f"the validation split has no {kind}boxes"

    def evaluate(self, task: Task, move: ToDevice, options: EvalOptions) -> DetectionEvaluation:
        evaluator = DetectionEvaluator(
            source=self.source,
            images=self.images,
            records=self.val,
            batch=options.batch,
            workers=options.workers,
            regions=self.regions,
        )
        return evaluator(self.predictor(self.config, task, move), progress=options.progress)

    def require_solvable(self, folder: Path) -> None:
        self.config.detector.require_solvable(len(self.train), folder)

    def solve(self, task: Task, stage: str, options: SolveOptions) -> tuple[str, ...]:
        """Let the detector solve a stage from the training images, seen as in an evaluation."""
        predictor = self.torch_predictor(self.config, task, lambda inputs: inputs)
        samples = DetectionSamples(self.images, self.train, predictor.pipeline, self.regions)
        passes = ImagePasses(
            samples=samples, batch=options.batch, workers=options.workers, progress=options.progress
        )
        predictor.detector.solve(stage, passes, options.workspace)
        return passes.skipped

    def advice(self, task: Task, *, from_scratch: bool) -> tuple[Advice, ...]:
        advice = super().advice(task, from_scratch=from_scratch)
        if self.regions is not None:
            covered = proposal_coverage(self.train, self.regions).recall50
            return *advice, *uncovered_objects(covered)
        detector, objects = detector_of(task), self._train_objects()
        config = detector.config
        if (matched := matched_fraction(detector, objects, self.config.transforms)) is None:
            return advice
        name = f"{config.name} at size={config.size}"
        return *advice, *unmatched_objects(matched, learned_from=config.learned_from, detector=name)

    def advice_after(
        self, task: Task, move: ToDevice, options: EvalOptions, last: DetectionEvaluation
    ) -> tuple[Advice, ...]:
        """Check for overfitting, on some training images, missed rare classes, and wrong labels."""
        if not is_measured(last.numbers["AP50"]):
            return ()
        some = replace(self, val=self.train[:: -(-len(self.train) // NUM_TRAIN_EVALUATED)])
        trained = some.evaluate(task, move, options)
        rates = [score.rates for score in last.report.classes]
        rare = rare_class_missed(list(self.class_counts().values()), rates, remedy=self.config.balance)
        num_objects = sum(rate.num_examples for rate in rates)
        suspects = suspects_of({"val": last.images}, self.source.classes, limit=num_objects)
        gap = detection_gap(learned=trained.numbers["AP50"], new=last.numbers["AP50"])
        return *gap, *rare, *doubted_objects(suspects, num_objects)

    def render_batch(self, batch: Batch, num: int) -> ImageSheets:
        return render_batch(self.source, self.train, batch, num)

    def render_predictions(self, evaluation: DetectionEvaluation, num: int) -> ImageSheets:
        return render_predictions(self.source, self.val, evaluation.images[:num])

    def render_inside(self, task: Task, batch: Batch, num: int) -> ImageSheets:
        return render_proposals(detector_of(task), batch, num)

    @classmethod
    def scores(cls, report: Mapping[str, Any]) -> ScoreTable:
        classes = report["classes"]
        rows = [_row("all", report["numbers"], sum(scores["num_objects"] for scores in classes))]
        rows += [_row(scores["name"], scores, scores["num_objects"]) for scores in classes]
        return ScoreTable(columns=("class", "objects", "precision", "recall", "AP50", "AP"), rows=tuple(rows))


def _row(name: str, numbers: Mapping[str, Any], num_objects: int) -> tuple[str, ...]:
    cells = (numbers[key] for key in ("precision", "recall", "AP50", "AP"))
    return (name, str(num_objects), *("-" if cell is None else f"{cell:.3f}" for cell in cells))
