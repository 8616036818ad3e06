"""Inputs of detectors: regions, for those that take them, and the batches that planning uses."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from boxcrew.core.input_size import Extent
from boxcrew.core.types import Batch, Image, Sample, Target
from boxcrew.data.detection.records import Record
from boxcrew.data.detection.source import Source
from boxcrew.data.loading.collate import collate
from boxcrew.data.loading.detection_samples import Regions
from boxcrew.data.loading.extra_inputs import region_inputs
from boxcrew.data.proposals.methods import SELECTIVE_SEARCH, ProposalMethod, Proposer
from boxcrew.data.proposals.store import compute_proposals
from boxcrew.data.transforms.view import View
from boxcrew.detectors import DetectorConfig, ProposalConfig
from boxcrew.tasks.data import OpenOptions
from boxcrew.tasks.rpn_proposals import require_rpn


def proposal_method(name: str) -> ProposalMethod:
    """Return the method of `detector.proposal_method`: a variant of selective search, or the path of a run or
    weight file whose detector proposes regions.
    """
    return SELECTIVE_SEARCH[name] if name in SELECTIVE_SEARCH else require_rpn(name)


def proposer_of(config: DetectorConfig) -> Proposer | None:
    """Return what proposes the regions of a new image; None for a detector that takes none."""
    if not isinstance(config, ProposalConfig):
        return None
    return Proposer(method=proposal_method(config.proposal_method), count=config.proposals)


def stored_regions(
    config: DetectorConfig, source: Source, records: Sequence[Record], options: OpenOptions
) -> Regions | None:
    """Return the regions of the records, computed if they are not stored yet; None for a detector that takes
    none.
    """
    proposer = proposer_of(config)
    if proposer is None:
        return None
    distinct = {record.key: record for record in records}
    return compute_proposals(
        list(distinct.values()),
        source,
        proposer.method,
        count=proposer.count,
        workers=options.workers,
        progress=options.progress,
    )


def largest_batch(
    num_samples: int, *, canvas: Extent, num_objects: int, num_regions: int | None = None
) -> Batch:
    """Return black images of a (width, height), each with so many objects and regions (None: no regions)."""
    image: Image = np.zeros((*canvas[::-1], 3), dtype=np.uint8)
    target = Target.of([[0, 0, *canvas]] * num_objects, [0] * num_objects)
    extra = {}
    if num_regions is not None:
        regions = np.tile(np.array([[0, 0, *canvas]], dtype=np.float32), (num_regions, 1))
        extra = region_inputs(regions, View.identity(*canvas))
    return collate([Sample(image=image, target=target, key="", extra=extra)] * num_samples)
