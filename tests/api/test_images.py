"""Whatever form an image has, its pixels are those of the file."""

from __future__ import annotations

import io
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from PIL import Image as Pillow

from boxcrew.api.images import as_many, find_images, load_image
from boxcrew.core.errors import DataError, UsageError
from boxcrew.core.types import Image
from boxcrew.data.images.reading import read_header, read_image

Values = npt.NDArray[Any]

RANDOM = np.random.default_rng(0)
PIXELS = RANDOM.integers(0, 256, (11, 13, 3), dtype=np.uint8)
EVERY = np.arange(256, dtype=np.uint8).reshape(16, 16)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("image") / "photo.png"
    Pillow.fromarray(PIXELS).save(path)
    return path


def loaded(image: object) -> Image:
    path, pixels = load_image(image)
    assert path is None
    assert pixels.dtype == np.uint8
    assert pixels.ndim == 3
    assert pixels.shape[2] == 3
    assert pixels.flags.c_contiguous
    return pixels


def test_a_path_is_read(file: Path) -> None:
    for given in (file, str(file)):
        path, pixels = load_image(given)
        assert path == file
        np.testing.assert_array_equal(pixels, PIXELS)


def test_the_content_of_a_file_is_decoded(file: Path) -> None:
    data = file.read_bytes()
    for image in (data, bytearray(data), memoryview(data), io.BytesIO(data)):
        np.testing.assert_array_equal(loaded(image), PIXELS)
    with file.open("rb") as opened:
        np.testing.assert_array_equal(loaded(opened), PIXELS)
        with pytest.raises(
            UsageError, match=r"photo\.png: nothing is left to read: call file\.seek\(0\) first"
        ):
            load_image(opened)


def test_files_that_are_not_open_for_bytes_are_refused(file: Path) -> None:
    with file.open(encoding="latin-1") as text, pytest.raises(UsageError, match="open it with mode 'rb'"):
        load_image(text)
    with pytest.raises(UsageError, match="cannot be read: I/O operation on closed file"):
        load_image(text)


def array_forms() -> Iterator[tuple[str, Values]]:
    wide = np.zeros((22, 26, 6), dtype=np.uint8)
    wide[::2, ::2, ::-2] = PIXELS
    fraction = PIXELS / np.float32(255)
    yield "uint8", PIXELS
    yield "strided", wide[::2, ::2, ::-2]
    yield "fortran", np.asfortranarray(PIXELS)
    yield "channels first", PIXELS.transpose(2, 0, 1)
    yield "uint16", PIXELS.astype(np.uint16) * np.uint16(257)
    yield "big endian", (PIXELS.astype(np.uint16) * np.uint16(257)).astype(">u2")
    yield "opaque", np.concatenate([PIXELS, np.full((11, 13, 1), 255, dtype=np.uint8)], axis=2)
    yield "opaque fraction", np.concatenate([fraction, np.ones((11, 13, 1), dtype=np.float32)], axis=2)
    for dtype in (
        "int16",
        "int32",
        "int64",
        "uint32",
        "uint64",
        "float16",
        "float32",
        "float64",
        "longdouble",
    ):
        yield dtype, PIXELS.astype(dtype)
    for dtype in ("float16", "float32", "float64", "longdouble"):
        yield f"{dtype} fraction", (PIXELS / 255).astype(dtype)


@pytest.mark.parametrize("array", [pytest.param(array, id=name) for name, array in array_forms()])
def test_arrays_give_the_pixels_of_the_file(array: Values) -> None:
    before = array.copy()
    np.testing.assert_array_equal(loaded(array), PIXELS)
    np.testing.assert_array_equal(array, before)


def tensor_forms() -> Iterator[tuple[str, torch.Tensor]]:
    tensor = torch.from_numpy(PIXELS.copy())
    first = tensor.permute(2, 0, 1)
    yield "channels last", tensor
    yield "channels first", first
    yield "contiguous", first.contiguous()
    yield "uint16", torch.from_numpy(PIXELS.astype(np.uint16) * np.uint16(257))
    yield "gradient", (first / 255).requires_grad_()
    for dtype in (torch.int16, torch.int32, torch.int64, torch.float16, torch.bfloat16, torch.float64):
        yield str(dtype), first.to(dtype)
    for dtype in (torch.float16, torch.float32, torch.float64):
        yield f"{dtype} fraction", (first.double() / 255).to(dtype)


