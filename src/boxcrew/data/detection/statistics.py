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
from boxcrew.data.detection.source import Record

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
    labels = np.concatenate([*(record.target.labels for record in records), np.zeros(0, dtype=np.int64)])
    boxes = np.concatenate([*(record.target.boxes for record in records), np.zeros((0, 4), dtype=np.float32)])
    seen = np.concatenate(
        [*(np.unique(record.target.labels) for record in records), np.zeros(0, dtype=np.int64)]
    )
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
        difficult=sum(int(record.target.difficult.sum()) for record in records),
        crowd=sum(int(record.target.crowd.sum()) for record in records),
    )


def _by_class(labels: Ints, classes: tuple[str, ...]) -> dict[str, int]:
    return dict(zip(classes, np.bincount(labels, minlength=len(classes)).tolist(), strict=True))


def advise(
    statistics: Mapping[str, SplitStatistics], classes: tuple[str, ...], *, keeps_shape: bool = False
) -> tuple[DatasetAdvice, ...]:
    """Return advice about a set from the statistics of its splits, the most important first.

    `keeps_shape` says that resizing to the network's input keeps the aspect ratio of objects.
    """
    train, val = statistics.get("train"), statistics.get("val")
    advice: list[DatasetAdvice] = []
    if train is not None:
        advice += _about_classes(train, val, classes)
        advice += _about_empty(train)
    advice += _about_val(train, val)
    advice += _about_crowds(statistics)
    advice += _about_boxes(statistics)
    advice += _about_sizes(statistics)
    advice += () if keeps_shape else _about_shapes(statistics)
    return tuple(advice)


def _about_classes(
    train: SplitStatistics, val: SplitStatistics | None, classes: tuple[str, ...]
) -> Iterator[DatasetAdvice]:
    boxes = train.boxes_by_class
    val_boxes = val.boxes_by_class if val is not None else dict.fromkeys(classes, 0)
    unseen = [name for name in classes if not boxes[name] and val_boxes[name]]
    if unseen:
        text = f"val has {_names(unseen)}, train does not: that cannot be learned. Move images to train"
        yield DatasetAdvice(kind="class-missing-in-train", text=text)
    unused = [name for name in classes if not boxes[name] and not val_boxes[name]]
    if unused:
        where = "train" if val is None else "train and val"
        text = f"no box in {where} is of {_names(unused)}. Label some, or remove the class"
        yield DatasetAdvice(kind="unused-class", text=text)
    unmeasured = [name for name in classes if boxes[name] and val is not None and not val_boxes[name]]
    if unmeasured:
        text = f"train has {_names(unmeasured)}, val does not: its AP cannot be measured. Move images to val"
        yield DatasetAdvice(kind="class-missing-in-val", text=text)
    rare = sorted((name for name in classes if 0 < boxes[name] < _FEW_BOXES), key=lambda name: boxes[name])
    if rare:
        counts = _names([f"{name} ({boxes[name]})" for name in rare])
        text = f"train has fewer than {_FEW_BOXES} boxes of {counts}. Collect and label more of them"
        yield DatasetAdvice(kind="rare-class", text=text)
    yield from _about_imbalance({name: count for name, count in boxes.items() if count})


def _about_imbalance(boxes: Mapping[str, int]) -> Iterator[DatasetAdvice]:
    if len(boxes) < 2:
        return
    commonest, rarest = max(boxes, key=lambda name: boxes[name]), min(boxes, key=lambda name: boxes[name])
    ratio = boxes[commonest] / boxes[rarest]
    if ratio > MAX_IMBALANCE:
        yield DatasetAdvice(
            kind="imbalance",
            text=f"train has {boxes[commonest]} boxes of {commonest} and {boxes[rarest]} of {rarest}, "
            f"{ratio:.0f} to 1: rare classes will be missed more often. Add images of them, and "
            "compare the AP of each class, not the mean",
        )


def _about_empty(train: SplitStatistics) -> Iterator[DatasetAdvice]:
    share = train.num_empty_images / max(1, train.num_images)
    if share > _EMPTY_SHARE:
        yield DatasetAdvice(
            kind="empty-images",
            text=f"{train.num_empty_images} of {train.num_images} training images ({share:.0%}) have no box. "
            "If they show objects, label them; if not, remove some: an SSD learns nothing from them, and "
            "they cost as much time",
        )


