from __future__ import annotations

import pytest
import torch

from boxcrew.core.errors import UsageError
from boxcrew.tasks.facts import ExampleFacts
from boxcrew.tasks.net_configs import CnnConfig


def pictures(height: int, width: int) -> ExampleFacts:
    return ExampleFacts(
        classes=("a", "b", "c"),
        kind="images",
        shape=(height, width, 1),
        encoding={},
        mean=(0.4,),
        std=(0.3,),
    )


@pytest.mark.parametrize(("height", "width"), [(40, 8), (8, 40), (64, 15), (8, 8), (41, 64)])
def test_pictures_need_not_be_square(height: int, width: int) -> None:
    net = CnnConfig(width=4).build(pictures(height, width))
    assert net(torch.zeros(2, 1, height, width, dtype=torch.uint8)).shape == (2, 3)


@pytest.mark.parametrize(("height", "width"), [(6, 6), (7, 40), (40, 7)])
def test_pictures_that_are_too_small_are_refused(height: int, width: int) -> None:
    with pytest.raises(UsageError, match=f"the images are {width} x {height} pixels") as raised:
        CnnConfig().build(pictures(height, width))
    assert "size=8" in raised.value.advice