@pytest.mark.parametrize("tensor", [pytest.param(tensor, id=name) for name, tensor in tensor_forms()])
def test_tensors_give_the_pixels_of_the_file(tensor: torch.Tensor) -> None:
    np.testing.assert_array_equal(loaded(tensor), PIXELS)


def test_a_tensor_on_an_accelerator_is_fetched() -> None:
    if not torch.cuda.is_available():
        pytest.skip("needs a GPU")
    np.testing.assert_array_equal(loaded(torch.from_numpy(PIXELS).cuda()), PIXELS)


def test_every_value_survives_as_a_fraction() -> None:
    """Of the types with enough digits for 256 values."""
    gray = np.repeat(EVERY[..., None], 3, axis=2)
    for dtype in (np.float16, np.float32, np.float64):
        np.testing.assert_array_equal(loaded((EVERY / 255).astype(dtype)), gray)


@pytest.mark.parametrize("shape", [(16, 16), (16, 16, 1), (1, 16, 16)])
def test_gray_has_three_equal_channels(shape: tuple[int, ...]) -> None:
    for image in (EVERY.reshape(shape), torch.from_numpy(EVERY.reshape(shape).copy())):
        np.testing.assert_array_equal(loaded(image), np.repeat(EVERY[..., None], 3, axis=2))


def test_bools_are_black_and_white() -> None:
    mask = EVERY > 100
    expected = np.repeat(np.where(mask, 255, 0)[..., None], 3, axis=2)
    np.testing.assert_array_equal(loaded(mask), expected)
    np.testing.assert_array_equal(loaded(torch.from_numpy(mask)), expected)
    np.testing.assert_array_equal(loaded(Pillow.fromarray(mask)), expected)


def test_alpha_is_blended_with_white_as_in_a_file(tmp_path: Path) -> None:
    rgba = RANDOM.integers(0, 256, (11, 13, 4), dtype=np.uint8)
    Pillow.fromarray(rgba).save(tmp_path / "a.png")
    expected = read_image(tmp_path / "a.png")
    assert np.abs(expected.astype(int) - rgba[..., :3]).mean() > 20
    for image in (rgba, rgba / 255, rgba.transpose(2, 0, 1), torch.from_numpy(rgba), Pillow.fromarray(rgba)):
        np.testing.assert_array_equal(loaded(image), expected)


def test_sixteen_bits_are_scaled_as_in_a_file(tmp_path: Path) -> None:
    gray = RANDOM.integers(0, 65536, (64, 64), dtype=np.uint16)
    Pillow.fromarray(gray).save(tmp_path / "a.png")
    np.testing.assert_array_equal(loaded(gray), read_image(tmp_path / "a.png"))
    np.testing.assert_array_equal(loaded(gray[..., None]), read_image(tmp_path / "a.png"))


def test_a_shape_of_two_meanings_has_the_meaning_of_its_library() -> None:
    array = RANDOM.integers(0, 256, (3, 5, 3), dtype=np.uint8)
    np.testing.assert_array_equal(loaded(array), array)
    np.testing.assert_array_equal(loaded(torch.from_numpy(array)), array.transpose(1, 2, 0))


def test_floats_above_one_are_rounded_and_errors_of_rounding_forgiven() -> None:
    assert loaded(np.array([[0.0, 1.6, 254.4]]))[0, :, 0].tolist() == [0, 2, 254]
    assert loaded(np.array([[-1e-6, 0.5, 1 + 1e-6]]))[0, :, 0].tolist() == [0, 128, 255]


