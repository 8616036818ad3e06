"""The inputs that a network is given besides the image, as arrays: regions, for detectors that take them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from boxcrew.core.types import Floats
from boxcrew.data.transforms.view import View


def region_inputs(regions: Floats, view: View) -> dict[str, npt.NDArray[Any]]:
    """Return `Sample.extra` for regions (N, 4) of the original: where the view shows them, and whether."""
    boxes, valid = view.visible_boxes(regions)
    return {"regions": boxes, "regions_valid": valid}


def pad_extra(extras: Sequence[Mapping[str, npt.NDArray[Any]]]) -> dict[str, npt.NDArray[Any]]:
    """Return (B, N, …) of each name, which every sample has with an array (n, …) of its own length; N is the
    largest of these, at least 1. The padding is zero, which is false in a mask.
    """
    stacked = {}
    for name, first in extras[0].items():
        longest = max(1, *(len(extra[name]) for extra in extras))
        padded = np.zeros((len(extras), longest, *first.shape[1:]), dtype=first.dtype)
        for row, extra in enumerate(extras):
            padded[row, : len(extra[name])] = extra[name]
        stacked[name] = padded
    return stacked
