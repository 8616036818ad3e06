"""Boxes and images of a data set in charts, and what a detector can reach, as parts of the doctor's page."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import partial

import numpy as np

from boxcrew.core.types import Bools, Floats
from boxcrew.data.checks.box_repair import Box
from boxcrew.data.detection.source import Record
from boxcrew.report.doctor.charts import LOST, Bins, heat_map, histogram, share_bars
from boxcrew.report.doctor.markup import Html, element, join
from boxcrew.report.doctor.pictures import Frame, Shot, develop
from boxcrew.report.doctor.report import Diagnosis

_LOST_PICTURES = 12
_LEAST_SIDE = 0.25  # pixels: what is smaller is drawn as this, for a logarithm of zero is nowhere
_SAID_SIZES = 7  # of images, the commonest


@dataclass(frozen=True, kw_only=True, eq=False)
class AllBoxes:
    """Every box of the set, N of them, with its image."""

    boxes: Floats  # (N, 4) xyxy in pixels of the photo
    images: Floats  # (N, 2) width and height of its photo
    owners: tuple[tuple[Record, int], ...]  # the record, and the place of the box in it
    lost: Bools  # (N,) out of reach of the detector's default boxes
    scales: Floats  # (N, 2) pixels of the detector's input for one of the photo, across and down

    @classmethod
    def of(cls, diagnosis: Diagnosis) -> AllBoxes:
        records = diagnosis.records
        owners = tuple((record, i) for record in records for i in range(len(record.target)))
        lost = np.zeros(len(owners), dtype=np.bool_)
        if diagnosis.anchor_coverage is not None:
            lost[diagnosis.anchor_coverage.lost] = True
        images = np.array([(r.width, r.height) for r, _ in owners], dtype=np.float32).reshape(-1, 2)
        scales = (diagnosis.detector.size / images).astype(np.float32)
        squashed = diagnosis.transforms.resize == "squash"
        return cls(
            boxes=np.concatenate([record.target.boxes for record in records]),
            images=images,
            owners=owners,
            lost=lost,
            scales=scales if squashed else np.repeat(scales.min(axis=1, keepdims=True), 2, axis=1),
        )

    @property
    def sides(self) -> Floats:
        """(N, 2) width and height in pixels of the photo."""
        sides: Floats = np.maximum(self.boxes[:, 2:] - self.boxes[:, :2], _LEAST_SIDE)
        return sides

    @property
    def input_sides(self) -> Floats:
        """(N, 2) the same in the detector's input."""
        return self.sides * self.scales


def boxes_section(diagnosis: Diagnosis) -> Html:
    every, size = AllBoxes.of(diagnosis), diagnosis.detector.size
    sides, seen = every.sides, np.sqrt(np.prod(every.input_sides, axis=1))
    photo = heat_map(
        sides[:, 0],
        sides[:, 1],
        (Bins.doubling(sides[:, 0], "width, pixels of the photo"), Bins.doubling(sides[:, 1], "height")),
        what="boxes",
        ratios=(1 / 3, 1, 3),
    )
    at_input = histogram(
        seen,
        Bins.doubling(seen, f"root of the area, pixels at {size} × {size}"),
        what="boxes",
        marked=every.lost,
    )
    low, middle, high = np.percentile(np.sqrt(np.prod(sides, axis=1)), (5, 50, 95)).tolist()
    spread = f"Nine in ten are between {low:.0f} and {high:.0f} px, half under {middle:.0f} px."
    lost = "" if not every.lost.any() else " Orange: matched well by no default box."
    centres = (every.boxes[:, :2] + every.boxes[:, 2:]) / 2 / every.images
    bins = int(np.clip(len(centres) ** 0.5 / 2, 8, 24))
    places = heat_map(
        centres[:, 0],
        centres[:, 1],
        (Bins.shares("x, share of the width", num=bins), Bins.shares("y, share of the height", num=bins)),
        what="centres",
    )
    counts = np.array([len(record.target) for record in diagnosis.records], dtype=np.float64)
    objects = histogram(counts, Bins.counting(int(counts.max()), "objects"), what="images")
    return element(
        "div",
        _chart("Sizes and shapes", f"In pixels of the photos (root of the area): {spread}", photo),
        _chart("What the detector sees", f"Photos are scaled to {size} px first.{lost}", at_input),
        _chart("Objects an image", _about_counts(counts), objects),
        _chart("Where boxes sit", "Centres of the boxes in their photos.", places),
        _image_sizes(diagnosis),
        class_="charts",
    )


