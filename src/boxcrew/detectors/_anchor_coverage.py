"""How many boxes of a data set a detector's starting boxes can match, and what would let it match more."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import torch

from boxcrew.core.errors import UsageError
from boxcrew.core.types import Bools, Floats, Ints, Target
from boxcrew.data.transforms.pipeline import TransformsConfig
from boxcrew.detectors._base import DetectorConfig, DetectorNet, build_detector
from boxcrew.detectors._multibox import MultiBoxConfig
from boxcrew.detectors._objects import Objects, counted_objects

Cause = Literal["between", "small", "large", "long"]

_SIZES = (128, 192, 256, 320, 384, 512, 640, 768, 1024, 1280)  # that are tried, from half to twice the own
_PAPER_SIZES = (300, 512)  # for a detector that does not take just any
_SAMPLE = 2000  # boxes that other settings are tried on
FINEST = 8  # stride of the first map that is worth trying
_GAIN = 0.01  # a setting that reaches less more is not worth a word
_FEW_LOST = 0.02  # nor are so few boxes
_PROBE = 1.5  # how much a box is grown or shrunk to see whether it would fit then
_LONG = 2.0  # longer to shorter side that a probe leaves a box
_COMMON_IOU = 0.5  # where a detector does not say from which overlap on it matches


@dataclass(frozen=True, kw_only=True, eq=False)
class AnchorCoverage:
    """Which boxes have a default box that overlaps them by `match_iou` or more once their image has become
    the input, as in an evaluation.

    The others are not out of reach for good: in training each object is given the default box that overlaps
    it most, whatever the overlap (SSD's forced matching). But that is one box that has to be moved far, so
    such objects are learnt badly and found late. `share` is therefore no bound on recall, but says how much
    of the set the default boxes were made for. Difficult objects and crowds do not count.
    """

    share: float  # 0..1
    num_boxes: int  # that count
    lost: Ints  # indices into the boxes of all targets, one after the other, those that do not count too
    size: int  # of the input
    alternatives: dict[int, float]  # other input sizes -> share, the settings otherwise the same
    smallest_side: float | None
    """Pixels of the input: of the boxes with a smaller side (the root of the area) most are lost. None where
    size is not why boxes are lost."""
    advice: str  # one sentence, whatever there is to say


@dataclass(frozen=True, kw_only=True, eq=False)
class _Settings:
    config: DetectorConfig
    classes: tuple[str, ...]
    transforms: TransformsConfig

    def changed(self, changes: Mapping[str, object]) -> _Settings | None:
        """With other settings, under their full keys; None where the detector does not have or take them."""
        detector = {k.removeprefix("detector."): v for k, v in changes.items() if k.startswith("detector.")}
        rest = {k.removeprefix("transforms."): v for k, v in changes.items() if k.startswith("transforms.")}
        try:
            return _Settings(
                config=type(self.config).of({**self.config.tree(), **detector}),
                classes=self.classes,
                transforms=TransformsConfig.of({**self.transforms.tree(), **rest}),
            )
        except UsageError:
            return None

    @property
    def threshold(self) -> float:
        return self.config.match_iou if isinstance(self.config, MultiBoxConfig) else _COMMON_IOU

    def settled(self, objects: Objects) -> _Settings:
        """With what is `auto` fitted to these objects, as a run fits it to those it learns from."""
        return replace(self, config=objects.fit(self.config, self.transforms)[0])

    def network(self) -> DetectorNet:
        """Without weights, which takes neither time nor memory."""
        with torch.device("meta"):
            return build_detector(self.config, self.classes)

    def share(self, objects: Objects) -> float | None:
        """Of the objects, that have a starting box which overlaps them enough. None where the network cannot
        be built: some backbones take only certain sizes.
        """
        try:
            network = self.settled(objects).network()
        except UsageError:
            return None
        overlaps = _overlaps(network, objects.on_input(self.transforms, self.config.size))
        return None if overlaps is None else float((overlaps >= self.threshold).mean())


def anchor_coverage(
    config: DetectorConfig,
    classes: tuple[str, ...],
    targets: Sequence[Target],
    sizes: Sequence[tuple[int, int]],
    *,
    transforms: TransformsConfig | None = None,
    settled: DetectorConfig | None = None,
) -> AnchorCoverage | None:
    """For the objects of images with these (width, height), brought to the input as `transforms` says (by
    default squashed). `settled` is the detector with what is `auto` fitted; by default it is fitted to these
    objects. None for a detector that starts from no boxes, or where no object counts.
    """
    numbers, objects = counted_objects(targets, sizes)
    if not len(numbers):
        return None
    given = _Settings(config=config, classes=classes, transforms=transforms or TransformsConfig())
    settings = given.settled(objects) if settled is None else replace(given, config=settled)
    network = settings.network()
    placed = objects.on_input(settings.transforms, config.size)
    overlaps = _overlaps(network, placed)
    if overlaps is None:
        return None
    lost = overlaps < settings.threshold
    draw = np.random.default_rng(0)
    some = objects.select(draw.permutation(len(numbers))[:_SAMPLE])
    alternatives = dict(_other_sizes(settings, some))
    cause = _cause(network, placed[lost], draw) if lost.mean() > _FEW_LOST else None
    smallest = _smallest_side(placed, lost) if cause == "small" else None
    share = float(1 - lost.mean())
    advice = _Sentence(
        given=given, settings=settings, share=share, num_boxes=len(numbers), cause=cause, side=smallest
    )
    return AnchorCoverage(
        share=share,
        num_boxes=len(numbers),
        lost=numbers[lost],
        size=config.size,
        alternatives=alternatives,
        smallest_side=smallest,
        advice=advice.write(some, alternatives),
    )


def _overlaps(network: DetectorNet, placed: Floats) -> Floats | None:
    found = network.starting_overlap(torch.from_numpy(placed))
    if found is None:
        return None
    # An evaluation leaves out what is less than a pixel wide or high.
    sliver = (placed[:, 2:] - placed[:, :2]).min(axis=1, initial=np.inf) < 1
    return np.where(sliver, np.float32(0), found.numpy())


def _other_sizes(settings: _Settings, objects: Objects) -> Iterator[tuple[int, float]]:
    own = settings.config.size
    for size in _SIZES if settings.changed({"detector.size": _SIZES[0]}) else _PAPER_SIZES:
        if own / 2 <= size <= own * 2 and size != own:
            other = settings.changed({"detector.size": size})
            share = None if other is None else other.share(objects)
            if share is not None:
                yield size, share


def _cause(network: DetectorNet, lost: Floats, draw: np.random.Generator) -> Cause:
    """Why most of these boxes (of the input) are lost: what would fit best of them as they are, grown,
    shrunk, and made less long. As they are: then only their place is wrong.
    """
    some = lost[draw.permutation(len(lost))[:_SAMPLE]]
    centre, sides = (some[:, :2] + some[:, 2:]) / 2, np.maximum(some[:, 2:] - some[:, :2], 1)
    middle = np.sqrt(sides.prod(axis=1, keepdims=True))
    shorter = np.clip(sides, middle / _LONG**0.5, middle * _LONG**0.5)
    probes: dict[Cause, Floats] = {
        "between": sides,
        "small": sides * _PROBE,
        "large": sides / _PROBE,
        "long": shorter,
    }
    fits = []
    for probed in probes.values():
        boxes = np.concatenate([centre - probed / 2, centre + probed / 2], axis=1).astype(np.float32)
        overlaps = network.starting_overlap(torch.from_numpy(boxes))
        assert overlaps is not None
        fits.append(overlaps.numpy())
    counts = np.bincount(np.stack(fits).argmax(axis=0), minlength=len(probes))
    return tuple(probes)[int(counts.argmax())]


def _smallest_side(placed: Floats, lost: Bools) -> float | None:
    """The side that best tells the lost boxes (below) from the others; None where no side does."""
    sides = np.sqrt((placed[:, 2:] - placed[:, :2]).prod(axis=1))
    order = np.argsort(sides, kind="stable")
    more_lost = np.cumsum(np.where(lost[order], 1, -1))  # than not, of the boxes up to each
    best = int(more_lost.argmax())
    return float(sides[order[best]]) if more_lost[best] > 0 else None


_WHY: Mapping[Cause, str] = {
    "between": "most of the others lie between default boxes",
    "small": "most of the others are too small",
    "large": "most of the others are larger than any default box",
    "long": "most of the others are longer and narrower than any default box",
}
_ELSE: Mapping[Cause, str] = {
    "between": "a smaller detector.match_iou would give them more than their one forced match",
    "small": "photograph from nearer, or cut the images into parts",
    "large": "take photos from farther away",
    "long": "label such objects in parts, where a part is enough",
}


@dataclass(frozen=True, kw_only=True)
class _Sentence:
    given: _Settings
    settings: _Settings  # the same with what was `auto` settled
    share: float
    num_boxes: int
    cause: Cause | None
    side: float | None

    def write(self, objects: Objects, alternatives: Mapping[int, float]) -> str:
        """`objects` are those that other settings are tried on."""
        config = self.settings.config
        head = (
            f"the default boxes of {config.name} at size={config.size} can match {_percent(self.share)} of "
            f"{self.num_boxes} boxes well (IoU {self.settings.threshold:g} or more)"
        )
        if self.cause is None:
            return head
        under = None if self.side is None else f"most boxes under {self.side:.0f} px of the input are lost"
        return f"{head}; {under or _WHY[self.cause]}: {self._remedy(self.cause, objects, alternatives)}"

    def _remedy(self, cause: Cause, objects: Objects, alternatives: Mapping[int, float]) -> str:
        """The cheapest settings that reach about as many boxes as any that were tried."""
        own = self.settings.share(objects) or 0.0
        larger = {
            f"size={size}": share for size, share in alternatives.items() if size > self.settings.config.size
        }
        tried = {**dict(self._try(cause, objects)), **larger}
        worth = [one for one in tried.items() if one[1] >= own + _GAIN]
        if not worth:
            return _ELSE[cause]
        best = max(share for _, share in worth)
        words, share = next(one for one in worth if one[1] >= best - _GAIN)
        return f"{words} would match {_percent(share)}"

    def _try(self, cause: Cause, objects: Objects) -> Iterator[tuple[str, float]]:
        for changes in self._changes(cause):
            other = self.settings.changed(changes)
            share = None if other is None else other.share(objects)
            if share is not None:
                given = self.given.config.tree()
                new = {k: v for k, v in changes.items() if given.get(k.removeprefix("detector.")) != v}
                if new:
                    yield " ".join(f"{key}={value}" for key, value in new.items()), share

    def _changes(self, cause: Cause) -> Iterator[dict[str, object]]:
        """Settings to try, those that make the detector slower after those that do not."""
        if cause == "long":
            resize = self.settings.transforms.resize
            yield {"transforms.resize": "letterbox" if resize == "squash" else "squash"}
            return
        yield {"detector.scales": "coco"}
        scales: dict[str, object] = {"detector.min_scale": "auto", "detector.max_scale": "auto"}
        yield scales
        if cause == "large":
            yield {**scales, "detector.levels": 6}
        else:
            was_fitted = self.given.config.tree().get("finest_stride") == "auto"
            yield {**scales, "detector.finest_stride": FINEST if was_fitted else "auto"}


def _percent(share: float) -> str:
    """Whole, but never rounded up to all."""
    whole = round(100 * share)
    return f"{whole} %" if whole < 100 or share == 1 else f"{int(1000 * share) / 10:g} %"
