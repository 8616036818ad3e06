from __future__ import annotations

import numpy as np
import pytest

from boxcrew.data.examples.crops import Shape, choose_shape, resize_to
from boxcrew.data.examples.example_set import ExampleOptions


@pytest.mark.parametrize(
    ("options", "own", "shape"),
    [
        (ExampleOptions(), (28, 20, 1), (28, 20, 1)),
        (ExampleOptions(), None, (32, 32, 3)),
        (ExampleOptions(), (300, 200, 3), (32, 32, 3)),
        (ExampleOptions(size=300), (300, 200, 3), (300, 300, 3)),
        (ExampleOptions(size=16), (28, 28, 1), (16, 16, 1)),
        (ExampleOptions(size=16, shape=(40, 300, 3)), (28, 28, 1), (40, 300, 3)),
    ],
)
def test_the_shape_of_a_set(options: ExampleOptions, own: Shape | None, shape: Shape) -> None:
    assert choose_shape(options, own) == shape


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("shape", [(6, 9, 1), (6, 9, 3), (3, 3, 1), (12, 5, 3)])
def test_pictures_keep_their_place_and_brightness(channels: int, shape: Shape) -> None:
    picture = np.zeros((6, 9, channels), dtype=np.uint8)
    picture[:3] = 200
    fitted = resize_to(picture, shape)
    assert fitted.shape == shape
    assert (fitted[0] == 200).all()
    assert (fitted[-1] == 0).all()
    assert fitted.mean() == pytest.approx(100, abs=15)


def test_colors_become_gray_as_eyes_see_them() -> None:
    picture = np.zeros((2, 2, 3), dtype=np.uint8)
    picture[0, 0], picture[0, 1], picture[1, 0] = (255, 0, 0), (0, 255, 0), (0, 0, 255)
    assert resize_to(picture, (2, 2, 1)).ravel().tolist() == [76, 150, 29, 0]
