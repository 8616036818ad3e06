"""The diagnosis of a data set: checked, counted, and compared with a detector and, if given, a run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from boxcrew.core.errors import DataError
from boxcrew.core.types import Target
from boxcrew.data.checks.near_duplicates import NearDuplicate, near_duplicates
from boxcrew.data.checks.problem import first_problem
from boxcrew.data.checks.scan import scan
from boxcrew.data.detection.records import Record, Records
from boxcrew.data.detection.source import Source, open_source
from boxcrew.data.detection.statistics import DatasetAdvice, SplitStatistics, advise, split_statistics
from boxcrew.data.proposals.coverage import ProposalCoverage, proposal_coverage
from boxcrew.data.transforms.pipeline import TransformsConfig
from boxcrew.detectors import AnchorCoverage, DetectorConfig, anchor_coverage, counted_objects
from boxcrew.evaluate.detection.suspects import Suspect
from boxcrew.hardware.probe import usable_cores
from boxcrew.report.doctor.suspects import find_suspects
from boxcrew.tasks.data import OpenOptions
from boxcrew.tasks.detection import DetectionConfig, require_detection
from boxcrew.tasks.detection_inputs import stored_regions
from boxcrew.train.config import RunConfig
from boxcrew.train.output.screen import Screen
from boxcrew.train.run.data import print_problems

_MAX_SIZES = 20  # sizes of images that the JSON lists, the commonest first
_PERCENTILES = {"min": 0, "p5": 5, "p25": 25, "p50": 50, "p75": 75, "p95": 95, "max": 100}


@dataclass(frozen=True, kw_only=True, eq=False)
class Diagnosis:
    """All findings about a data set."""

    path: str  # as it was given
    source: Source  # scanned: without what cannot be used, which is listed among its problems
    statistics: Mapping[str, SplitStatistics]  # of each split
    advice: tuple[DatasetAdvice, ...]
    near_duplicates: tuple[NearDuplicate, ...]
    detector: DetectorConfig
    transforms: TransformsConfig  # how images become the detector's input
    anchor_coverage: AnchorCoverage | None  # None if the detector has no default boxes
    proposal_coverage: ProposalCoverage | None  # None if the detector takes no proposals
    run: Path | None
    suspects: tuple[Suspect, ...] | None  # None without a run

    @property
    def records(self) -> tuple[Record, ...]:
        """The records of all splits, in the order in which `anchor_coverage` counts boxes."""
        return tuple(chain.from_iterable(self.source.splits.values()))

    @property
    def num_images(self) -> int:
        return sum(split.num_images for split in self.statistics.values())

    @property
    def num_boxes(self) -> int:
        return sum(split.num_boxes for split in self.statistics.values())

    def to_json(self) -> dict[str, Any]:
        """Return the content of `doctor.json`."""
        return {
            "data": self.path,
            "format": self.source.format,
            "classes": list(self.source.classes),
            "splits": {name: _split_json(split) for name, split in self.statistics.items()},
            "problems": [problem.to_json() for problem in self.source.problems],
            "advice": [advice.to_json() for advice in self.advice],
            "detector": self.detector.tree(),
            "anchor_coverage": _coverage_json(self.anchor_coverage),
            "proposal_coverage": None if self.proposal_coverage is None else asdict(self.proposal_coverage),
            "near_duplicates": [pair.to_json() for pair in self.near_duplicates],
            "run": str(self.run) if self.run else None,
            "suspects": None if self.suspects is None else [suspect.to_json() for suspect in self.suspects],
        }


def set_name(path: str) -> str:
    """Return a name for the data set at `path`; links are not followed."""
    folder = Path(path)
    if folder.name in {"", ".."}:
        folder = folder.resolve()
    return folder.stem if folder.is_file() else folder.name


def with_plural(number: int, singular: str, plural: str) -> str:
    """Return a number with the words that fit it, such as `1 image is` or `2 images are`."""
    return f"{number:,} {singular if number == 1 else plural}"


def diagnose(config: RunConfig, screen: Screen, *, run: Path | None = None) -> Diagnosis:
    """Examine the data set of `config` for its detector; a `run` adds labels that it contradicts."""
    workers = max(1, int(usable_cores()))
    data = config.data
    source = open_source(data.path, format=data.format, seed=config.seed, options=data.box_options())
    with screen.progress("checking the images") as progress:
        source = scan(source, workers=workers, progress=progress)
    if not source.records.counts.any():
        advice = first_problem(source.problems) or "annotate some images first"
        raise DataError(f"{data.path}: no image has a box", advice=advice)
    task = require_detection(config.task)
    statistics = {name: split_statistics(split, source.classes) for name, split in source.splits.items()}
    with screen.progress("comparing the splits") as progress:
        duplicates = near_duplicates(source, workers=workers, progress=progress)
    return Diagnosis(
        path=data.path,
        source=source,
        statistics=statistics,
        advice=advise(statistics, source.classes, keeps_shape=task.transforms.resize == "letterbox"),
        near_duplicates=duplicates,
        detector=task.detector,
        transforms=task.transforms,
        anchor_coverage=_measure_coverage(task, source),
        proposal_coverage=_measure_proposals(config, source, screen, workers=workers),
        run=run,
        suspects=find_suspects(run, source, screen, device=config.device) if run else None,
    )


def _measure_coverage(config: DetectionConfig, source: Source) -> AnchorCoverage | None:
    """Measure coverage over all splits, with `auto` adapted to the training split as a run does it."""
    train = Records.of(source.splits.get("train", ()))
    _, objects = counted_objects(train.objects(), train.counts, train.sizes)
    adapted, _ = objects.adapt(config.detector, config.transforms)
    targets, sizes = _targets([*chain.from_iterable(source.splits.values())])
    return anchor_coverage(
        config.detector, source.classes, targets, sizes, transforms=config.transforms, adapted=adapted
    )


def _measure_proposals(
    config: RunConfig, source: Source, screen: Screen, *, workers: int
) -> ProposalCoverage | None:
    """Measure how many objects of all splits the proposals cover, for a detector that takes them."""
    records = [*chain.from_iterable(source.splits.values())]
    with screen.progress("proposing regions") as progress:
        options = OpenOptions(data=config.data, seed=config.seed, workers=workers, progress=progress)
        regions = stored_regions(require_detection(config.task).detector, source, records, options)
    return None if regions is None else proposal_coverage(records, regions)


def _targets(records: Sequence[Record]) -> tuple[list[Target], list[tuple[int, int]]]:
    return [record.target for record in records], [record.extent for record in records]


def print_diagnosis(diagnosis: Diagnosis, screen: Screen) -> None:
    """Print the findings in short."""
    splits = ", ".join(f"{name} {split.num_images}" for name, split in diagnosis.statistics.items())
    screen.info(
        f"data: {diagnosis.path} ({diagnosis.source.format}): {splits} images, "
        f"{diagnosis.num_boxes} boxes, {with_plural(len(diagnosis.source.classes), 'class', 'classes')}"
    )
    print_problems(diagnosis.source.problems, screen, rest="doctor.json names all")
    for advice in diagnosis.advice:
        screen.info(f"advice: {advice.text}")
    if diagnosis.anchor_coverage is not None:
        screen.info(f"coverage: {diagnosis.anchor_coverage.advice}")
    if diagnosis.proposal_coverage is not None:
        screen.info(diagnosis.proposal_coverage.sentence())
        if diagnosis.proposal_coverage.is_poor:
            screen.warn(diagnosis.proposal_coverage.advice())
    if pairs := len(diagnosis.near_duplicates):
        screen.warn(
            f"{with_plural(pairs, 'image looks', 'images look')} nearly the same as one of another split"
        )
    else:
        screen.info("near-duplicates: none between the splits")
    if diagnosis.suspects is not None:
        kinds = Counter(suspect.kind for suspect in diagnosis.suspects)
        counts = ", ".join(f"{count} {kind}" for kind, count in kinds.items()) or "none"
        screen.info(f"doubtful labels, by the detector of {diagnosis.run}: {counts}")


def _split_json(split: SplitStatistics) -> dict[str, Any]:
    sides = np.sqrt(np.prod(split.box_sizes.astype(np.float64), axis=1))
    return {
        "images": split.num_images,
        "boxes": split.num_boxes,
        "images_without_boxes": split.num_empty_images,
        "difficult": split.difficult,
        "crowd": split.crowd,
        "boxes_by_class": dict(split.boxes_by_class),
        "images_by_class": dict(split.images_by_class),
        "objects_per_image": _percentiles(split.objects_per_image),
        "box_side": _percentiles(sides.tolist()),
        "image_sizes": [
            {"width": width, "height": height, "images": count}
            for (width, height), count in Counter(split.image_sizes).most_common(_MAX_SIZES)
        ],
    }


def _percentiles(values: Sequence[float]) -> dict[str, float] | None:
    return {n: round(float(np.percentile(values, q)), 2) for n, q in _PERCENTILES.items()} if values else None


def _coverage_json(coverage: AnchorCoverage | None) -> dict[str, Any] | None:
    if coverage is None:
        return None
    return {
        "matched_fraction": coverage.matched_fraction,
        "boxes": coverage.num_boxes,
        "lost": len(coverage.lost),
        "size": coverage.size.plain(),
        "alternatives": {str(size): share for size, share in coverage.alternatives.items()},
        "smallest_side": coverage.smallest_side,
        "advice": coverage.advice,
    }