def _about_val(train: SplitStatistics | None, val: SplitStatistics | None) -> Iterator[DatasetAdvice]:
    if val is None:
        text = "there is no val split, so accuracy cannot be measured. Set aside a fifth of the images"
        yield DatasetAdvice(kind="no-val", text=text)
        return
    if val.num_images < _FEW_VAL_IMAGES:
        yield DatasetAdvice(
            kind="few-val-images",
            text=f"val has only {counted(val.num_images, 'image')}: its AP varies by chance between runs. "
            f"Label more, at least {_FEW_VAL_IMAGES}",
        )
    if train is None:
        return
    share = val.num_images / (train.num_images + val.num_images)
    low, high = _VAL_SHARES
    if share > high:
        yield DatasetAdvice(
            kind="val-share",
            text=f"val has {val.num_images} images, train {train.num_images}: {share:.0%} of the "
            "labels are not trained on. Move some to train; a fifth for val is usual",
        )
    elif share < low and _FEW_VAL_IMAGES <= val.num_images < _ENOUGH_VAL_IMAGES:
        yield DatasetAdvice(
            kind="val-share",
            text=f"val has {val.num_images} images, train {train.num_images}: {share:.1%} is too little "
            "to measure with. Move some to val; a fifth is usual",
        )


def _about_crowds(statistics: Mapping[str, SplitStatistics]) -> Iterator[DatasetAdvice]:
    counts = np.array([count for split in statistics.values() for count in split.objects_per_image])
    crowded, most = int((counts > _CROWDED).sum()), int(counts.max(initial=0))
    if crowded:
        yield DatasetAdvice(
            kind="crowded-images",
            text=f"{counted(crowded, 'image')} with more than {_CROWDED} objects (the most: {most}); AP "
            f"counts only {_CROWDED} detections per image. Cut such images into tiles",
        )


def _about_boxes(statistics: Mapping[str, SplitStatistics]) -> Iterator[DatasetAdvice]:
    sizes = np.concatenate([*(split.box_sizes for split in statistics.values()), np.ones((0, 2))])
    shape = sizes.max(axis=1) / np.maximum(sizes.min(axis=1), 1e-6) if len(sizes) else np.zeros(0)
    long = int((shape > _ELONGATED).sum())
    if long > _ELONGATED_SHARE * len(sizes):
        yield DatasetAdvice(
            kind="elongated-boxes",
            text=f"{long} of {len(sizes)} boxes ({long / len(sizes):.0%}) are more than {_ELONGATED:.0f} "
            "times as long as wide; default boxes are at most 3 times, so these are detected less well. If "
            "only a section of such an object matters, label that section",
        )


def _about_sizes(statistics: Mapping[str, SplitStatistics]) -> Iterator[DatasetAdvice]:
    sizes = _image_sizes(statistics)
    extremes = _extremes(sizes, np.sqrt(sizes[:, 0] * sizes[:, 1]), _SIZE_RATIO)
    if extremes:
        yield DatasetAdvice(
            kind="mixed-sizes",
            text=f"image sizes differ a lot: from {extremes}. All are resized to one size, so cut large ones "
            "into tiles if their objects become too small",
        )


def _about_shapes(statistics: Mapping[str, SplitStatistics]) -> Iterator[DatasetAdvice]:
    sizes = _image_sizes(statistics)
    extremes = _extremes(sizes, sizes[:, 0] / sizes[:, 1], _SHAPE_RATIO)
    if extremes:
        text = f"image shapes differ a lot: from {extremes}. Set transforms.resize=letterbox to keep them"
        yield DatasetAdvice(kind="mixed-shapes", text=text)


def _image_sizes(statistics: Mapping[str, SplitStatistics]) -> Floats64:
    """Return the (N, 2) widths and heights of all images."""
    sizes = [size for split in statistics.values() for size in split.image_sizes]
    return np.array(sizes, dtype=np.float64).reshape(-1, 2)


def _extremes(sizes: Floats64, values: Floats64, ratio: float) -> str:
    """Return the sizes at the 5 % and 95 % quantiles of `values` (N,), if their ratio exceeds `ratio`."""
    low, high = np.quantile(values, (0.05, 0.95)) if len(values) else (0.0, 0.0)
    if not high > ratio * low:
        return ""
    nearest = (sizes[np.abs(values - value).argmin()].astype(int).tolist() for value in (low, high))
    return " to ".join(f"{width} x {height}" for width, height in nearest)


def _names(names: Sequence[str]) -> str:
    more = len(names) - _MAX_NAMES
    return ", ".join(names[:_MAX_NAMES]) + (f" and {more} more" if more > 0 else "")
