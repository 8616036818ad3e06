"""The planner's predictions for detectors other than SSD, against real runs: about 15 minutes."""

from __future__ import annotations

import tempfile
from pathlib import Path

from bench.planner import DETECTORS, PHOTOS, predictions
from bench.row import Row
from bench.small_set import write_small


def rows() -> list[Row]:
    with tempfile.TemporaryDirectory() as name:
        data = write_small("shelf", Path(name) / "data", num_train=PHOTOS, num_val=2)
        return predictions(DETECTORS, data, "python -m bench planner_detectors")
