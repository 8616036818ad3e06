from __future__ import annotations

import numpy as np
import pytest

from boxcrew.data.embedded.shelf.brush import Brush, silhouette
from boxcrew.data.embedded.shelf.design import Design
from boxcrew.data.embedded.shelf.distractors import DISTRACTORS
from boxcrew.data.embedded.shelf.geometry import unit_pose
from boxcrew.data.embedded.shelf.layout import CLASSES, PRODUCTS

DESIGNS = [pytest.param(d, id=f"{name}{k}") for name, ds in PRODUCTS.items() for k, d in enumerate(ds)]
DESIGNS += [pytest.param(d, id=f"distractor{k}") for k, d in enumerate(DISTRACTORS)]


def test_the_classes_are_the_promised_eight() -> None:
    assert CLASSES == ("clothes", "pants", "shoes", "watch", "phone", "audio", "computer", "books")


@pytest.mark.parametrize("name", CLASSES)
def test_every_class_has_several_designs_and_fits_every_setting(name: str) -> None:
    designs = PRODUCTS[name]
    assert len(designs) >= 2
    stances = {stance for design in designs for stance in design.stances}
    assert "flat" in stances
    assert stances & {"stand", "hang"}


@pytest.mark.parametrize("design", DESIGNS)
def test_the_painting_fills_the_outline(design: Design) -> None:
    """Unpainted pixels inside the silhouette would show the background of the patch."""
    rng = np.random.default_rng(3)
    for seed in range(6):
        traits = rng.random(4).tolist()
        outline = design.outline(traits)
        vertices = np.concatenate(outline)
        pose = unit_pose(vertices).scaled(120, np.array([64.0, 64.0]))
        mask = silhouette(pose.apply(vertices), [len(part) for part in outline], 128, 128)
        patches = [np.full((128, 128, 3), ground, dtype=np.uint8) for ground in (0, 255)]
        for patch in patches:
            design.paint(Brush(patch, pose, np.random.default_rng(seed)), traits)
        solid = mask == 255
        differs = np.abs(patches[0].astype(int) - patches[1]).max(axis=2) > 64
        assert solid.sum() > 800
        assert (differs & solid).sum() <= 0.01 * solid.sum()


@pytest.mark.parametrize("design", DESIGNS)
def test_a_design_varies_in_color(design: Design) -> None:
    outline = design.outline((0.5, 0.5, 0.5, 0.5))
    vertices = np.concatenate(outline)
    pose = unit_pose(vertices).scaled(60, np.array([32.0, 32.0]))
    means = []
    for seed in range(8):
        patch = np.zeros((64, 64, 3), dtype=np.uint8)
        design.paint(Brush(patch, pose, np.random.default_rng(seed)), (0.5, 0.5, 0.5, 0.5))
        means.append(patch.mean(axis=(0, 1)))
    assert np.std(means, axis=0).max() > 4
