"""The sections of the doctor's page about boxes and images, and about what the detector can match."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import partial

import numpy as np

from boxcrew.core.types import Bools, Floats
from boxcrew.data.checks.box_repair import Box
from boxcrew.data.detection.records import Record
from boxcrew.data.proposals.coverage import ProposalCoverage
from boxcrew.data.transforms.pipeline import eval_pipeline
from boxcrew.report.doctor.charts import LOST, Bins, heat_map, histogram, percent, share_bars
from boxcrew.report.doctor.markup import Html, element, join
from boxcrew.report.doctor.report import Diagnosis
from boxcrew.report.doctor.thumbnails import Frame, Thumbnail, render_figures

_MAX_LOST = 12  # lost boxes that are shown
_LEAST_SIDE = 0.25  # pixels: the least side that charts show, since zero has no logarithm
_MAX_SIZES = 7  # sizes of images that are listed, the commonest first


@dataclass(frozen=True, kw_only=True, eq=False)
class AllBoxes:
    """All N boxes of the data set with their images."""

    boxes: Floats  # (N, 4) xyxy in pixels of the image
    images: Floats  # (N, 2) width and height of the image
    owners: tuple[tuple[Record, int], ...]  # the record, and the index of the box in it
    lost: Bools  # (N,) whether it is not matched well
    scales: Floats  # (N, 2) factors from the image to the detector's input, in x and y

    @classmethod
    def of(cls, diagnosis: Diagnosis) -> AllBoxes:
        records = diagnosis.records
        owners = tuple((record, i) for record in records for i in range(len(record.target)))
        lost = np.zeros(len(owners), dtype=np.bool_)
        if diagnosis.anchor_coverage is not None:
            lost[diagnosis.anchor_coverage.lost] = True
        images = np.array([r.extent for r, _ in owners], dtype=np.float32).reshape(-1, 2)
        pipeline = eval_pipeline(diagnosis.transforms, diagnosis.detector.size)
        scales = {extent: pipeline.scale(extent) for extent in {record.extent for record in records}}
        return cls(
            boxes=np.concatenate([record.target.boxes for record in records]),
            images=images,
            owners=owners,
            lost=lost,
            scales=np.array([scales[r.extent] for r, _ in owners], dtype=np.float32).reshape(-1, 2),
        )

    @property
    def sides(self) -> Floats:
        """Width and height (N, 2) in pixels of the image."""
        sides: Floats = np.maximum(self.boxes[:, 2:] - self.boxes[:, :2], _LEAST_SIDE)
        return sides

    @property
    def input_sides(self) -> Floats:
        """Width and height (N, 2) in pixels of the detector's input."""
        return self.sides * self.scales


def boxes_section(diagnosis: Diagnosis) -> Html:
    all_boxes, size = AllBoxes.of(diagnosis), diagnosis.detector.size.largest.describe()
    sides, input_side = all_boxes.sides, np.sqrt(np.prod(all_boxes.input_sides, axis=1))
    shapes = heat_map(
        sides,
        (Bins.doubling(sides[:, 0], "width, pixels of the photo"), Bins.doubling(sides[:, 1], "height")),
        noun="boxes",
        ratios=(1 / 3, 1, 3),
    )
    at_input = histogram(
        input_side,
        Bins.doubling(input_side, f"root of the area, pixels at {size}"),
        noun="boxes",
        marked=all_boxes.lost,
    )
    low, middle, high = np.percentile(np.sqrt(np.prod(sides, axis=1)), (5, 50, 95)).tolist()
    quantiles = f"Nine in ten are between {low:.0f} and {high:.0f} px, half under {middle:.0f} px."
    lost = "" if not all_boxes.lost.any() else " Orange: not matched well."
    centers = (all_boxes.boxes[:, :2] + all_boxes.boxes[:, 2:]) / 2 / all_boxes.images
    bins = int(np.clip(len(centers) ** 0.5 / 2, 8, 24))
    positions = heat_map(
        centers,
        (Bins.shares("x, share of the width", num=bins), Bins.shares("y, share of the height", num=bins)),
        noun="centers",
    )
    counts = np.array([len(record.target) for record in diagnosis.records], dtype=np.float64)
    objects = histogram(counts, Bins.counting(int(counts.max()), "objects"), noun="images")
    return element(
        "div",
        _chart("Sizes and shapes", f"In pixels of the photos (root of the area): {quantiles}", shapes),
        _chart("What the detector sees", f"Photos are scaled to {size} first.{lost}", at_input),
        _chart(
            "Objects in an image", f"On average {counts.mean():.1f}, at most {counts.max():.0f}.", objects
        ),
        _chart("Where boxes are", "Centers of the boxes in their photos.", positions),
        _image_sizes(diagnosis),
        class_="charts",
    )


