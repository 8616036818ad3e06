"""Selective search: the same regions every time, stored by the content of images."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import cv2
import numpy as np
import pytest

from boxcrew.core.types import Floats, Image, Target
from boxcrew.data.detection.records import Record
from boxcrew.data.detection.source import Source, open_source
from boxcrew.data.images.reading import write_image
from boxcrew.data.proposals import methods, store
from boxcrew.data.proposals.coverage import proposal_coverage
from boxcrew.data.proposals.methods import SelectiveSearch
from boxcrew.data.proposals.store import compute_proposals, store_file

FAST = SelectiveSearch("fast")


def picture(seed: int = 0, height: int = 60, width: int = 80) -> Image:
    """A few colored rectangles on a plain ground, with a little noise."""
    rng = np.random.default_rng(seed)
    image = np.full((height, width, 3), 90, dtype=np.uint8)
    for _ in range(4):
        x, y = rng.integers(0, width - 25), rng.integers(0, height - 20)
        cv2.rectangle(
            image, (int(x), int(y)), (int(x) + 22, int(y) + 17), rng.integers(0, 255, 3).tolist(), -1
        )
    noisy: Image = np.clip(image + rng.integers(-6, 7, image.shape), 0, 255).astype(np.uint8)
    return noisy


def raw_set(image: Image) -> set[tuple[int, ...]]:
    """The boxes that OpenCV itself gives, xyxy."""
    search = cv2.ximgproc.segmentation.createSelectiveSearchSegmentation()
    search.setBaseImage(np.ascontiguousarray(image[:, :, ::-1]))
    search.switchToSelectiveSearchFast(50, 50, 0.8)
    return {(x, y, x + w, y + h) for x, y, w, h in np.asarray(search.process()).tolist()}


def test_they_are_the_set_of_opencv_without_tiny_ones() -> None:
    image = picture()
    boxes = {tuple(map(int, box)) for box in FAST(image).tolist()}
    smallest = 0.02 * 80
    assert boxes == {box for box in raw_set(image) if min(box[2] - box[0], box[3] - box[1]) >= smallest}
    assert len(boxes) > 10


def test_the_order_is_the_same_in_another_process(tmp_path: Path) -> None:
    write_image(tmp_path / "a.png", picture())
    code = (
        "from pathlib import Path; from boxcrew.data.images.reading import read_image;"
        "from boxcrew.data.proposals.methods import SelectiveSearch;"
        f"print(SelectiveSearch('fast')(read_image(Path({str(tmp_path / 'a.png')!r}))).tolist())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == str(FAST(picture()).tolist())
    assert FAST(picture()).tolist() != sorted(FAST(picture()).tolist())


def test_large_images_are_searched_at_500_pixels() -> None:
    """Boxes are in pixels of the image itself."""
    image = cv2.resize(picture(), (1600, 1200), interpolation=cv2.INTER_NEAREST)
    boxes = FAST(image)
    assert boxes.max() > 1000
    assert np.allclose(boxes[:, ::2] * 500 / 1600, np.rint(boxes[:, ::2] * 500 / 1600), atol=1e-3)


@pytest.mark.parametrize("shape", [(40, 50, 3), (1, 1, 3), (3, 200, 3)])
def test_an_image_of_one_color_is_one_region(shape: tuple[int, ...]) -> None:
    boxes = FAST(np.full(shape, 7, dtype=np.uint8))
    assert boxes.tolist() == [[0, 0, shape[1], shape[0]]]


class CountingMethod:
    """A method that says how often it was called."""

    key = "counting"

    def __init__(self) -> None:
        self.num_calls = 0

    def __call__(self, image: Image) -> Floats:
        self.num_calls += 1
        return np.array([[0, 0, image.shape[1], image.shape[0]], [1, 1, 3, 3]], dtype=np.float32)


@pytest.fixture
def photos(tmp_path: Path) -> Source:
    folder = tmp_path / "photos"
    folder.mkdir()
    for number in range(5):
        write_image(folder / f"{number}.png", picture(number))
    rows = "\n".join(f"{number}.png,5,5,30,30,cup" for number in range(5))
    (folder / "boxes.csv").write_text(f"filename,xmin,ymin,xmax,ymax,class\n{rows}\n")
    return open_source(folder)


def compute(photos: Source, method: object, folder: Path, **options: int) -> dict[str, list[list[float]]]:
    settings = {"count": 500, "workers": 1, **options}
    regions = compute_proposals(photos.records, photos, method, folder=folder, **settings)  # type: ignore[arg-type]
    return {record.key: regions(record).tolist() for record in photos.records}


def test_a_second_run_computes_nothing_unless_a_file_has_changed(photos: Source, tmp_path: Path) -> None:
    method, cache = CountingMethod(), tmp_path / "cache"
    first = compute(photos, method, cache)
    assert method.num_calls == 5
    assert compute(photos, method, cache, workers=3) == first
    assert method.num_calls == 5
    path = photos.records[0].path
    assert isinstance(path, Path)
    write_image(path, picture(77))
    compute(photos, method, cache)
    assert method.num_calls == 6
    path.rename(path.with_name("moved.png"))  # the content is what counts
    moved = replace(photos.records[0], path=path.with_name("moved.png"), key="moved.png")
    regions = compute_proposals([moved], photos, method, count=1, workers=1, folder=cache)
    assert len(regions(moved)) == 1
    assert method.num_calls == 6


def test_another_method_has_other_proposals(photos: Source, tmp_path: Path) -> None:
    compute(photos, CountingMethod(), tmp_path / "cache")
    other = CountingMethod()
    other.key = "another version"
    compute(photos, other, tmp_path / "cache")
    assert other.num_calls == 5
    assert SelectiveSearch("fast").key != SelectiveSearch("quality").key
    assert cv2.__version__ in FAST.key


def test_a_process_that_was_stopped_goes_on(
    photos: Source, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "_AT_ONCE", 2)

    class Stops(CountingMethod):
        def __call__(self, image: Image) -> Floats:
            if self.num_calls == 3:
                raise KeyboardInterrupt
            return super().__call__(image)

    with pytest.raises(KeyboardInterrupt):
        compute(photos, Stops(), tmp_path / "cache")
    method = CountingMethod()
    compute(photos, method, tmp_path / "cache")
    assert method.num_calls == 3  # two were stored before the stop


@pytest.mark.parametrize("damage", [b"", b"no database", b"SQLite format 3\0" + b"x" * 2000])
def test_a_damaged_store_is_begun_anew(photos: Source, tmp_path: Path, damage: bytes) -> None:
    method = CountingMethod()
    first = compute(photos, method, tmp_path)
    store_file(tmp_path, method).write_bytes(damage)
    assert compute(photos, method, tmp_path) == first
    assert method.num_calls == 10


def test_where_nothing_can_be_written_they_are_in_memory(photos: Source, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    method = CountingMethod()
    assert len(compute(photos, method, tmp_path / "file" / "cache")) == 5


def test_an_image_that_cannot_be_read_has_none(photos: Source, tmp_path: Path) -> None:
    path = photos.records[0].path
    assert isinstance(path, Path)
    path.write_bytes(b"not an image")
    found = compute(photos, CountingMethod(), tmp_path / "cache")
    assert [len(boxes) for boxes in found.values()] == [0, 2, 2, 2, 2]


def test_the_store_is_a_database_that_others_can_read(photos: Source, tmp_path: Path) -> None:
    method = CountingMethod()
    compute(photos, method, tmp_path)
    with sqlite3.connect(store_file(tmp_path, method)) as database:
        assert database.execute("select count(*) from proposals").fetchone() == (5,)


def record(boxes: list[list[float]], **flags: list[bool]) -> Record:
    target = Target.of(boxes, [0] * len(boxes), **flags)
    return Record(key="a", path=None, width=100, height=100, target=target)


def test_coverage_counts_objects_that_a_region_overlaps() -> None:
    objects: list[list[float]] = [[0, 0, 10, 10], [20, 20, 30, 30], [50, 50, 60, 60], [70, 70, 80, 80]]
    regions = np.array([[0, 0, 10, 10], [20, 20, 30, 26], [90, 90, 99, 99]], dtype=np.float32)
    each = record(objects, difficult=[False, False, False, True])
    coverage = proposal_coverage([each], lambda _: regions)
    assert (coverage.num_objects, coverage.mean_proposals) == (3, 3)
    assert coverage.recall50 == pytest.approx(2 / 3)
    assert coverage.recall70 == pytest.approx(1 / 3)
    assert coverage.sentence() == ("proposals: 3 an image cover 66.7% of the boxes (IoU 0.5; 33.3% at 0.7)")
    assert not coverage.is_poor
    none = proposal_coverage([each], lambda _: regions[:0])
    assert none.is_poor
    assert "cover 0% of the boxes" in none.advice()
    assert methods.LONGEST_SIDE == 500
