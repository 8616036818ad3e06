"""A data set examined: opened, scanned, counted, held against a detector and, if there is one, a run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from boxcrew.core.errors import DataError
from boxcrew.core.types import Target
from boxcrew.data.checks.near_duplicates import NearDuplicate, near_duplicates
from boxcrew.data.checks.scan import scan
from boxcrew.data.detection.source import Record, Source, open_source
from boxcrew.data.detection.statistics import Advice, SplitStatistics, advise, split_statistics
from boxcrew.data.transforms.pipeline import TransformsConfig
from boxcrew.detectors import AnchorCoverage, DetectorConfig, anchor_coverage, counted_objects
from boxcrew.evaluate.detection.suspects import Suspect
from boxcrew.hardware.probe import usable_cores
from boxcrew.report.doctor.suspects import find_suspects
from boxcrew.tasks.detection import DetectionConfig, require_detection
from boxcrew.train.config import RunConfig
from boxcrew.train.output.screen import Screen
from boxcrew.train.run.data import say_problems

_SAID_SIZES = 20  # sizes of images that the JSON names, the commonest first
_QUANTILES = (5, 25, 50, 75, 95)  # percent


@dataclass(frozen=True, kw_only=True, eq=False)
class Diagnosis:
    """All that is known about a set."""

    path: str  # as it was given
    source: Source  # scanned: what cannot be used is left out, and among its problems
    statistics: Mapping[str, SplitStatistics]  # of each split
    advice: tuple[Advice, ...]
    near_duplicates: tuple[NearDuplicate, ...]
    detector: DetectorConfig
    transforms: TransformsConfig  # how photos become the detector's input
    anchor_coverage: AnchorCoverage | None  # None where the detector has no default boxes
    run: Path | None
    suspects: tuple[Suspect, ...] | None  # None where there is no run to ask

    @property
    def records(self) -> tuple[Record, ...]:
        """Of all splits, in the order that `anchor_coverage` counts boxes in."""
        return tuple(record for records in self.source.splits.values() for record in records)

    @property
    def num_images(self) -> int:
        return sum(split.num_images for split in self.statistics.values())

    @property
    def num_boxes(self) -> int:
        return sum(split.num_boxes for split in self.statistics.values())

    def to_json(self) -> dict[str, Any]:
        """What `doctor.json` holds."""
        return {
            "data": self.path,
            "format": self.source.format,
            "classes": list(self.source.classes),
            "splits": {name: _split_json(split) for name, split in self.statistics.items()},
            "problems": [problem.to_json() for problem in self.source.problems],
            "advice": [one.to_json() for one in self.advice],
            "detector": self.detector.tree(),
            "reach": _reach_json(self.anchor_coverage),
            "near_duplicates": [one.to_json() for one in self.near_duplicates],
            "run": str(self.run) if self.run else None,
            "suspects": None if self.suspects is None else [one.to_json() for one in self.suspects],
        }


def set_name(path: str) -> str:
    """What to call the set at `path`, for people and folders: its own name, whatever a link leads to."""
    place = Path(path)
    if place.name in {"", ".."}:
        place = place.resolve()
    return place.stem if place.is_file() else place.name


def counted(number: int, one: str, many: str) -> str:
    return f"{number:,} {one if number == 1 else many}"


def diagnose(config: RunConfig, screen: Screen, *, run: Path | None = None) -> Diagnosis:
    """Looks at the set that `config` names, with its detector in mind; with a `run`, also at what its best
    weights make of the labels.
    """
    workers = max(1, int(usable_cores()))
    source = open_source(config.data.path, format=config.data.format, seed=config.seed)
    with screen.progress("looking at the images") as progress:
        source = scan(source, workers=workers, progress=progress)
    records = [record for records in source.splits.values() for record in records]
    if not any(len(record.target) for record in records):
        raise DataError(f"{config.data.path}: no image has a box", advice="annotate some images first")
    task = require_detection(config.task)
    statistics = {name: split_statistics(part, source.classes) for name, part in source.splits.items()}
    with screen.progress("comparing the splits") as progress:
        alike = near_duplicates(source, workers=workers, progress=progress)
    return Diagnosis(
        path=config.data.path,
        source=source,
        statistics=statistics,
        advice=advise(statistics, source.classes, keeps_shape=task.transforms.resize == "letterbox"),
        near_duplicates=alike,
        detector=task.detector,
        transforms=task.transforms,
        anchor_coverage=_reach(task, source),
        run=run,
        suspects=find_suspects(run, source, screen, device=config.device) if run else None,
    )


def _reach(config: DetectionConfig, source: Source) -> AnchorCoverage | None:
    """Over all splits, of the detector that a run would build: what is `auto` is fitted to `train`."""
    learnt = source.splits.get("train", ())
    _, objects = counted_objects(*_targets(learnt))
    settled, _ = objects.fit(config.detector, config.transforms)
    every = [record for records in source.splits.values() for record in records]
    targets, sizes = _targets(every)
    return anchor_coverage(
        config.detector, source.classes, targets, sizes, transforms=config.transforms, settled=settled
    )


def _targets(records: Sequence[Record]) -> tuple[list[Target], list[tuple[int, int]]]:
    return [record.target for record in records], [(record.width, record.height) for record in records]


def say_examination(diagnosis: Diagnosis, screen: Screen) -> None:
    """The short form, for a terminal."""
    splits = ", ".join(f"{name} {split.num_images}" for name, split in diagnosis.statistics.items())
    screen.say(
        f"data: {diagnosis.path} ({diagnosis.source.format}): {splits} images, "
        f"{diagnosis.num_boxes} boxes, {counted(len(diagnosis.source.classes), 'class', 'classes')}"
    )
    say_problems(diagnosis.source.problems, screen, rest="doctor.json names all")
    for one in diagnosis.advice:
        screen.say(f"advice: {one.text}")
    if diagnosis.anchor_coverage is not None:
        screen.say(f"reach: {diagnosis.anchor_coverage.advice}")
    pairs = len(diagnosis.near_duplicates)
    if pairs:
        screen.warn(f"{counted(pairs, 'image looks', 'images look')} nearly the same as one of another split")
    else:
        screen.say("near-duplicates: none between the splits")
    if diagnosis.suspects is not None:
        kinds = Counter(one.kind for one in diagnosis.suspects)
        said = ", ".join(f"{count} {kind}" for kind, count in kinds.items()) or "none"
        screen.say(f"doubtful labels, by the detector of {diagnosis.run}: {said}")


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
        "objects_per_image": _spread(split.objects_per_image),
        "box_side": _spread(sides.tolist()),
        "image_sizes": [
            {"width": width, "height": height, "images": count}
            for (width, height), count in Counter(split.image_sizes).most_common(_SAID_SIZES)
        ],
    }


def _spread(values: Iterable[float]) -> dict[str, float] | None:
    """Smallest, largest, and some in between; None of nothing."""
    array = np.array(list(values), dtype=np.float64)
    if not len(array):
        return None
    inner = {f"p{q}": round(float(np.percentile(array, q)), 2) for q in _QUANTILES}
    return {"min": round(float(array.min()), 2), **inner, "max": round(float(array.max()), 2)}


def _reach_json(found: AnchorCoverage | None) -> dict[str, Any] | None:
    if found is None:
        return None
    return {
        "share": found.share,
        "boxes": found.num_boxes,
        "lost": len(found.lost),
        "size": found.size,
        "alternatives": {str(size): share for size, share in found.alternatives.items()},
        "smallest_side": found.smallest_side,
        "advice": found.advice,
    }