def _chart(title: str, text: str, chart: Html) -> Html:
    return element("figure", element("figcaption", element("b", title), text), chart)


def _image_sizes(diagnosis: Diagnosis) -> Html:
    sizes = Counter(record.extent for record in diagnosis.records)
    total = sizes.total()
    shares = [(_size_text(size), count / total) for size, count in sizes.most_common(_MAX_SIZES)]
    rest = len(sizes) - len(shares)
    if rest:
        shares.append((f"{rest:,} other sizes", 1 - sum(share for _, share in shares)))
    text = "All have the same size."
    if len(sizes) > 1:
        smallest, *_, largest = sorted(sizes, key=lambda size: size[0] * size[1])
        text = f"{len(sizes):,} sizes, from {_size_text(smallest)} to {_size_text(largest)}."
    return _chart("Sizes of the photos", text, share_bars(shares, chosen=shares[0][0]))


def _size_text(size: tuple[int, int]) -> str:
    return f"{size[0]} × {size[1]}"


def coverage_section(diagnosis: Diagnosis, *, workers: int) -> Html:
    coverage = diagnosis.anchor_coverage
    if diagnosis.proposal_coverage is not None:
        return _proposal_coverage(diagnosis.proposal_coverage)
    if coverage is None:
        config = diagnosis.detector
        reason = f"either {config.name} matches objects to nothing, or every object is difficult or a crowd"
        return element("p", f"Not measured: {reason}.")
    chosen = coverage.size.sides[-1]
    shares = {chosen: coverage.matched_fraction, **coverage.alternatives}
    bars = share_bars([(f"size={size}", shares[size]) for size in sorted(shares)], chosen=f"size={chosen}")
    about = element(
        "p",
        f"A detector of this kind learns an object from the {diagnosis.detector.learned_from} that fit it "
        "well. If there are none, it gets the nearest, which fits badly: such an object is learned badly.",
        class_="note",
    )
    return join(
        element("p", f"{coverage.advice[:1].upper()}{coverage.advice[1:]}."),
        about,
        element("h3", "Share of boxes matched well, by size of the input"),
        bars,
        _lost_gallery(diagnosis, AllBoxes.of(diagnosis), workers=workers),
    )


def _proposal_coverage(coverage: ProposalCoverage) -> Html:
    text = (
        "A detector of this kind classifies regions that selective search proposes. It cannot find an object "
        "that no region covers."
    )
    shares = [("IoU 0.5 or more", coverage.recall50), ("IoU 0.7 or more", coverage.recall70)]
    return join(
        element(
            "p",
            f"{coverage.mean_proposals:.0f} proposals an image cover {percent(coverage.recall50)} "
            f"of the {coverage.num_objects:,} boxes.",
        ),
        element("p", text, class_="note"),
        element("h3", "Share of boxes that a proposal covers, by overlap"),
        share_bars(shares, chosen=shares[0][0]),
    )


def _lost_gallery(diagnosis: Diagnosis, all_boxes: AllBoxes, *, workers: int) -> Html:
    lost = np.flatnonzero(all_boxes.lost)
    if not len(lost):
        return Html("")
    ordered = lost[np.argsort(np.prod(all_boxes.sides[lost], axis=1))]
    groups = np.array_split(ordered, min(_MAX_LOST, len(ordered)))
    chosen = [int(group[len(group) // 2]) for group in groups]
    thumbnails = [_lost_thumbnail(diagnosis, all_boxes, index) for index in chosen]
    figures = render_figures(thumbnails, workers=workers)
    num_shown = sum(map(bool, figures))
    title = f"{num_shown} of the {len(lost):,} boxes that are not matched well, from small to large"
    return join(element("h3", title), element("div", *figures, class_="gallery"))


def _lost_thumbnail(diagnosis: Diagnosis, all_boxes: AllBoxes, index: int) -> Thumbnail:
    record, number = all_boxes.owners[index]
    x0, y0, x1, y1 = record.target.boxes[number].tolist()
    box: Box = (x0, y0, x1, y1)
    name = diagnosis.source.classes[record.target.labels[number]]
    (w, h), (input_w, input_h) = all_boxes.sides[index], all_boxes.input_sides[index]
    sizes = f" {w:.0f} × {h:.0f} px, at the input {input_w:.0f} × {input_h:.0f}"
    return Thumbnail(
        read=partial(diagnosis.source.read, record),
        alt=f"{name} in {record.key}, not matched well",
        frames=(Frame(box=box, color=LOST),),
        around=box,
        side=208,
        caption=element("figcaption", element("b", name), sizes),
    )