@pytest.mark.parametrize(
    ("image", "message"),
    [
        (np.zeros((0, 4, 3), np.uint8), r"an array of uint8 \(0, 4, 3\) is not an image: it is empty"),
        (np.zeros(5, np.uint8), r"an array of uint8 \(5,\) is not an image: give \(H, W\), \(H, W, C\)"),
        (np.zeros((5, 5, 2), np.uint8), r"an array of uint8 \(5, 5, 2\) is not an image: .* C 1, 3 or 4"),
        (np.zeros((2, 5, 5, 3), np.uint8), r"uint8 \(2, 5, 5, 3\) is not an image: .* several in a list"),
        (np.array([[0, 256]]), r"an array of int64 \(1, 2\) is not an image: its values are 0\.\.256"),
        (np.array([[-1, 3]], np.int8), r"an array of int8 \(1, 2\) is not an image: its values are -1\.\.3"),
        (np.array([[0.0, 256.0]]), r"an array of float64 \(1, 2\) is not an image: its values are 0\.\.256"),
        (np.array([[-2.1, 2.6]]), r"its values are -2\.1\.\.2\.6: give 0\.\.1 or 0\.\.255, before any mean"),
        (np.array([[0.0, np.nan]]), r"an array of float64 \(1, 2\) is not an image: some are NaN"),
        (np.array([[0.0, np.inf]]), r"its values are 0\.\.inf"),
        (np.array([[1j]]), r"an array of complex128 \(1, 1\) is not an image: give uint8, or floats of"),
        (np.array([["a"]]), r"an array of <U1 \(1, 1\) is not an image"),
        (torch.zeros(2, 5, 5), r"a tensor of float32 \(2, 5, 5\) is not an image"),
        (torch.zeros(3, 0, 5), r"a tensor of float32 \(3, 0, 5\) is not an image: it is empty"),
        (torch.full((4, 4), -1.0), r"a tensor of float32 \(4, 4\) is not an image: its values are -1\.\.-1"),
        (torch.zeros(3, 4, 4).to_sparse(), r"a tensor of float32 \(3, 4, 4\) is not an image: give a dense"),
        (torch.zeros(3, 4, 4, device="meta"), "give a dense tensor with data"),
        (torch.zeros(3, 4, 4, dtype=torch.complex64), "give uint8, or floats"),
        (None, "NoneType is not an image: give a path, bytes, a binary file, a Pillow image, an array or"),
        (Pillow.new("RGB", (0, 4)), "a Pillow image of 0 x 4 is empty"),
        ("https://example.org/a.jpg", r"^https://example\.org/a\.jpg is a URL: download it, and give"),
    ],
)  # fmt: skip
def test_what_is_no_image_is_refused_in_words(image: object, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        load_image(image)


def test_data_that_is_no_image_is_refused_in_words(tmp_path: Path) -> None:
    for empty in (b"", b"hello"):
        with pytest.raises(DataError, match="image data: not an image of a known kind"):
            load_image(empty)
    (tmp_path / "a.mp4").write_bytes(b"x")
    with pytest.raises(DataError, match=r"a\.mp4 is a video, not an image: use predict_many"):
        load_image(tmp_path / "a.mp4")
    with pytest.raises(DataError, match="is a folder, not an image: use predict_many"):
        load_image(tmp_path)


MODES = (
    "1", "L", "LA", "La", "P", "PA", "RGB", "RGBA", "RGBa", "RGBX", "CMYK", "YCbCr", "HSV", "LAB", "I", "F",
    "I;16", "I;16B",
)  # fmt: skip


@pytest.mark.parametrize("mode", MODES)
def test_a_pillow_image_of_any_mode_is_converted_or_refused(mode: str) -> None:
    image = Pillow.new(mode, (6, 4))
    if mode in {"I", "F", "La"}:
        with pytest.raises(DataError, match="Pillow image"):
            load_image(image)
    else:
        assert loaded(image).shape == (4, 6, 3)


def test_a_pillow_image_whose_file_is_closed_is_refused(file: Path) -> None:
    with Pillow.open(file) as image:
        pass
    with pytest.raises(DataError, match="cannot be read"):
        load_image(image)


def test_what_is_many_images(file: Path) -> None:
    singles: tuple[object, ...] = (
        "a.jpg", file, b"a", bytearray(b"a"), memoryview(b"a"), io.BytesIO(b"a"), PIXELS, EVERY,
        torch.from_numpy(PIXELS), Pillow.fromarray(PIXELS), {"column": 1}, None,
    )  # fmt: skip
    for single in singles:
        assert as_many(single) is None, type(single)
    for many in (
        [file],
        (file,),
        {file},
        iter([file]),
        PIXELS[None],
        torch.zeros(2, 3, 4, 4),
        np.array(["a"]),
    ):
        assert as_many(many) is many, type(many)


def test_a_list_of_paths_is_relative_to_its_file(tmp_path: Path) -> None:
    (tmp_path / "lists").mkdir()
    path = tmp_path / "lists" / "mine.txt"
    path.write_text(f"\ufeff# my photos\n\n../a b.jpg  \r\n{tmp_path}/c.jpg\n", encoding="utf-8")
    assert find_images(path) == [tmp_path / "lists" / ".." / "a b.jpg", tmp_path / "c.jpg"]
    path.write_text("# nothing\n")
    with pytest.raises(DataError, match=r"mine\.txt: no image found"):
        find_images(path)


KINDS: dict[str, dict[str, Any]] = {
    "jpg": {}, "jpeg": {"progressive": True}, "png": {}, "gif": {}, "webp": {}, "bmp": {},
    "tif": {"compression": "tiff_lzw"}, "tiff": {"compression": "tiff_deflate"}, "avif": {"speed": 10},
}  # fmt: skip


def damaged(data: bytes, random: np.random.Generator) -> bytes:
    """A copy with some bytes changed, removed or repeated, or its end cut off."""
    content = bytearray(data)
    choice = random.integers(4)
    if choice == 0:
        return bytes(content[: random.integers(len(content))])
    # Half of the damage is done to the first bytes, which say how to read the others.
    length = len(content) if random.random() < 0.5 else min(len(content), 100)
    for _ in range(random.integers(1, 9)):
        place = int(random.integers(length))
        if choice == 1:
            content[place : place + 1] = bytes(random.integers(0, 256, 1, dtype=np.uint8))
        elif choice == 2:
            del content[place : place + int(random.integers(1, 20))]
        else:
            content[place:place] = content[place : place + int(random.integers(1, 20))]
    return bytes(content)


@pytest.mark.filterwarnings("ignore::UserWarning:PIL")
@pytest.mark.parametrize("suffix", KINDS)
def test_damaged_images_are_read_or_refused(suffix: str, tmp_path: Path) -> None:
    """About a thousand of all kinds, through every entrance."""
    scene = np.kron(RANDOM.integers(0, 256, (5, 6, 3), dtype=np.uint8), np.ones((8, 8, 1), dtype=np.uint8))
    path = tmp_path / f"a.{suffix}"
    Pillow.fromarray(scene).save(path, **KINDS[suffix])
    data, random = path.read_bytes(), np.random.default_rng(len(suffix) + sum(suffix.encode()))
    assert load_image(data)[1].shape == scene.shape
    entrances: tuple[Callable[[bytes], object], ...] = (
        lambda _: read_image(path),
        lambda _: read_header(path),
        lambda _: load_image(path),
        load_image,
        lambda content: load_image(io.BytesIO(content)),
        load_opened,
    )
    num_refused, start = 0, time.monotonic()
    for _ in range(112):
        content = damaged(data, random)
        path.write_bytes(content)
        for entrance in entrances:
            try:
                entrance(content)
            except (DataError, UsageError):
                num_refused += 1
    assert num_refused > 50
    assert time.monotonic() - start < 60, "none takes long"


def load_opened(data: bytes) -> None:
    """Load a Pillow image, if it is one as far as Pillow looks before its pixels are wanted."""
    try:
        image = Pillow.open(io.BytesIO(data))
    except Exception as error:
        raise DataError("what Pillow says of it is not ours") from error
    load_image(image)
