"""SSD300-VGG16 from random weights on 32 images: a network and a loss that fit can learn them by heart."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench.row import Row

NUM_IMAGES, EPOCHS = 32, 45


def rows() -> list[Row]:
    from boxcrew.data.source import open_source
    from boxcrew.data.writers import write_source

    shelf = open_source("shelf")
    shelf.splits = {"train": shelf.splits["train"][:NUM_IMAGES], "val": shelf.splits["val"][:1]}
    with tempfile.TemporaryDirectory() as folder:
        data, out = Path(folder) / "data", Path(folder) / "run"
        write_source(shelf, data, format="voc")
        begun = time.monotonic()
        settings = [
            "data.val=train",  # what is learnt is what is asked
            f"epochs={EPOCHS}",
            "batch=4",
            "optim=adam",
            "optim.rate=2e-4",
            "optim.clip=10",
            "schedule=cosine",
            "schedule.warmup=0.05",
            "transforms.expand=1",
            "transforms.crop=false",
            "transforms.colour=0",
            "transforms.flip=0",
            "deploy.precision=bf16",  # twice as fast here; parameters and updates stay in float32
            "summaries.histograms=false",
            "saver.every_epochs=1000",
        ]
        command = [str(Path(sys.executable).with_name("boxcrew")), "train", "ssd300_vgg16"]
        subprocess.run([*command, f"data={data}", f"out={out}", *settings], check=True, stdout=sys.stderr)
        minutes = (time.monotonic() - begun) / 60
        summary = json.loads((out / "summary.json").read_text())
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
