"""The command `boxcrew predict` with a GAN: make images."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from pydantic import Field

from boxcrew.cli.output import make_screen, print_json
from boxcrew.core.config import Config, Tree
from boxcrew.data.images.reading import write_image
from boxcrew.tasks.example_drawing import enlarged
from boxcrew.tasks.gan import GanConfig, contact_sheet, normal, to_pixels
from boxcrew.train.run.directory import choose_folder
from boxcrew.train.run.loading import Loaded, Which, load_task

_STREAM = 20  # number of the random stream for the noise


class PredictImagesConfig(Config):
    run: Path
    num: int = Field(default=64, ge=1)  # of images
    seed: int = Field(default=0, ge=0)
    out: Path | None = None
    weights: Which = "best"
    device: str = "auto"


def predict_images(tree: Tree, *, as_json: bool) -> None:
    config = PredictImagesConfig.of(tree)
    loaded: Loaded[GanConfig] = load_task(
        config.run, which=config.weights, device=config.device, batch=config.num
    )
    noise = normal(config.seed, 0, np.arange(config.num), loaded.config.latent, stream=_STREAM)
    with loaded.deployment, torch.inference_mode():
        images = to_pixels(loaded.task.network(loaded.deployment.to_device(torch.from_numpy(noise))))
    folder = choose_folder(config.out, Path(loaded.config.folder) / "predict")
    (folder / "images").mkdir(parents=True, exist_ok=True)
    for number, image in enumerate(images):
        write_image(folder / "images" / f"{number:04}.png", enlarged(image, side=1))
    write_image(folder / "sheet.png", contact_sheet(images))
    screen = make_screen(as_json=as_json)
    screen.say(f"results: {folder} (sheet.png, images/)")
    if as_json:
        print_json({"out": str(folder), "num": config.num})
