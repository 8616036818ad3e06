"""Images as users have them: files, arrays and Pillow images, one or many."""

from __future__ import annotations

import glob
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from typing import TypeVar

import numpy as np
from PIL import Image as Pillow
from torch import Tensor

from boxcrew.core.errors import DataError, UsageError
from boxcrew.core.types import Image
from boxcrew.data.images.reading import IMAGE_SUFFIXES, convert_pillow, read_image

ImageLike = str | Path | Pillow.Image | Image
"""A file, a Pillow image, or an RGB array (height, width, 3) of uint8."""

Warn = Callable[[str], None]
_Item = TypeVar("_Item")
_Read = TypeVar("_Read")


def load_image(image: object) -> tuple[Path | None, Image]:
    """Return the file, or None, and the pixels of an `ImageLike`. All images of users pass here."""
    if isinstance(image, str | Path):
        if Path(image).is_dir():
            raise DataError(f"{image} is a folder, not an image: use predict_many")
        return Path(image), read_image(Path(image))
    if isinstance(image, Pillow.Image):
        return None, convert_pillow(image)
    name = type(image).__name__
    if isinstance(image, np.ndarray):
        if image.dtype == np.uint8 and image.ndim == 3 and image.shape[2] == 3 and image.size:
            return None, image
        name = f"an array of {image.dtype} {image.shape}"
    wanted = "a path, a Pillow image or an RGB array (height, width, 3) of uint8"
    raise UsageError(f"{name} is not an image: give {wanted}")


def as_many(inputs: object) -> Iterable[object] | None:
    """Return inputs that are a list, a generator or the like; None if they are one image, row or text."""
    single = isinstance(inputs, str | bytes | Path | np.ndarray | Tensor | Mapping)
    return inputs if isinstance(inputs, Iterable) and not single else None


def find_images(source: str | Path) -> list[Path]:
    """Return the images of a file, folder or glob pattern in order of name; `DataError` if there is none."""
    path = Path(source)
    if path.is_file():
        return [path]
    if path.is_dir():
        files = sorted(p for p in path.rglob("*") if p.suffix.lower() in IMAGE_SUFFIXES)
    else:
        files = sorted(Path(p) for p in glob.glob(str(source), recursive=True) if Path(p).is_file())  # noqa: PTH207 - patterns may be absolute
    if not files:
        raise DataError(f"source={source}: no image found", advice="give an image, a folder or a 'glob*.jpg'")
    return files


def read_ahead(
    items: Iterable[_Item], read: Callable[[_Item], _Read], *, batch: int, warn: Warn | None = None
) -> Iterator[list[_Read]]:
    """Yield batches of what `read` returns, while a thread reads the next: decoding releases the interpreter.

    Items that raise `DataError` are left out with a warning; without `warn` the error is raised.
    """
    rest = iter(items)
    with ThreadPoolExecutor(max_workers=1) as reader:
        coming = [reader.submit(read, item) for item in islice(rest, batch)]
        while coming:
            present, coming = coming, [reader.submit(read, item) for item in islice(rest, batch)]
            loaded = []
            for future in present:
                try:
                    loaded.append(future.result())
                except DataError as error:
                    if warn is None:
                        raise
                    warn(f"left out: {error.message}")
            if loaded:
                yield loaded
