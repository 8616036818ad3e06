"""Images that look the same in two splits though their files differ: encoded anew, resized, mirrored."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from typing import Any, TypeVar

import cv2
import numpy as np
import numpy.typing as npt

from boxcrew.core.errors import DataError
from boxcrew.core.types import Floats, Ints
from boxcrew.data.detection.source import Record, Source

Progress = Callable[[int, int], None]
"""Told (done, total) images, in the thread that asks."""

Grey = npt.NDArray[np.uint8]
"""A grey picture, (height, width)."""

LIMIT = 0.4
"""Pairs of a greater distance are not given. On photos of shelves, streets, blood cells and COCO, copies that
were encoded anew, halved, mirrored, brightened or trimmed by up to 10 % have 0 to 0.31; of different photos
the nearest have 0.5.
"""

_SIDE = 64  # of the thumbnails that are laid on each other
_MARGIN = 6  # their pixels left out at each edge, so that a trimmed image can be laid on a whole one
_ZOOMS = tuple(1.03**step for step in range(-5, 6))  # of one thumbnail against the other
_LIKENESS = 0.8  # a pair with less correlation as laid on each other is not compared in its details
_DETAIL = 2.0  # thumbnail pixels; what a blur of this deviation takes away is detail
_COARSE = 16  # side of those that are compared all with all
_COARSE_LIKENESS = 0.5  # a pair with less correlation is not looked at more closely
_CANDIDATES = 4  # the most alike images of earlier splits that are laid on each image
_BLOCK = 1024  # images compared with as many others at once: some megabytes
_CHUNK = 16  # images a thread takes at once
_PLAIN = 4.0  # grey levels of deviation; what varies less looks like any other plain image

Item = TypeVar("Item")
Result = TypeVar("Result")


@dataclass(frozen=True, kw_only=True)
class NearDuplicate:
    """An image, and the one of an earlier split that it looks like."""

    first: str  # key in the earlier split, most often train
    first_split: str
    second: str
    second_split: str
    distance: float  # 0 (the same) to LIMIT: 1 - correlation of the details, laid on each other

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, kw_only=True, eq=False)
class _Seen:
    """The images of one split as they are compared."""

    split: str
    keys: tuple[str, ...]
    thumbnails: npt.NDArray[np.uint8]  # (N, _SIDE, _SIDE)
    prints: Floats  # (N, _COARSE ** 2) of mean 0 and length 1: their products are correlations


@dataclass(frozen=True, slots=True)
class _Candidate:
    second: int  # in the later split
    first: int  # in the earlier one
    mirrored: bool


def near_duplicates(
    source: Source, *, workers: int, progress: Progress | None = None
) -> tuple[NearDuplicate, ...]:
    """For each image that looks like one of an earlier split (in the order of the source's splits), the
    nearest such image; nearest pairs first.

    Brightness, contrast, encoding, size and being mirrored make no difference, trimming by a tenth little.
    Plain images look like each other and are not compared. `workers` threads read; an image that cannot be
    read is passed over, as the scan names it. All images of two splits are compared, block by block, by
    small pictures; the few most alike then by larger ones.
    """
    total = sum(len(records) for records in source.splits.values())
    told = _Counter(total, progress)
    splits = [_look(source, split, workers, told) for split in source.splits]
    pairs: list[NearDuplicate] = []
    for number, later in enumerate(splits):
        nearest: dict[str, NearDuplicate] = {}
        for earlier in splits[:number]:
            for pair in _in_splits(earlier, later, workers):
                best = nearest.get(pair.second)
                if best is None or pair.distance < best.distance:
                    nearest[pair.second] = pair
        pairs += nearest.values()
    return tuple(sorted(pairs, key=lambda pair: (pair.distance, pair.first, pair.second)))


class _Counter:
    def __init__(self, total: int, progress: Progress | None) -> None:
        self._done, self._total, self._progress = 0, total, progress

    def add(self, count: int) -> None:
        self._done += count
        if self._progress:
            self._progress(self._done, self._total)


def _look(source: Source, split: str, workers: int, told: _Counter) -> _Seen:
    keys: list[str] = []
    thumbnails: list[Grey] = []
    for records, seen in _in_threads(lambda record: _thumbnail(source, record), source.split(split), workers):
        for record, thumbnail in zip(records, seen, strict=True):
            if thumbnail is not None and thumbnail.std() >= _PLAIN:
                keys.append(record.key)
                thumbnails.append(thumbnail)
        told.add(len(records))
    stacked = np.array(thumbnails, dtype=np.uint8).reshape(-1, _SIDE, _SIDE)
    return _Seen(split=split, keys=tuple(keys), thumbnails=stacked, prints=_prints(stacked))


def _thumbnail(source: Source, record: Record) -> Grey | None:
    """The whole upright image on (_SIDE, _SIDE); None if it cannot be read."""
    try:
        grey = _reduced_jpeg(record)
        if grey is None:
            grey = cv2.cvtColor(source.read(record), cv2.COLOR_RGB2GRAY)
    except (OSError, DataError):
        return None
    thumbnail: Grey = cv2.resize(grey, (_SIDE, _SIDE), interpolation=cv2.INTER_AREA)
    return thumbnail


def _reduced_jpeg(record: Record) -> Grey | None:
    """A JPEG decoded at a fraction of its size, which is several times quicker; None for other kinds."""
    if record.path is None:
        return None
    data = record.path.read_bytes()
    if not data.startswith(b"\xff\xd8"):
        return None
    enough = min(record.width, record.height) // _SIDE
    flag = (
        cv2.IMREAD_REDUCED_GRAYSCALE_8
        if enough >= 8
        else cv2.IMREAD_REDUCED_GRAYSCALE_4
        if enough >= 4
        else cv2.IMREAD_REDUCED_GRAYSCALE_2
        if enough >= 2
        else cv2.IMREAD_GRAYSCALE
    )
    grey: Grey | None = cv2.imdecode(np.frombuffer(data, dtype=np.uint8), flag)
    return grey


def _prints(thumbnails: npt.NDArray[np.uint8]) -> Floats:
    share = _SIDE // _COARSE
    blocks = thumbnails.reshape(len(thumbnails), _COARSE, share, _COARSE, share)
    flat = blocks.mean(axis=(2, 4), dtype=np.float32).reshape(len(thumbnails), _COARSE**2)
    centred = flat - flat.mean(axis=1, keepdims=True)
    lengths = np.maximum(np.linalg.norm(centred, axis=1, keepdims=True), 1e-6)
    return np.asarray(centred / lengths, dtype=np.float32)


def _in_splits(earlier: _Seen, later: _Seen, workers: int) -> Iterator[NearDuplicate]:
    def distance(candidate: _Candidate) -> float:
        first, second = earlier.thumbnails[candidate.first], later.thumbnails[candidate.second]
        return _distance(np.ascontiguousarray(first[:, ::-1]) if candidate.mirrored else first, second)

    candidates = list(_candidates(earlier, later))
    for some, distances in _in_threads(distance, candidates, workers):
        for candidate, apart in zip(some, distances, strict=True):
            if apart <= LIMIT:
                yield NearDuplicate(
                    first=earlier.keys[candidate.first],
                    first_split=earlier.split,
                    second=later.keys[candidate.second],
                    second_split=later.split,
                    distance=max(0.0, apart),
                )


def _candidates(earlier: _Seen, later: _Seen) -> Iterator[_Candidate]:
    """The images of the earlier split most alike to each of the later, as they are or mirrored."""
    mirrored = earlier.prints.reshape(-1, _COARSE, _COARSE)[:, :, ::-1].reshape(len(earlier.keys), -1)
    both = np.concatenate([earlier.prints, mirrored])
    for start in range(0, len(later.keys), _BLOCK):
        best, likeness = _most_alike(later.prints[start : start + _BLOCK], both)
        for row, column in zip(*np.nonzero(likeness >= _COARSE_LIKENESS), strict=True):
            turned, first = divmod(int(best[row, column]), len(earlier.keys))
            yield _Candidate(start + int(row), first, bool(turned))


def _most_alike(prints: Floats, others: Floats) -> tuple[Ints, Floats]:
    """(N, K) the indices of the most alike of `others` to each print, and how alike; K is _CANDIDATES."""
    indices = np.zeros((len(prints), 0), dtype=np.int64)
    likeness = np.zeros((len(prints), 0), dtype=np.float32)
    for start in range(0, len(others), _BLOCK):
        block = prints @ others[start : start + _BLOCK].T
        numbers = np.broadcast_to(np.arange(start, start + block.shape[1]), block.shape)
        indices, likeness = np.hstack([indices, numbers]), np.hstack([likeness, block])
        if likeness.shape[1] > _CANDIDATES:
            kept = np.argpartition(-likeness, _CANDIDATES, axis=1)[:, :_CANDIDATES]
            indices = np.take_along_axis(indices, kept, axis=1)
            likeness = np.take_along_axis(likeness, kept, axis=1)
    return indices, likeness


def _distance(first: Grey, second: Grey) -> float:
    """How unlike the details of two thumbnails are, 0..2, where the middle of one lies best on the other, at
    the best of some scales. Details tell: two scenes under one sky are alike in all that is coarse.
    """
    middle = second[_MARGIN:-_MARGIN, _MARGIN:-_MARGIN]
    side = len(middle)
    best, under = -1.0, np.zeros_like(middle, dtype=np.float32)
    for zoom in _ZOOMS:
        whole = max(round(_SIDE * zoom), side)
        scaled = cv2.resize(first, (whole, whole), interpolation=cv2.INTER_LINEAR)
        _, likeness, _, (x, y) = cv2.minMaxLoc(cv2.matchTemplate(scaled, middle, cv2.TM_CCOEFF_NORMED))
        if likeness > best:
            best, under = likeness, _details(scaled)[y : y + side, x : x + side]
    if best < _LIKENESS:
        return 2.0
    return 1 - _correlation(under, _details(second)[_MARGIN:-_MARGIN, _MARGIN:-_MARGIN])


def _details(picture: Grey) -> Floats:
    exact = picture.astype(np.float32)
    fine: Floats = exact - cv2.GaussianBlur(exact, (0, 0), _DETAIL)
    return fine


def _correlation(first: Floats, second: Floats) -> float:
    one, other = first - first.mean(), second - second.mean()
    lengths = float(np.linalg.norm(one) * np.linalg.norm(other))
    return float((one * other).sum()) / lengths if lengths > 0 else 0.0


def _in_threads(
    work: Callable[[Item], Result], items: Sequence[Item], workers: int
) -> Iterator[tuple[Sequence[Item], list[Result]]]:
    """Chunks of items with their results, in order. Threads do: OpenCV releases the interpreter's lock."""
    pool = ThreadPoolExecutor(max_workers=workers)
    chunks = [items[start : start + _CHUNK] for start in range(0, len(items), _CHUNK)]
    try:
        yield from zip(chunks, pool.map(lambda chunk: [work(item) for item in chunk], chunks), strict=True)
    finally:
        pool.shutdown(cancel_futures=True)  # or Ctrl-C would wait for all that is left
