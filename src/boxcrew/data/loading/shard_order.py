"""The order of the training samples is chosen by a setting, and depends on the shards of the set."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from boxcrew.core.errors import UsageError
from boxcrew.data.config import DataConfig
from boxcrew.data.detection.formats.packed import PackedSource
from boxcrew.data.detection.records import Records
from boxcrew.data.detection.source import Source
from boxcrew.data.loading.order import BlockOrder, SampleOrder


def in_order(source: Source, data: DataConfig) -> Source:
    """Return the set as one whose training samples come in the order of the settings; `UsageError` if that
    needs shards, and it has none.
    """
    if data.order == "global":
        return source
    if not isinstance(source, PackedSource):
        advice = "leave it out, or pack the set: boxcrew data pack"
        raise UsageError(f"data.order={data.order}: {data.path} has no shards", advice=advice)
    return replace(source, goes_by_shards=True)


def order_of(source: Source, records: Records, seed: int) -> SampleOrder:
    """Return the order of the samples of a split."""
    if isinstance(source, PackedSource) and source.goes_by_shards:
        return BlockOrder(records.columns.places[records.rows].astype(np.int64), seed)
    return SampleOrder(len(records), seed)
