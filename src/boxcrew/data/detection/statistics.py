"""Statistics of a data set, and the advice that follows from them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from boxcrew.core.types import Floats, Ints
from boxcrew.core.units import counted
from boxcrew.data.checks.box_repair import Floats64
from boxcrew.data.checks.problem import MAX_IMBALANCE
from boxcrew.data.detection.records import Record

_FEW_BOXES = 20  # of a class in train; with fewer, AP is mostly chance
_FEW_VAL_IMAGES = 50
_ENOUGH_VAL_IMAGES = 500  # from here on, a small share of val is no problem
_VAL_SHARES = (0.05, 0.4)  # lowest and highest share of train and val together
_EMPTY_SHARE = 0.3
_CROWDED = 100  # COCO's AP counts no more detections per image
_ELONGATED = 5.0  # longer to shorter side of a box; default boxes have at most 3
_ELONGATED_SHARE = 0.05
_SIZE_RATIO = 4.0  # largest to smallest image side, ignoring the extreme 5 % at both ends
_SHAPE_RATIO = 2.0  # largest to smallest ratio of width to height, likewise
_MAX_NAMES = 6  # class names listed in a sentence

_TEXTS = {
    "class-missing-in-train": "val has {names}, train does not: that cannot be learned. Move images to train",
    "unused-class": "no box in {where} is of {names}. Label some, or remove the class",
    "class-missing-in-val": "train has {names}, val does not: its AP cannot be measured. Move images to val",
    "rare-class": "train has fewer than {few} boxes of {names}. Collect and label more of them",
    "imbalance": "train has {most} boxes of {common} and {least} of {rare}, {ratio:.0f} to 1: rare classes "
    "will be missed more often. Add images of them, and compare the AP of each class, not the mean",
    "empty-images": "{empty} of {total} training images ({share:.0%}) have no box. If they show objects, "
    "label them; if they are background, keep only some: each costs as much time as any other image",
    "no-val": "there is no val split, so accuracy cannot be measured. Set aside a fifth of the images",
    "few-val-images": "val has only {images}: its AP varies by chance between runs. Label at least {few}",
    "val-share": "val has {val} images, train {train}: {trouble}; a fifth for val is usual",
    "crowded-images": "{images} with more than {limit} objects (the most: {most}); AP counts only {limit} "
    "detections per image. Cut such images into tiles",
    "elongated-boxes": "{long} of {total} boxes ({share:.0%}) are more than {limit:.0f} times as long as "
    "wide, and are detected less well. If only a section of "
    "such an object matters, label that section",
    "mixed-sizes": "image sizes differ a lot: from {extremes}. All are resized to one size, so cut large "
    "ones into tiles if their objects become too small",
    "mixed-shapes": "image shapes differ a lot: from {extremes}. transforms.resize=letterbox keeps them",
}
"""The sentences of advice, by kind."""


@dataclass(frozen=True, kw_only=True, eq=False)
class SplitStatistics:
    """The counts of one split. Difficult and crowd boxes are counted like all others."""

    num_images: int
    num_boxes: int
    num_empty_images: int  # without any box
    boxes_by_class: dict[str, int]  # every class of the set, including those without boxes
    images_by_class: dict[str, int]  # images with at least one box of the class
    objects_per_image: tuple[int, ...]  # one number per image
    image_sizes: tuple[tuple[int, int], ...]  # (width, height) of each image
    box_sizes: Floats  # (N, 2) width and height in pixels of the original image
    box_labels: Ints  # (N,)
    difficult: int
    crowd: int


@dataclass(frozen=True, kw_only=True)
class DatasetAdvice:
    """A sentence for people about a data set: what is wrong, and what to do."""

    kind: str  # stable, for programs
    text: str

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def split_statistics(records: Sequence[Record], classes: tuple[str, ...]) -> SplitStatistics:
    targets, none = [record.target for record in records], np.zeros(0, dtype=np.int64)
    labels = np.concatenate([*(target.labels for target in targets), none])
    seen = np.concatenate([*(np.unique(target.labels) for target in targets), none])
    boxes = np.concatenate([*(target.boxes for target in targets), np.zeros((0, 4), dtype=np.float32)])
    counts = tuple(len(record.target) for record in records)
    return SplitStatistics(
        num_images=len(records),
        num_boxes=len(labels),
        num_empty_images=counts.count(0),
        boxes_by_class=_by_class(labels, classes),
        images_by_class=_by_class(seen, classes),
        objects_per_image=counts,
        image_sizes=tuple((record.width, record.height) for record in records),
        box_sizes=boxes[:, 2:] - boxes[:, :2],
        box_labels=labels,
        difficult=sum(int(target.difficult.sum()) for target in targets),
        crowd=sum(int(target.crowd.sum()) for target in targets),
    )


def _by_class(labels: Ints, classes: tuple[str, ...]) -> dict[str, int]:
    return dict(zip(classes, np.bincount(labels, minlength=len(classes)).tolist(), strict=True))


def advise(
    statistics: Mapping[str, SplitStatistics], classes: tuple[str, ...], *, keeps_shape: bool = False
) -> tuple[DatasetAdvice, ...]:
    """Return advice about a set from the statistics of its splits, the most important first. `keeps_shape`
    says that resizing to the network's input keeps the aspect ratio of objects.
    """
    train, val = statistics.get("train"), statistics.get("val")
    return (
        *(_about_train(train, val, classes) if train else ()),
        *_about_val(train, val),
        *_about_boxes(statistics),
        *_about_image_sizes(statistics, keeps_shape=keeps_shape),
    )


def _advice(kind: str, **values: object) -> DatasetAdvice:
    return DatasetAdvice(kind=kind, text=_TEXTS[kind].format(**values))


def _about_train(
    train: SplitStatistics, val: SplitStatistics | None, classes: tuple[str, ...]
) -> Iterator[DatasetAdvice]:
    boxes = train.boxes_by_class
    val_boxes = val.boxes_by_class if val is not None else dict.fromkeys(classes, 0)
    rare = sorted((name for name in classes if 0 < boxes[name] < _FEW_BOXES), key=boxes.__getitem__)
    affected = {
        "class-missing-in-train": [name for name in classes if not boxes[name] and val_boxes[name]],
        "unused-class": [name for name in classes if not boxes[name] and not val_boxes[name]],
        "class-missing-in-val": [name for name in classes if boxes[name] and val and not val_boxes[name]],
        "rare-class": [f"{name} ({boxes[name]})" for name in rare],
    }
    for kind, names in affected.items():
        if names:
            more = f" and {len(names) - _MAX_NAMES} more" if len(names) > _MAX_NAMES else ""
            where = "train" if val is None else "train and val"
            yield _advice(kind, names=", ".join(names[:_MAX_NAMES]) + more, where=where, few=_FEW_BOXES)
    used = [name for name in boxes if boxes[name]]
    most, least = max(used, key=boxes.__getitem__, default=""), min(used, key=boxes.__getitem__, default="")
    if used and (ratio := boxes[most] / boxes[least]) > MAX_IMBALANCE:
        values = {"most": boxes[most], "least": boxes[least], "common": most, "rare": least}
        yield _advice("imbalance", ratio=ratio, **values)
    share = train.num_empty_images / max(1, train.num_images)
    if share > _EMPTY_SHARE:
        yield _advice("empty-images", empty=train.num_empty_images, total=train.num_images, share=share)


def _about_val(train: SplitStatistics | None, val: SplitStatistics | None) -> Iterator[DatasetAdvice]:
    if val is None:
        yield _advice("no-val")
        return
    if val.num_images < _FEW_VAL_IMAGES:
        yield _advice("few-val-images", images=counted(val.num_images, "image"), few=_FEW_VAL_IMAGES)
    if train is None:
        return
    share, (low, high), trouble = val.num_images / (train.num_images + val.num_images), _VAL_SHARES, ""
    if share > high:
        trouble = f"{share:.0%} of the labels are not trained on. Move some to train"
    elif share < low and _FEW_VAL_IMAGES <= val.num_images < _ENOUGH_VAL_IMAGES:
        trouble = f"{share:.1%} is too little to measure with. Move some to val"
    if trouble:
        yield _advice("val-share", val=val.num_images, train=train.num_images, trouble=trouble)


def _about_boxes(statistics: Mapping[str, SplitStatistics]) -> Iterator[DatasetAdvice]:
    counts = np.array([count for split in statistics.values() for count in split.objects_per_image])
    crowded, most = int((counts > _CROWDED).sum()), int(counts.max(initial=0))
    if crowded:
        yield _advice("crowded-images", images=counted(crowded, "image"), limit=_CROWDED, most=most)
    sizes = np.concatenate([*(split.box_sizes for split in statistics.values()), np.ones((0, 2))])
    shape = sizes.max(axis=1) / np.maximum(sizes.min(axis=1), 1e-6) if len(sizes) else np.zeros(0)
    long = int((shape > _ELONGATED).sum())
    if long > _ELONGATED_SHARE * len(sizes):
        share = long / len(sizes)
        yield _advice("elongated-boxes", long=long, total=len(sizes), share=share, limit=_ELONGATED)


def _about_image_sizes(
    statistics: Mapping[str, SplitStatistics], *, keeps_shape: bool
) -> Iterator[DatasetAdvice]:
    listed = [size for split in statistics.values() for size in split.image_sizes]
    sizes = np.array(listed, dtype=np.float64).reshape(-1, 2)
    if extremes := _extremes(sizes, np.sqrt(sizes[:, 0] * sizes[:, 1]), _SIZE_RATIO):
        yield _advice("mixed-sizes", extremes=extremes)
    extremes = _extremes(sizes, sizes[:, 0] / sizes[:, 1], _SHAPE_RATIO)
    if extremes and not keeps_shape:
        yield _advice("mixed-shapes", extremes=extremes)


def _extremes(sizes: Floats64, values: Floats64, ratio: float) -> str:
    """Return the sizes at the 5 % and 95 % quantiles of `values` (N,), if their ratio exceeds `ratio`."""
    low, high = np.quantile(values, (0.05, 0.95)) if len(values) else (0.0, 0.0)
    if not high > ratio * low:
        return ""
    nearest = (sizes[np.abs(values - value).argmin()].astype(int).tolist() for value in (low, high))
    return " to ".join(f"{width} x {height}" for width, height in nearest)
