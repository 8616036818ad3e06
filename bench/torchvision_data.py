"""Photos through torchvision's transforms, as its reference scripts for detection give them to its SSDs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any, Literal

import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import Dataset
from torchvision import tv_tensors
from torchvision.io import ImageReadMode, decode_image
from torchvision.transforms import v2

from boxcrew.data.detection.records import Record

Preset = Literal["ssd", "ssdlite"]
Backend = Literal["pil", "tensor"]  # the input of the transforms; the scripts support both

FILL = (123.0, 117.0, 104.0)


def preset(name: Preset, *, backend: Backend, size: int | None = None) -> v2.Transform:
    """Return the transforms of a script. With `size` they resize, which the scripts leave to the network."""
    steps: list[v2.Transform] = []
    if name == "ssd":
        fill: dict[Any, Any] = defaultdict(lambda: FILL)
        steps += [v2.RandomPhotometricDistort(), v2.RandomZoomOut(fill=fill)]
    steps += [v2.RandomIoUCrop(), v2.RandomHorizontalFlip(p=0.5)]
    if size is not None:
        steps.append(v2.Resize((size, size)))
    if backend == "pil":
        steps.append(v2.ToImage())
    return v2.Compose(
        [*steps, v2.ToDtype(torch.float32, scale=True), v2.SanitizeBoundingBoxes(), v2.ToPureTensor()]
    )


class Photos(Dataset[tuple[Tensor, dict[str, Tensor]]]):
    """Images as floats of 0..1 (3, H, W), with `boxes` xyxy and `labels` from 1 on: 0 is the background."""

    def __init__(self, records: Sequence[Record], transform: v2.Transform, *, backend: Backend) -> None:
        self._records = records
        self._transform = transform
        self._backend = backend

    def __len__(self) -> int:
        return len(self._records)

    def __getitem__(self, index: int) -> tuple[Tensor, dict[str, Tensor]]:
        record = self._records[index]
        count = ~record.target.crowd
        boxes = tv_tensors.BoundingBoxes(
            torch.from_numpy(record.target.boxes[count]),
            format="XYXY",
            canvas_size=(record.height, record.width),
        )
        labels = torch.from_numpy(record.target.labels[count]) + 1
        image, target = self._transform(self._read(record), {"boxes": boxes, "labels": labels})
        return image, target

    def _read(self, record: Record) -> Any:
        if self._backend == "pil":
            return Image.open(str(record.path)).convert("RGB")
        pixels = decode_image(str(record.path), ImageReadMode.RGB, apply_exif_orientation=True)
        return tv_tensors.Image(pixels)


def as_lists(
    pairs: Sequence[tuple[Tensor, dict[str, Tensor]]],
) -> tuple[list[Tensor], list[dict[str, Tensor]]]:
    """Collate as torchvision's networks expect: they resize and stack the images themselves."""
    return [image for image, _ in pairs], [target for _, target in pairs]


def as_batch(pairs: Sequence[tuple[Tensor, dict[str, Tensor]]]) -> tuple[Tensor, list[dict[str, Tensor]]]:
    """Collate images of one size into a tensor."""
    images, targets = as_lists(pairs)
    return torch.stack(images), targets