def _chart(title: str, text: str, chart: Html) -> Html:
    return element("figure", element("figcaption", element("b", title), text), chart)


def _about_counts(counts: Floats | np.ndarray[tuple[int], np.dtype[np.float64]]) -> str:
    return f"On average {counts.mean():.1f}, at most {counts.max():.0f}."


def _image_sizes(diagnosis: Diagnosis) -> Html:
    sizes = Counter((record.width, record.height) for record in diagnosis.records)
    total = sizes.total()
    shares = [(_said(size), count / total) for size, count in sizes.most_common(_SAID_SIZES)]
    rest = len(sizes) - len(shares)
    if rest:
        shares.append((f"{rest:,} other sizes", 1 - sum(share for _, share in shares)))
    text = "All are of one size."
    if len(sizes) > 1:
        smallest, *_, largest = sorted(sizes, key=lambda size: size[0] * size[1])
        text = f"{len(sizes):,} sizes, from {_said(smallest)} to {_said(largest)}."
    return _chart("Sizes of the photos", text, share_bars(shares, chosen=shares[0][0]))


def _said(size: tuple[int, int]) -> str:
    return f"{size[0]} × {size[1]}"


def reach_section(diagnosis: Diagnosis, *, workers: int) -> Html:
    found = diagnosis.anchor_coverage
    if found is None:
        name = diagnosis.detector.name
        why = f"either {name} starts from no default boxes, or every object is difficult or a crowd"
        return element("p", f"Not judged: {why}.")
    every = AllBoxes.of(diagnosis)
    shares = {found.size: found.share, **found.alternatives}
    bars = share_bars(
        [(f"size={size}", shares[size]) for size in sorted(shares)], chosen=f"size={found.size}"
    )
    about = element(
        "p",
        "A detector of this kind learns an object from the default boxes that overlap it well. One that none "
        "of them overlaps well is given the nearest, which has to be moved far: it is learnt badly and found "
        "late, if at all.",
        class_="note",
    )
    return join(
        element("p", f"{found.advice[:1].upper()}{found.advice[1:]}."),
        about,
        element("h3", "Share of boxes matched well, by size of the input"),
        bars,
        _lost_pictures(diagnosis, every, workers=workers),
    )


def _lost_pictures(diagnosis: Diagnosis, every: AllBoxes, *, workers: int) -> Html:
    places = np.flatnonzero(every.lost)
    if not len(places):
        return Html("")
    ordered = places[np.argsort(np.prod(every.sides[places], axis=1))]
    chosen = [
        int(part[len(part) // 2]) for part in np.array_split(ordered, min(_LOST_PICTURES, len(ordered)))
    ]
    shots = [_lost_shot(diagnosis, every, place) for place in chosen]
    figures = [
        element("figure", picture, _lost_caption(diagnosis, every, place))
        for place, picture in zip(chosen, develop(shots, workers=workers), strict=True)
        if picture is not None
    ]
    title = (
        f"{len(figures)} of the {len(places):,} boxes that no default box matches well, from small to large"
    )
    return join(element("h3", title), element("div", *figures, class_="gallery"))


def _lost_shot(diagnosis: Diagnosis, every: AllBoxes, place: int) -> Shot:
    record, number = every.owners[place]
    x0, y0, x1, y1 = record.target.boxes[number].tolist()
    box: Box = (x0, y0, x1, y1)
    name = diagnosis.source.classes[record.target.labels[number]]
    return Shot(
        read=partial(diagnosis.source.read, record),
        alt=f"{name} in {record.key}, matched well by no default box",
        frames=(Frame(box=box, colour=LOST),),
        around=box,
        side=208,
    )


def _lost_caption(diagnosis: Diagnosis, every: AllBoxes, place: int) -> Html:
    record, number = every.owners[place]
    name = diagnosis.source.classes[record.target.labels[number]]
    (w, h), (seen_w, seen_h) = every.sides[place], every.input_sides[place]
    text = f" {w:.0f} × {h:.0f} px, at the input {seen_w:.0f} × {seen_h:.0f}"
    return element("figcaption", element("b", name), text)
