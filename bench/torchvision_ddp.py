"""torchvision's detectors under torchrun, as its reference scripts train them on CPUs: a
DistributedSampler, DistributedDataParallel, SGD, and the losses averaged over all processes for the log.

`torchrun --nproc-per-node N -m bench.torchvision_ddp MODEL DATA SIZE BATCH STEPS THREADS` prints images a
second; BATCH is that of all processes together.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler
from torchvision.models import get_model

from bench.data import open_data
from bench.torchvision_data import Photos, Preset, as_lists, preset
from boxcrew.tasks.detection import DetectionData

Examples = tuple[list[Tensor], list[dict[str, Tensor]]]


def batches(data: DetectionData, name: Preset, batch: int) -> Iterator[Examples]:
    photos = Photos(data.train, preset(name, backend="pil"), backend="pil")
    sampler: DistributedSampler[int] = DistributedSampler(photos)
    loader: DataLoader[Any] = DataLoader(
        photos, batch_size=batch, sampler=sampler, drop_last=True, collate_fn=as_lists
    )
    epoch = 0
    while True:
        sampler.set_epoch(epoch)
        yield from loader
        epoch += 1


def step(model: nn.Module, optimizer: torch.optim.Optimizer, examples: Examples) -> None:
    losses: dict[str, Tensor] = model(*examples)
    with torch.no_grad():
        dist.all_reduce(torch.stack([losses[name] for name in sorted(losses)]))
    optimizer.zero_grad()
    sum(losses.values(), start=torch.zeros(())).backward()  # type: ignore[no-untyped-call]
    optimizer.step()


def main(words: list[str]) -> None:
    name, folder = words[:2]
    size, batch, num_steps, threads = map(int, words[2:])
    torch.set_num_threads(threads)
    dist.init_process_group("gloo")
    data = open_data(folder)
    torch.manual_seed(0)
    num_classes = 1 + len(data.source.classes)
    model = get_model(name, weights=None, weights_backbone=None, num_classes=num_classes).train()
    parallel = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9, weight_decay=5e-4)
    stream = batches(data, "ssdlite" if size == 320 else "ssd", batch // dist.get_world_size())
    step(parallel, optimizer, next(stream))
    start = time.monotonic()
    for _ in range(num_steps):
        step(parallel, optimizer, next(stream))
    seconds = time.monotonic() - start
    if dist.get_rank() == 0:
        print(json.dumps({"images_per_second": num_steps * batch / seconds}))
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1:])
