"""The accuracy of each recipe after some minutes on two CPU cores: the figures in the recipes' docstrings.

`starter` and `ssd300_vgg16` have their own benchmarks.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from bench.child import train
from bench.overfit import BY_HEART
from bench.real_data import real_data, real_weights
from bench.row import Row, skipped
from bench.small_set import write_small

COMMAND = "python -m bench recipes"
SET = "groceries8_voc"
MINUTES = 2
FEW_IMAGES, FEW_MINUTES = 4, 3
WEIGHTS = {"ssdlite_mobilenetv2": "mobilenet_v2_imagenet_features.pth"}
RECIPES = ("ssdlite_efficientnet_lite0", "ssdlite_mobilenetv2", "ssdlite320_mobilenetv3")


def rows() -> list[Row]:
    return [*map(_on_photos, RECIPES), _by_heart("ssd512_vgg16")]


def _on_photos(recipe: str) -> Row:
    data, weights = real_data(SET), None
    what = f"`{recipe}` on `{SET}`, {MINUTES} minutes"
    if recipe in WEIGHTS:
        weights = real_weights(WEIGHTS[recipe])
    if data is None or (recipe in WEIGHTS and weights is None):
        absent = SET if data is None else WEIGHTS[recipe]
        return skipped(what=what, reason=f"no {absent}", command=COMMAND)
    words = [f"data={data}", f"time={MINUTES}m", *([f"init.weights={weights}"] if weights else [])]
    return _row(
        what, recipe, words, f"time={MINUTES}m" + (f" init.weights={WEIGHTS[recipe]}" if weights else "")
    )


def _by_heart(recipe: str) -> Row:
    with tempfile.TemporaryDirectory() as folder:
        data = write_small("shelf", Path(folder) / "data", num_train=FEW_IMAGES, num_val=1)
        words = [f"data={data}", f"time={FEW_MINUTES}m", *BY_HEART]
        what = f"`{recipe}` from scratch on {FEW_IMAGES} `shelf` images, {FEW_MINUTES} minutes"
        return _row(what, recipe, words, " ".join(words[1:]))


def _row(what: str, recipe: str, words: list[str], settings: str) -> Row:
    with tempfile.TemporaryDirectory() as folder:
        summary: dict[str, Any] = train(Path(folder) / "run", recipe, *words)
    return Row(
        what=what,
        ours=f"AP50 {summary['AP50']:.3f}, AP {summary['AP']:.3f}",
        theirs="",
        verdict="reported",
        command=COMMAND,
        detail=f"one run, {summary['images_per_second']:.1f} images/s, {summary['epochs']:.1f} epochs; "
        f"{settings}",
    )
