"""Images as users have them: files, bytes, arrays, tensors and Pillow images, one or many."""

from __future__ import annotations

import glob
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, TypeVar, Union

import numpy as np
import numpy.typing as npt
from PIL import Image as Pillow

from boxcrew.api.image_arrays import array_image, tensor_image
from boxcrew.core.errors import DataError, UsageError
from boxcrew.core.types import Image
from boxcrew.data.folders import files_below, read_lines
from boxcrew.data.images.reading import IMAGE_SUFFIXES, convert_pillow, read_file
from boxcrew.data.images.source_image import DecodedImage, EncodedImage, SourceImage
from boxcrew.data.images.video import is_video

if TYPE_CHECKING:
    from torch import Tensor
    from typing_extensions import TypeIs

ImageLike = Union[
    str, os.PathLike[str], bytes, IO[bytes], EncodedImage, Pillow.Image, npt.NDArray[Any], "Tensor"
]
"""The path of a file; its content, as bytes, a file opened in binary mode or an `EncodedImage`; a Pillow
image of any mode; or an array or tensor (see `boxcrew.api.image_arrays`).
"""

Warn = Callable[[str], None]
_Item = TypeVar("_Item")
_Read = TypeVar("_Read")


def load_image(image: object) -> tuple[Path | None, Image]:
    """Return the file, or None, and the pixels of an `ImageLike`."""
    path, opened = open_image(image)
    return path, opened.read()


def open_image(image: object) -> tuple[Path | None, SourceImage]:
    """Return the file, or None, and an `ImageLike` that is decoded when it is needed. All images of users
    pass here.
    """
    if isinstance(image, EncodedImage):
        return None, image
    if isinstance(image, str | os.PathLike):
        return _open_file(os.fspath(image))
    if isinstance(image, bytes | bytearray | memoryview):
        return None, EncodedImage(bytes(image))
    if isinstance(image, Pillow.Image):
        pixels = convert_pillow(image)
        if not pixels.size:
            raise UsageError(f"a Pillow image of {image.width} x {image.height} is empty")
    elif isinstance(image, np.ndarray):
        pixels = array_image(image)
    elif _is_tensor(image):
        pixels = tensor_image(image)
    elif hasattr(image, "read"):
        return None, EncodedImage(_read_file_object(image))
    else:
        wanted = "a path, bytes, a binary file, a Pillow image, an array or a tensor"
        raise UsageError(f"{type(image).__name__} is not an image: give {wanted}")
    return None, DecodedImage(pixels)


def _is_tensor(value: object) -> TypeIs[Tensor]:
    """Return whether a value is a tensor; where torch was never imported, nothing is."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def _open_file(name: str) -> tuple[Path, SourceImage]:
    path = Path(name)
    if name.startswith(("http://", "https://")):
        raise UsageError(f"{name} is a URL: download it, and give its bytes")
    if path.is_dir():
        raise DataError(f"{name} is a folder, not an image: use predict_many")
    if is_video(path):
        raise DataError(f"{name} is a video, not an image: use predict_many")
    return path, EncodedImage(read_file(path), name=name)


def _read_file_object(file: Any) -> bytes:
    name = getattr(file, "name", type(file).__name__)
    try:
        data = file.read()
    except (OSError, ValueError) as error:  # such as a closed file, or one opened for writing
        raise UsageError(f"{name}: cannot be read: {error}") from None
    if not isinstance(data, bytes):
        raise UsageError(f"{name}: not a binary file: open it with mode 'rb'")
    if not data:
        raise UsageError(f"{name}: nothing is left to read: call file.seek(0) first")
    return data


def as_many(inputs: object) -> Iterable[object] | None:
    """Return inputs that are a list, a generator or the like; None if they are one image, row or text.

    An array or tensor of four dimensions is a batch of images.
    """
    if isinstance(inputs, np.ndarray):
        return inputs if inputs.ndim == 4 or inputs.dtype.kind in "OU" else None
    if _is_tensor(inputs):
        return inputs if inputs.ndim == 4 else None
    single = isinstance(inputs, str | bytes | bytearray | memoryview | Path | Mapping)
    if single or hasattr(inputs, "read") or not isinstance(inputs, Iterable):
        return None
    return inputs


def each_of(inputs: object) -> Iterable[object]:
    """Return the inputs of `as_many`, or the only one."""
    many = as_many(inputs)
    return [inputs] if many is None else many


def find_images(source: str | os.PathLike[str]) -> list[Path]:
    """Return the images of a file, a folder, a glob pattern (in order of name) or a .txt file of paths (in
    its order); `DataError` if there is none.
    """
    path = Path(source)
    if path.is_file():
        files = read_list(path) if path.suffix.lower() == ".txt" else [path]
    elif path.is_dir():
        files = files_below(path, IMAGE_SUFFIXES)
    else:
        files = sorted(Path(p) for p in glob.glob(str(source), recursive=True) if Path(p).is_file())  # noqa: PTH207 - patterns may be absolute
    if not files:
        advice = "give an image, a folder, a 'glob*.jpg' or a .txt list of paths"
        raise DataError(f"source={source}: no image found", advice=advice)
    return files


def read_list(path: Path) -> list[Path]:
    """Return the paths in a text file, one on each line and relative to the file. Blank lines and those that
    begin with # are skipped.
    """
    return [path.parent / line for line in read_lines(path) if not line.startswith("#")]


def read_ahead(
    items: Iterable[_Item], read: Callable[[_Item], _Read], *, batch: int, warn: Warn | None = None
) -> Iterator[list[_Read]]:
    """Yield batches of what `read` returns, while a thread reads the next: decoding releases the interpreter.

    Items that raise `DataError` or `UsageError` are left out with a warning; without `warn` the error is
    raised.
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
                except (DataError, UsageError) as error:
                    if warn is None:
                        raise
                    warn(f"left out: {error.message}")
            if loaded:
                yield loaded
