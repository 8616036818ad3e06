"""SSD300-VGG16 from random weights must overfit 32 images."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

from bench.child import train
from bench.row import Row
from bench.small_set import write_small

NUM_IMAGES, EPOCHS = 32, 45
BY_HEART = (
    "data.val=train",  # it is evaluated on the training images
    "batch=4",
    "optim=adam",
    "optim.rate=2e-4",
    "optim.clip=10",
    "schedule=cosine",
    "schedule.warmup=0.05",
    "transforms.expand=1",
    "transforms.crop=false",
    "transforms.color=0",
    "transforms.flip=0",
    "deploy.precision=bf16",  # twice as fast here; parameters and updates stay in float32
    "summaries.histograms=false",
    "saver.every_epochs=1000",
)


def rows() -> list[Row]:
    with tempfile.TemporaryDirectory() as folder:
        data = write_small("shelf", Path(folder) / "data", num_train=NUM_IMAGES, num_val=1)
        start = time.monotonic()
        settings = (f"epochs={EPOCHS}", *BY_HEART)
        summary = train(Path(folder) / "run", "ssd300_vgg16", f"data={data}", *settings)
        minutes = (time.monotonic() - start) / 60
    return [
        Row(
            what=f"`ssd300_vgg16` from scratch on {NUM_IMAGES} `shelf` images",
            ours=f"AP50 {summary['AP50']:.3f}",
            theirs="aim: AP50 above 0.95",
            verdict="met" if summary["AP50"] > 0.95 else "missed",
            command="python -m bench overfit",
            detail=f"{EPOCHS} epochs in {minutes:.0f} minutes; {' '.join(settings)}",
        )
    ]
