"""What a data set holds, counted, and what its counts advise."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from boxcrew.core.types import Floats, Ints
from boxcrew.data.detection.source import Record

_FEW_BOXES = 20  # of a class in train; with fewer, AP is mostly luck
_IMBALANCE = 10.0
_FEW_VAL_IMAGES = 50
_ENOUGH_VAL_IMAGES = 500  # with so many, a small share is not too small
_VAL_SHARES = (0.05, 0.4)  # of train and val together
_EMPTY_SHARE = 0.3
_CROWDED = 100  # COCO's AP looks at no more detections of an image
_ELONGATED = 5.0  # the longer side of a box to the shorter; default boxes have at most 3
_ELONGATED_SHARE = 0.05
_SIZE_SPREAD = 4.0  # of the images' sides, the smallest and largest twentieth left out
_SHAPE_SPREAD = 2.0  # of width to height, likewise
_NAMED = 6  # classes named in a sentence


@dataclass(frozen=True, kw_only=True, eq=False)
class SplitStatistics:
    """The counts of one split. Boxes that are difficult or a crowd are counted with the others."""

    num_images: int
    num_boxes: int
    num_empty_images: int  # without any box
    boxes_by_class: dict[str, int]  # every class of the set, also those with none
    images_by_class: dict[str, int]  # with at least one box of it
    objects_per_image: tuple[int, ...]  # one number an image
    image_sizes: tuple[tuple[int, int], ...]  # (width, height), one an image
    box_sizes: Floats  # (N, 2) width and height in pixels of the original
    box_labels: Ints  # (N,)
    difficult: int
    crowd: int


@dataclass(frozen=True, kw_only=True)
class Advice:
    """One line for people: what is the matter, and what to do."""

    kind: str  # what programs may rely on
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
) -> tuple[Advice, ...]:
    """About a set of which `statistics` has the splits, by name; the weightiest first, and nothing where all
    is well. `keeps_shape`: things stay as wide to high as they are when images are brought to the input.
    """
    train, val = statistics.get("train"), statistics.get("val")
    found: list[Advice] = []
    if train is not None:
        found += _about_classes(train, val, classes)
        found += _about_empty(train)
    found += _about_val(train, val)
    found += _about_crowds(statistics)
    found += _about_boxes(statistics)
    found += _about_sizes(statistics)
    found += () if keeps_shape else _about_shapes(statistics)
    return tuple(found)


def _about_classes(
    train: SplitStatistics, val: SplitStatistics | None, classes: tuple[str, ...]
) -> Iterator[Advice]:
    boxes = train.boxes_by_class
    val_boxes = val.boxes_by_class if val is not None else dict.fromkeys(classes, 0)
    unseen = [name for name in classes if not boxes[name] and val_boxes[name]]
    if unseen:
        text = f"val has {_names(unseen)}, train does not: no detector can learn that. Move images to train"
        yield Advice(kind="class-missing-in-train", text=text)
    unused = [name for name in classes if not boxes[name] and not val_boxes[name]]
    if unused:
        where = "train" if val is None else "train and val"
        text = (
            f"no box in {where} is of {_names(unused)}. Label some, or take the name off the list of classes"
        )
        yield Advice(kind="unused-class", text=text)
    unmeasured = [name for name in classes if boxes[name] and val is not None and not val_boxes[name]]
    if unmeasured:
        text = f"train has {_names(unmeasured)}, val does not: its AP cannot be measured. Move images to val"
        yield Advice(kind="class-missing-in-val", text=text)
    rare = sorted((name for name in classes if 0 < boxes[name] < _FEW_BOXES), key=lambda name: boxes[name])
    if rare:
        counts = _names([f"{name} ({boxes[name]})" for name in rare])
        text = f"train has fewer than {_FEW_BOXES} boxes of {counts}. Photograph and label more of them"
        yield Advice(kind="rare-class", text=text)
    yield from _about_imbalance({name: count for name, count in boxes.items() if count})


def _about_imbalance(boxes: Mapping[str, int]) -> Iterator[Advice]:
    if len(boxes) < 2:
        return
    commonest, rarest = max(boxes, key=lambda name: boxes[name]), min(boxes, key=lambda name: boxes[name])
    ratio = boxes[commonest] / boxes[rarest]
    if ratio >= _IMBALANCE:
        yield Advice(
            kind="imbalance",
            text=f"train has {boxes[commonest]} boxes of {commonest} and {boxes[rarest]} of {rarest}, "
            f"{ratio:.0f} to 1: the rare will be missed more often. Add images of the rare "
            "classes, and judge by the AP of each class, not by the mean",
        )


def _about_empty(train: SplitStatistics) -> Iterator[Advice]:
    share = train.num_empty_images / max(1, train.num_images)
    if share > _EMPTY_SHARE:
        yield Advice(
            kind="empty-images",
            text=f"{train.num_empty_images} of {train.num_images} training images ({share:.0%}) have no box. "
            "If they show objects, label them; if not, leave some out: an SSD learns nothing from them and "
            "they take as long",
        )


def _about_val(train: SplitStatistics | None, val: SplitStatistics | None) -> Iterator[Advice]:
    if val is None:
        text = (
            "there is no val split, so nothing tells how good a detector is. Set aside a fifth of the images"
        )
        yield Advice(kind="no-val", text=text)
        return
    if val.num_images < _FEW_VAL_IMAGES:
        yield Advice(
            kind="few-val-images",
            text=f"val has only {_count(val.num_images, 'image')}: its AP changes by chance from run to run. "
            f"Label more, {_FEW_VAL_IMAGES} at the least",
        )
    if train is None:
        return
    share = val.num_images / (train.num_images + val.num_images)
    low, high = _VAL_SHARES
    if share > high:
        yield Advice(
            kind="val-share",
            text=f"val has {val.num_images} images, train {train.num_images}: {share:.0%} of what is "
            "labelled is not learnt from. Move some to train; a fifth is usual",
        )
    elif share < low and _FEW_VAL_IMAGES <= val.num_images < _ENOUGH_VAL_IMAGES:
        yield Advice(
            kind="val-share",
            text=f"val has {val.num_images} images, train {train.num_images}: {share:.1%} measures little of "
            "what there is. Move some to val; a fifth is usual",
        )


def _about_crowds(statistics: Mapping[str, SplitStatistics]) -> Iterator[Advice]:
    counts = np.array([count for split in statistics.values() for count in split.objects_per_image])
    crowded, most = int((counts > _CROWDED).sum()), int(counts.max(initial=0))
    if crowded:
        yield Advice(
            kind="crowded-images",
            text=f"{_count(crowded, 'image')} with more than {_CROWDED} objects (the most: {most}); AP "
            f"counts only {_CROWDED} detections an image. Cut such images into parts",
        )


def _about_boxes(statistics: Mapping[str, SplitStatistics]) -> Iterator[Advice]:
    sizes = np.concatenate([*(split.box_sizes for split in statistics.values()), np.ones((0, 2))])
    shape = sizes.max(axis=1) / np.maximum(sizes.min(axis=1), 1e-6) if len(sizes) else np.zeros(0)
    long = int((shape > _ELONGATED).sum())
    if long > _ELONGATED_SHARE * len(sizes):
        yield Advice(
            kind="elongated-boxes",
            text=f"{long} of {len(sizes)} boxes ({long / len(sizes):.0%}) are more than {_ELONGATED:.0f} "
            "times as long as wide; default boxes are at most 3 times, so these are found less well. Where "
            "only a part of such an object matters, label that part",
        )


def _image_sizes(statistics: Mapping[str, SplitStatistics]) -> np.ndarray[Any, Any]:
    """(N, 2) width and height."""
    sizes = [size for split in statistics.values() for size in split.image_sizes]
    return np.array(sizes, dtype=np.float64).reshape(-1, 2)


def _about_sizes(statistics: Mapping[str, SplitStatistics]) -> Iterator[Advice]:
    sizes = _image_sizes(statistics)
    if not len(sizes):
        return
    sides = np.sqrt(sizes[:, 0] * sizes[:, 1])
    low, high = np.quantile(sides, (0.05, 0.95))
    if high > _SIZE_SPREAD * low:
        yield Advice(
            kind="mixed-sizes",
            text=f"images differ much in size: from {_size(sizes, sides, low)} to "
            f"{_size(sizes, sides, high)}. All are brought to one size, so cut the large ones into parts "
            "where their objects become too small",
        )


def _about_shapes(statistics: Mapping[str, SplitStatistics]) -> Iterator[Advice]:
    sizes = _image_sizes(statistics)
    if not len(sizes):
        return
    shapes = sizes[:, 0] / sizes[:, 1]
    low, high = np.quantile(shapes, (0.05, 0.95))
    if high > _SHAPE_SPREAD * low:
        yield Advice(
            kind="mixed-shapes",
            text=f"images differ much in shape: from {_size(sizes, shapes, low)} to "
            f"{_size(sizes, shapes, high)}. Set transforms.resize=letterbox, which keeps the shape of things",
        )


def _size(sizes: np.ndarray[Any, Any], values: np.ndarray[Any, Any], wanted: float) -> str:
    """The image whose value is nearest to the one wanted."""
    width, height = sizes[np.abs(values - wanted).argmin()].astype(int).tolist()
    return f"{width} x {height}"


def _names(names: Sequence[str]) -> str:
    more = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {more} more" if more > 0 else "")


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
