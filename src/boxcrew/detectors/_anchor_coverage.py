"""Measure how many boxes of a data set the default boxes can match, and which settings would match more."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from boxcrew.core.errors import UsageError
from boxcrew.core.input_size import InputSize
from boxcrew.core.types import Bools, Floats, Ints, Target
from boxcrew.data.transforms.pipeline import TransformsConfig
from boxcrew.detectors._base import DetectorConfig, DetectorNet, MissReason, build_detector
from boxcrew.detectors._objects import Objects, counted_objects

_SAMPLE = 2000  # boxes that other settings are measured on
_GAIN = 0.01  # share of boxes that a setting must gain to be advised
_FEW_LOST = 0.02  # share of lost boxes up to which there is no advice
_PROBE_FACTOR = 1.5  # by which a box is grown or shrunk to see why it is lost
_MAX_PROBE_RATIO = 2.0  # of longer to shorter side, of a box made less elongated


@dataclass(frozen=True, kw_only=True, eq=False)
class AnchorCoverage:
    """The boxes that some default box overlaps by `match_iou` or more, on the input of an evaluation.

    The others ("lost") can still be found: in training each object also gets the default box that overlaps it
    most (SSD's forced matching). But that is a single box that has to be moved far, so such objects are
    learned badly: `matched_fraction` is no bound on recall. Difficult objects and crowds do not count.
    """

    matched_fraction: float  # 0..1
    num_boxes: int  # that count
    lost: Ints  # indices into the concatenated boxes of all targets, including those that do not count
    size: InputSize
    alternatives: dict[int, float]  # other input sizes -> share, the settings otherwise the same
    smallest_side: float | None
    """Side (root of the area) in pixels of the input below which most boxes are lost. None if boxes are lost
    for another reason."""
    advice: str  # one sentence, never empty


@dataclass(frozen=True, kw_only=True, eq=False)
class _Settings:
    config: DetectorConfig
    classes: tuple[str, ...]
    transforms: TransformsConfig

    def changed(self, changes: Mapping[str, object]) -> _Settings | None:
        """Return a copy with changes under their full keys; None if the detector does not accept them."""
        groups: dict[str, dict[str, object]] = {"detector": {}, "transforms": {}}
        for key, value in changes.items():
            group, _, name = key.partition(".")
            groups[group][name] = value
        try:
            return _Settings(
                config=type(self.config).of({**self.config.tree(), **groups["detector"]}),
                classes=self.classes,
                transforms=TransformsConfig.of({**self.transforms.tree(), **groups["transforms"]}),
            )
        except UsageError:
            return None

    def adapted(self, objects: Objects) -> _Settings:
        """Return a copy with `auto` adapted to these objects, as a run adapts it to its training set."""
        return replace(self, config=objects.adapt(self.config, self.transforms)[0])

    def network(self) -> DetectorNet:
        """Build the network without weights, which takes neither time nor memory."""
        with torch.device("meta"):
            return build_detector(self.config, self.classes)

    def matched_fraction(self, objects: Objects) -> float | None:
        """Return the share of the objects that a default box overlaps enough.
        None if the network cannot be built: some backbones take only certain sizes.
        """
        try:
            network = self.adapted(objects).network()
        except UsageError:
            return None
        return matched_fraction(network, objects, self.transforms)


def anchor_coverage(
    config: DetectorConfig,
    classes: tuple[str, ...],
    targets: Sequence[Target],
    sizes: Sequence[tuple[int, int]],
    *,
    transforms: TransformsConfig | None = None,
    adapted: DetectorConfig | None = None,
) -> AnchorCoverage | None:
    """Measure the coverage of the objects in `targets`, from images of these (width, height).

    Images are resized as `transforms` says (by default squashed). `adapted` is the detector with its `auto`
    settings adapted; by default they are adapted to these objects. None for a detector without default
    boxes, or if no object counts.
    """
    numbers, objects = counted_objects(Target.joined(targets), [*map(len, targets)], sizes)
    if not len(numbers):
        return None
    requested = _Settings(config=config, classes=classes, transforms=transforms or TransformsConfig())
    settings = requested.adapted(objects) if adapted is None else replace(requested, config=adapted)
    network = settings.network()
    placed, _ = objects.on_input(settings.transforms, config.size)
    overlaps = _overlaps(network, placed)
    if overlaps is None:
        return None
    lost = overlaps < settings.config.min_match_iou
    draw = np.random.default_rng(0)
    sample = objects.select(draw.permutation(len(numbers))[:_SAMPLE])
    alternatives = dict(_other_sizes(settings, sample))
    reason = _main_reason(network, placed[lost], draw) if lost.mean() > _FEW_LOST else None
    smallest = _smallest_side(placed, lost) if reason == "small" else None
    fraction = float(1 - lost.mean())
    writer = _AdviceWriter(requested, settings, fraction, len(numbers), reason=reason, side=smallest)
    return AnchorCoverage(
        matched_fraction=fraction,
        num_boxes=len(numbers),
        lost=numbers[lost],
        size=config.size,
        alternatives=alternatives,
        smallest_side=smallest,
        advice=writer.write(sample, alternatives),
    )


def matched_fraction(network: DetectorNet, objects: Objects, transforms: TransformsConfig) -> float | None:
    """Return the share of the objects that the detector can match well; None if it matches them to nothing,
    or if there are none.
    """
    overlaps = _overlaps(network, objects.on_input(transforms, network.config.size)[0])
    if overlaps is None or not len(overlaps):
        return None
    return float((overlaps >= network.config.min_match_iou).mean())


def _overlaps(network: DetectorNet, placed: Floats) -> Floats | None:
    overlaps = network.best_anchor_iou(torch.from_numpy(placed))
    if overlaps is None:
        return None
    # An evaluation ignores boxes that are less than a pixel wide or high.
    sliver = (placed[:, 2:] - placed[:, :2]).min(axis=1, initial=np.inf) < 1
    return np.where(sliver, np.float32(0), overlaps.numpy())


def _other_sizes(settings: _Settings, objects: Objects) -> Iterator[tuple[int, float]]:
    """Yield the squares from half to twice the present one, each with the share of boxes it would match."""
    if settings.config.size.limit is not None:
        return
    current = settings.config.size.sides[-1]
    for size in settings.config.sizes:
        if current / 2 <= size <= current * 2 and size != current:
            resized = settings.changed({"detector.size": size})
            fraction = None if resized is None else resized.matched_fraction(objects)
            if fraction is not None:
                yield size, fraction


def _main_reason(network: DetectorNet, lost: Floats, draw: np.random.Generator) -> MissReason:
    """Return why most of these boxes (in pixels of the input) are lost.

    Each box is compared to default boxes as it is, grown, shrunk and made less elongated; the best variant
    counts. If that is the box as it is, it lies between default boxes.
    """
    sample = lost[draw.permutation(len(lost))[:_SAMPLE]]
    center, sides = (sample[:, :2] + sample[:, 2:]) / 2, np.maximum(sample[:, 2:] - sample[:, :2], 1)
    middle = np.sqrt(sides.prod(axis=1, keepdims=True))
    shorter = np.clip(sides, middle / _MAX_PROBE_RATIO**0.5, middle * _MAX_PROBE_RATIO**0.5)
    probes: dict[MissReason, Floats] = {
        "between": sides,
        "small": sides * _PROBE_FACTOR,
        "large": sides / _PROBE_FACTOR,
        "long": shorter,
    }
    fits = []
    for probed in probes.values():
        boxes = np.concatenate([center - probed / 2, center + probed / 2], axis=1).astype(np.float32)
        overlaps = network.best_anchor_iou(torch.from_numpy(boxes))
        assert overlaps is not None
        fits.append(overlaps.numpy())
    counts = np.bincount(np.stack(fits).argmax(axis=0), minlength=len(probes))
    return tuple(probes)[int(counts.argmax())]


def _smallest_side(placed: Floats, lost: Bools) -> float | None:
    """Return the side that best separates the lost boxes (below it) from the others; None if none does."""
    sides = np.sqrt((placed[:, 2:] - placed[:, :2]).prod(axis=1))
    order = np.argsort(sides, kind="stable")
    more_lost = np.cumsum(np.where(lost[order], 1, -1))  # than not, of the boxes up to each
    best = int(more_lost.argmax())
    return float(sides[order[best]]) if more_lost[best] > 0 else None


_REASONS: Mapping[MissReason, str] = {
    "between": "most of the others lie between {learned_from}",
    "small": "most of the others are too small",
    "large": "most of the others are too large",
    "long": "most of the others are too long and narrow",
}
_LAST_RESORTS: Mapping[MissReason, str] = {
    "between": "they are learned from their single best match only",
    "small": "take photos from closer, or cut the images into tiles",
    "large": "take photos from farther away",
    "long": "label such objects in parts, where a part is enough",
}


@dataclass(frozen=True)
class _AdviceWriter:
    requested: _Settings
    settings: _Settings  # the same with `auto` adapted
    matched_fraction: float
    num_boxes: int
    reason: MissReason | None
    side: float | None

    def write(self, objects: Objects, alternatives: Mapping[int, float]) -> str:
        """Return the sentence; `objects` are those that other settings are measured on."""
        config = self.settings.config
        head = (
            f"the {config.learned_from} of {config.name} at size={config.size} can match "
            f"{_percent(self.matched_fraction)} of {self.num_boxes} boxes well "
            f"(IoU {config.min_match_iou:g} or more)"
        )
        if self.reason is None:
            return head
        reason = _REASONS[self.reason].format(learned_from=config.learned_from)
        under = None if self.side is None else f"most boxes under {self.side:.0f} px of the input are lost"
        return f"{head}; {under or reason}: {self._remedy(self.reason, objects, alternatives)}"

    def _remedy(self, reason: MissReason, objects: Objects, alternatives: Mapping[int, float]) -> str:
        """Return the cheapest settings that match about as many boxes as the best ones tried."""
        current = self.settings.matched_fraction(objects) or 0.0
        larger = {
            f"size={size}": fraction
            for size, fraction in alternatives.items()
            if size > self.settings.config.size.sides[-1]
        }
        tried = {**dict(self._try(reason, objects)), **larger}
        better = [(words, fraction) for words, fraction in tried.items() if fraction >= current + _GAIN]
        setting = self.settings.config.match_setting
        if not better and reason == "between" and setting:
            return f"a smaller detector.{setting} would match each with more than one box"
        if not better:
            return _LAST_RESORTS[reason]
        best = max(fraction for _, fraction in better)
        words, fraction = next((words, fraction) for words, fraction in better if fraction >= best - _GAIN)
        return f"{words} would match {_percent(fraction)}"

    def _try(self, reason: MissReason, objects: Objects) -> Iterator[tuple[str, float]]:
        for changes in self._changes(reason):
            changed = self.settings.changed(changes)
            fraction = None if changed is None else changed.matched_fraction(objects)
            if fraction is not None:
                requested = self.requested.config.tree()
                new = {k: v for k, v in changes.items() if requested.get(k.removeprefix("detector.")) != v}
                if new:
                    yield " ".join(f"{key}={value}" for key, value in new.items()), fraction

    def _changes(self, reason: MissReason) -> Iterator[dict[str, object]]:
        """Yield settings to try by full keys; those that make the detector slower come last."""
        if reason == "long":
            resize = self.settings.transforms.resize
            yield {"transforms.resize": "letterbox" if resize == "squash" else "squash"}
        for changes in self.requested.config.coverage_changes(reason):
            yield {f"detector.{name}": value for name, value in changes.items()}


def _percent(fraction: float) -> str:
    """Return a whole percentage, but never round up to 100 %."""
    whole = round(100 * fraction)
    return f"{whole} %" if whole < 100 or fraction == 1 else f"{int(1000 * fraction) / 10:g} %"
