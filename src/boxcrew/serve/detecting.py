"""Finds objects in a photo, and measures how long each step takes."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from boxcrew.core.input_size import Extent
from boxcrew.core.types import Detections
from boxcrew.data.images.source_image import SourceImage
from boxcrew.runtime.predictor import DetectionPredictor
from boxcrew.serve.photo import NamedPhoto


@dataclass(frozen=True, kw_only=True, eq=False)
class Finding:
    """The detections in one photo."""

    name: str
    image: SourceImage
    extent: Extent  # (width, height) of the upright photo
    detections: Detections
    milliseconds: dict[str, float]  # by stage: decode, queue, network, post


def find(
    predictor: DetectionPredictor,
    photo: NamedPhoto,
    *,
    queue_seconds: float = 0.0,
    require_time: Callable[[], None] = lambda: None,
) -> Finding:
    """Detect objects in a photo as an evaluation does. `require_time` raises an error between two steps if
    nobody waits for the answer any more.
    """
    require_time()
    start = time.perf_counter()
    image = photo.open()
    prepared = predictor.prepare(image)
    decoded = time.perf_counter()
    require_time()
    (detections,), seconds = predictor([prepared])
    stages = {
        "decode": decoded - start,
        "queue": queue_seconds,
        "network": seconds.network,
        "post": time.perf_counter() - decoded - seconds.network,
    }
    return Finding(
        name=photo.name,
        image=image,
        extent=prepared.extent,
        detections=detections,
        milliseconds={name: round(1000 * value, 2) for name, value in stages.items()},
    )
