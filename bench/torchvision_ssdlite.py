"""torchvision's SSDLite on an ImageNet MobileNetV2, trained for a given time with the augmentation and the
cosine of its reference scripts, but with AdamW: of the optimizers tried it serves the peer best (see RATE).
Evaluations are not counted as training, and neither is a trial of both memory formats, of which the faster is
used.

`python -m bench.torchvision_ssdlite DATA WEIGHTS SECONDS` prints the curve.
"""

from __future__ import annotations

import copy
import json
import math
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torchvision
from torch import Tensor, nn
from torch.utils.data import DataLoader
from torchvision.io import ImageReadMode, decode_image
from torchvision.models import mobilenet_v2
from torchvision.models.detection import _utils, ssdlite
from torchvision.models.detection.anchor_utils import DefaultBoxGenerator
from torchvision.models.detection.ssd import SSD

from bench.curves import NUM_EVALUATIONS, Point
from bench.data import open_data
from bench.torchvision_data import Photos, as_lists, preset
from boxcrew.core.types import Detections
from boxcrew.data.detection.records import Record
from boxcrew.evaluate.detection.metrics import evaluate_detections
from boxcrew.evaluate.detection.types import EvaluatedImage
from boxcrew.hardware.probe import usable_cores
from boxcrew.tasks.detection import DetectionData

SIZE, BATCH = 320, 8
RATE, DECAY = 1e-3, 0.02
"""On `groceries8_voc`: AP50 0.29 after 4.8 epochs. The scripts' SGD (0.15 for 192 images, so 0.006 in
proportion) had 0.08 after 5.2 epochs at 0.03, and 0.29 only after 12.9 epochs at 0.01.
"""
WARM_UP = 0.03  # of the run
MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
TRIAL_STEPS = 3

Examples = tuple[list[Tensor], list[dict[str, Tensor]]]


def build(num_classes: int, weights: Path) -> nn.Module:
    """Build the network like `ssdlite320_mobilenet_v3_large`, with a MobileNetV2 backbone."""
    norm = partial(nn.BatchNorm2d, eps=0.001, momentum=0.03)
    backbone = mobilenet_v2(weights=None)
    state = torch.load(weights, weights_only=True)
    backbone.features.load_state_dict({name.removeprefix("features."): t for name, t in state.items()})
    for block in backbone.features:
        if hasattr(block, "conv"):  # the extractor expects MobileNetV3's name
            block.block = block.conv
    extractor = ssdlite._mobilenet_extractor(backbone, 6, norm)
    anchors = DefaultBoxGenerator([[2, 3] for _ in range(6)], min_ratio=0.2, max_ratio=0.95)
    channels = _utils.retrieve_out_channels(extractor, (SIZE, SIZE))
    head = ssdlite.SSDLiteHead(channels, anchors.num_anchors_per_location(), 1 + num_classes, norm)
    network: nn.Module = SSD(
        extractor,
        anchors,
        (SIZE, SIZE),
        1 + num_classes,
        head=head,
        image_mean=MEAN,
        image_std=DEVIATION,
        score_thresh=0.001,
        nms_thresh=0.55,
        detections_per_img=300,
        topk_candidates=300,
    )
    return network


def train(data: DetectionData, weights: Path, seconds: float) -> tuple[list[Point], str]:
    """Train for `seconds`; return the curve, and how it was measured, in words."""
    torch.manual_seed(0)
    torch.set_num_threads(max(1, int(usable_cores())))
    model = build(len(data.source.classes), weights)
    batches = _batches(data.train)
    channels_last = _is_faster_channels_last(model, next(batches))
    if channels_last:
        model.to(memory_format=torch.channels_last)
    model.train()
    optimizer = _optimizer(model)
    points: list[Point] = []
    elapsed, images = 0.0, 0
    while elapsed < seconds:
        start = time.monotonic()
        for group in optimizer.param_groups:
            group["lr"] = RATE * _factor(elapsed / seconds)
        _step(model, optimizer, next(batches))
        elapsed += time.monotonic() - start
        images += BATCH
        if elapsed >= seconds * (len(points) + 1) / NUM_EVALUATIONS:
            points.append(_evaluate(model, data, elapsed))
    how = (
        f"torchvision {torchvision.__version__}, {SIZE} px, batch {BATCH}, AdamW at {RATE}, "
        f"{'channels-last' if channels_last else 'contiguous'}, {images / elapsed:.1f} images/s, "
        f"{images / len(data.train):.1f} epochs"
    )
    return points, how


def _batches(records: Sequence[Record]) -> Iterator[Examples]:
    photos = Photos(records, preset("ssdlite", backend="pil"), backend="pil")
    loader: DataLoader[Any] = DataLoader(
        photos,
        batch_size=BATCH,
        shuffle=True,
        drop_last=True,
        num_workers=1,
        persistent_workers=True,
        prefetch_factor=8,
        collate_fn=as_lists,
    )
    while True:
        yield from loader


def _optimizer(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.AdamW(model.parameters(), lr=RATE, weight_decay=DECAY)


def _factor(progress: float) -> float:
    return min(1.0, progress / WARM_UP + 0.01) * (1 + math.cos(math.pi * progress)) / 2


def _step(model: nn.Module, optimizer: torch.optim.Optimizer, examples: Examples) -> None:
    losses: dict[str, Tensor] = model(*examples)
    optimizer.zero_grad()
    sum(losses.values(), start=torch.zeros(())).backward()  # type: ignore[no-untyped-call]
    optimizer.step()


def _is_faster_channels_last(model: nn.Module, examples: Examples) -> bool:
    seconds = []
    for memory_format in (torch.contiguous_format, torch.channels_last):
        trial = copy.deepcopy(model).to(memory_format=memory_format).train()
        optimizer = _optimizer(trial)
        _step(trial, optimizer, examples)
        start = time.monotonic()
        for _ in range(TRIAL_STEPS):
            _step(trial, optimizer, examples)
        seconds.append(time.monotonic() - start)
    return seconds[1] < seconds[0]


def _evaluate(model: nn.Module, data: DetectionData, elapsed: float) -> Point:
    model.eval()
    evaluated = [_detect(model, record) for record in data.val]
    model.train()
    numbers = evaluate_detections(evaluated, data.source.classes).numbers
    return Point(seconds=elapsed, AP50=numbers["AP50"], AP=numbers["AP"])


def _detect(model: nn.Module, record: Record) -> EvaluatedImage:
    pixels = decode_image(str(record.path), ImageReadMode.RGB, apply_exif_orientation=True)
    with torch.inference_mode():
        output = model([pixels.float() / 255])[0]
    boxes, scores, labels = (output[name].clone() for name in ("boxes", "scores", "labels"))
    return EvaluatedImage(
        key=record.key,
        width=record.width,
        height=record.height,
        target=record.target,
        detections=Detections.of(boxes=boxes, scores=scores, labels=labels - 1),
    )


def main(words: list[str]) -> None:
    folder, weights, seconds = words[0], Path(words[1]), float(words[2])
    cores = max(1, int(usable_cores()))
    data = open_data(folder, workers=cores)
    points, how = train(data, weights, seconds)
    print(json.dumps({"points": [asdict(point) for point in points], "how": how}))


if __name__ == "__main__":
    main(sys.argv[1:])
