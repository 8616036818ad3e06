"""Arrays and tensors of many kinds as images.

| given | taken as |
|---|---|
| (H, W), (H, W, 1), (1, H, W) | gray |
| (H, W, 3), (3, H, W) | RGB |
| (H, W, 4), (4, H, W) | RGB and alpha, which is blended with white |
| `uint8` | 0..255 |
| `uint16` | 0..65535, divided by 257 and rounded |
| `bool` | black and white |
| other integers | 0..255 |
| floats | 0..1 if none is above 1, otherwise 0..255; rounded |

A shape that can be read in two ways, such as (3, H, 3), has its channels last in an array, as OpenCV and
Pillow have them, and first in a tensor, as PyTorch has them. Anything else, NaN and values out of range
are a `UsageError` that names the type, the shape and the reason.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from PIL import Image as Pillow

from boxcrew.core.errors import UsageError
from boxcrew.core.types import Image
from boxcrew.data.images.reading import convert_pillow

if TYPE_CHECKING:
    from torch import Tensor

Values = npt.NDArray[Any]

_CHANNELS = (1, 3, 4)
_ROUNDING = 1e-4  # how far floats may be outside of their range: resizing and normalizing add rounding errors


def array_image(array: Values) -> Image:
    """Return the image of an array, by the rules of this module."""
    what = f"an array of {array.dtype} {array.shape}"
    return _to_image(np.asarray(array), what, channels_first=False)


def tensor_image(tensor: Tensor) -> Image:
    """Return the image of a tensor on any device, by the rules of this module."""
    import torch

    what = f"a tensor of {str(tensor.dtype).removeprefix('torch.')} {tuple(tensor.shape)}"
    if tensor.layout is not torch.strided or tensor.is_meta or tensor.is_quantized:
        raise _no_image(what, "give a dense tensor with data")
    tensor = tensor.detach().cpu()
    if tensor.is_floating_point() and tensor.dtype != torch.float64:
        tensor = tensor.float()  # NumPy has no bfloat16
    return _to_image(tensor.resolve_conj().resolve_neg().numpy(), what, channels_first=True)


def _to_image(values: Values, what: str, *, channels_first: bool) -> Image:
    values = _with_channels_last(values, what, channels_first=channels_first)
    if not values.size:
        raise _no_image(what, "it is empty")
    pixels = _to_bytes(values, what)
    if pixels.shape[2] == 4:
        return convert_pillow(Pillow.fromarray(np.ascontiguousarray(pixels)))  # as files are blended
    if pixels.shape[2] == 1:
        return np.repeat(pixels, 3, axis=2)
    return np.ascontiguousarray(pixels)


def _with_channels_last(values: Values, what: str, *, channels_first: bool) -> Values:
    """Return (H, W, C) with C 1, 3 or 4."""
    if values.ndim == 2:
        return values[..., None]
    if values.ndim == 3:
        for axis in (0, 2) if channels_first else (2, 0):
            if values.shape[axis] in _CHANNELS:
                return np.moveaxis(values, axis, 2)
    raise _no_image(what, "give (H, W), (H, W, C) or (C, H, W) with C 1, 3 or 4, or several in a list")


def _to_bytes(values: Values, what: str) -> Image:
    dtype = values.dtype
    if dtype == np.uint8:
        return values
    if dtype == np.bool_:
        return values.astype(np.uint8) * np.uint8(255)
    if dtype.kind == "u" and dtype.itemsize == 2:
        return ((values.astype(np.uint32) + 128) // 257).astype(np.uint8)  # as of a file with 16 bits
    if dtype.kind in "iu":
        low, high = int(values.min()), int(values.max())
        if low < 0 or high > 255:
            raise _no_image(what, f"its values are {low}..{high}: give 0..255, or uint16 of 0..65535")
        return values.astype(np.uint8)
    if dtype.kind == "f":
        return _floats_to_bytes(values, what)
    raise _no_image(what, "give uint8, or floats of 0..1")


def _floats_to_bytes(values: Values, what: str) -> Image:
    low, high = float(values.min()), float(values.max())  # both are NaN if any value is
    if not (low >= -_ROUNDING and high <= 255 + _ROUNDING):
        range_text = "some are NaN" if np.isnan(low) else f"its values are {low:.4g}..{high:.4g}"
        raise _no_image(what, f"{range_text}: give 0..1 or 0..255, before any mean is subtracted")
    scale = 255 if high <= 1 + _ROUNDING else 1
    scaled = np.multiply(values, scale, dtype=np.promote_types(values.dtype, np.float32))
    return np.clip(np.rint(scaled), 0, 255).astype(np.uint8)


def _no_image(what: str, reason: str) -> UsageError:
    return UsageError(f"{what} is not an image: {reason}")
