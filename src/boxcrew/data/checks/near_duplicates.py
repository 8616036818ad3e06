"""Images of two splits that look the same though their files differ: re-encoded, resized, mirrored."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, NamedTuple

import cv2
import numpy as np
import numpy.typing as npt

from boxcrew.core.errors import DataError
from boxcrew.core.types import Floats, Ints
from boxcrew.data.checks.threads import ProgressCallback, map_in_threads
from boxcrew.data.detection.records import Record
from boxcrew.data.detection.source import Source

Gray = npt.NDArray[np.uint8]
"""A gray image, (height, width)."""

LIMIT = 0.4
"""Pairs with a greater distance are not reported. Measured on shelves, streets, blood cells and COCO: copies
that were re-encoded, halved, mirrored, brightened or trimmed by up to 10 % have 0 to 0.31; the nearest pairs
of different images have 0.5.
"""

_SIDE = 64  # of the thumbnails that are aligned with each other
_MARGIN = 6  # thumbnail pixels ignored at each edge, so that a trimmed image aligns with the original
_ZOOMS = tuple(1.03**step for step in range(-5, 6))  # of one thumbnail against the other
_LIKENESS = 0.8  # aligned pairs with less correlation are not compared in detail
_DETAIL = 2.0  # thumbnail pixels; detail is what a blur of this deviation removes
_COARSE = 16  # side of the fingerprints, which are compared all with all
_COARSE_LIKENESS = 0.5  # pairs whose fingerprints correlate less are dropped
_CANDIDATES = 4  # most similar images of an earlier split that are aligned with each image
_BLOCK = 1024  # images compared with as many others at once: some megabytes of memory
_CHUNK = 16  # images that a thread reads at once
_PLAIN = 4.0  # standard deviation in gray levels; images that vary less all look alike


@dataclass(frozen=True, kw_only=True)
class NearDuplicate:
    """An image, and the image of an earlier split that it looks like."""

    first: str  # key of the image in the earlier split, most often train
    first_split: str
    second: str
    second_split: str
    distance: float  # 0 (the same) to LIMIT: 1 - correlation of the details of the aligned images

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, kw_only=True, eq=False)
class _SplitImages:
    """The comparable images of one split: readable and not plain."""

    split: str
    keys: tuple[str, ...]
    thumbnails: npt.NDArray[np.uint8]  # (N, _SIDE, _SIDE)
    fingerprints: Floats  # (N, _COARSE ** 2), mean 0 and length 1: dot products are correlations


class _Candidate(NamedTuple):
    second: int  # index in the later split
    first: int  # index in the earlier split
    mirrored: bool


def near_duplicates(
    source: Source, *, workers: int, progress: ProgressCallback | None = None
) -> tuple[NearDuplicate, ...]:
    """Pair each image with the nearest of an earlier split that looks like it. Closest pairs come first.
    Brightness, contrast, encoding, size and mirroring make no difference, trimming by a tenth little. Plain
    images all look alike and are not compared. `workers` threads read; an image that cannot be read is
    skipped, as `scan` reports it. Two splits are compared all with all by small fingerprints, block by block,
    then the few most similar pairs by their thumbnails.
    """
    load = partial(_thumbnail, source)
    loaded = map_in_threads(load, source.records, workers=workers, chunk_size=_CHUNK, progress=progress)
    thumbnails = dict(zip((record.key for record in source.records), loaded, strict=True))
    splits = [_comparable(split, of_split, thumbnails) for split, of_split in source.splits.items()]
    pairs: list[NearDuplicate] = []
    for number, later in enumerate(splits):
        nearest: dict[str, NearDuplicate] = {}
        for earlier in splits[:number]:
            for pair in _compare_splits(earlier, later, workers):
                best = nearest.get(pair.second)
                if best is None or pair.distance < best.distance:
                    nearest[pair.second] = pair
        pairs += nearest.values()
    return tuple(sorted(pairs, key=lambda pair: (pair.distance, pair.first, pair.second)))


def _comparable(split: str, records: Sequence[Record], thumbnails: Mapping[str, Gray | None]) -> _SplitImages:
    pairs = [(record.key, thumbnails[record.key]) for record in records]
    used = {key: gray for key, gray in pairs if gray is not None and gray.std() >= _PLAIN}
    stacked = np.array([*used.values()], dtype=np.uint8).reshape(-1, _SIDE, _SIDE)
    blocks = stacked.reshape(-1, _COARSE, _SIDE // _COARSE, _COARSE, _SIDE // _COARSE)
    flat = blocks.mean(axis=(2, 4), dtype=np.float32).reshape(-1, _COARSE**2)
    centered = flat - flat.mean(axis=1, keepdims=True)
    fingerprints = centered / np.maximum(np.linalg.norm(centered, axis=1, keepdims=True), 1e-6)
    return _SplitImages(split=split, keys=tuple(used), thumbnails=stacked, fingerprints=fingerprints)


def _thumbnail(source: Source, record: Record) -> Gray | None:
    """Return the upright image resized to (_SIDE, _SIDE), or None if it cannot be read."""
    try:
        gray = _reduced_jpeg(record)
        if gray is None:
            gray = cv2.cvtColor(source.read(record), cv2.COLOR_RGB2GRAY)
    except (OSError, DataError):
        return None
    return np.asarray(cv2.resize(gray, (_SIDE, _SIDE), interpolation=cv2.INTER_AREA))


def _reduced_jpeg(record: Record) -> Gray | None:
    """Decode a JPEG at a fraction of its size, several times faster; None for other file types."""
    data = record.path.read_bytes() if record.path else b""
    if not data.startswith(b"\xff\xd8"):
        return None
    factor = next((n for n in (8, 4, 2) if min(record.width, record.height) // _SIDE >= n), 1)
    flag = cv2.IMREAD_GRAYSCALE if factor == 1 else getattr(cv2, f"IMREAD_REDUCED_GRAYSCALE_{factor}")
    gray: Gray | None = cv2.imdecode(np.frombuffer(data, dtype=np.uint8), flag)
    return gray


def _compare_splits(earlier: _SplitImages, later: _SplitImages, workers: int) -> Iterator[NearDuplicate]:
    def measure(candidate: _Candidate) -> float:
        first, second = earlier.thumbnails[candidate.first], later.thumbnails[candidate.second]
        return _distance(np.ascontiguousarray(first[:, ::-1]) if candidate.mirrored else first, second)

    candidates = list(_candidates(earlier, later))
    distances = map_in_threads(measure, candidates, workers=workers, chunk_size=_CHUNK)
    for candidate, distance in zip(candidates, distances, strict=True):
        if distance <= LIMIT:
            first, second = earlier.keys[candidate.first], later.keys[candidate.second]
            splits = {"first_split": earlier.split, "second_split": later.split}
            yield NearDuplicate(first=first, second=second, distance=max(0.0, distance), **splits)


def _candidates(earlier: _SplitImages, later: _SplitImages) -> Iterator[_Candidate]:
    """Yield the images of the earlier split most similar to each of the later, as they are or mirrored."""
    mirrored = earlier.fingerprints.reshape(-1, _COARSE, _COARSE)[:, :, ::-1].reshape(-1, _COARSE * _COARSE)
    both = np.concatenate([earlier.fingerprints, mirrored])
    for start in range(0, len(later.keys), _BLOCK):
        best, likeness = _most_similar(later.fingerprints[start : start + _BLOCK], both)
        for row, column in zip(*np.nonzero(likeness >= _COARSE_LIKENESS), strict=True):
            is_mirrored, first = divmod(int(best[row, column]), len(earlier.keys))
            yield _Candidate(start + int(row), first, bool(is_mirrored))


def _most_similar(queries: Floats, fingerprints: Floats) -> tuple[Ints, Floats]:
    """Return the indices of the `fingerprints` most similar to each query, and their correlations, both
    (N, K); K is _CANDIDATES, or less where there are fewer fingerprints.
    """
    indices = np.zeros((len(queries), 0), dtype=np.int64)
    likeness = np.zeros((len(queries), 0), dtype=np.float32)
    for start in range(0, len(fingerprints), _BLOCK):
        block = queries @ fingerprints[start : start + _BLOCK].T
        numbers = np.broadcast_to(np.arange(start, start + block.shape[1]), block.shape)
        indices, likeness = np.hstack([indices, numbers]), np.hstack([likeness, block])
        if likeness.shape[1] > _CANDIDATES:
            kept = np.argpartition(-likeness, _CANDIDATES, axis=1)[:, :_CANDIDATES]
            indices = np.take_along_axis(indices, kept, axis=1)
            likeness = np.take_along_axis(likeness, kept, axis=1)
    return indices, likeness


def _distance(first: Gray, second: Gray) -> float:
    """Return 1 - correlation (0..2) of the details of two thumbnails, aligned at the best of some scales.
    Details decide, because two different scenes under one sky are alike in everything coarse.
    """
    middle = second[_MARGIN:-_MARGIN, _MARGIN:-_MARGIN]
    side = len(middle)
    best, under = -1.0, np.zeros_like(middle, dtype=np.float32)
    for zoom in _ZOOMS:
        size = max(round(_SIDE * zoom), side)
        scaled = cv2.resize(first, (size, size), interpolation=cv2.INTER_LINEAR)
        _, likeness, _, (x, y) = cv2.minMaxLoc(cv2.matchTemplate(scaled, middle, cv2.TM_CCOEFF_NORMED))
        if likeness > best:
            best, under = likeness, _details(scaled)[y : y + side, x : x + side]
    if best < _LIKENESS:
        return 2.0
    over = _details(second)[_MARGIN:-_MARGIN, _MARGIN:-_MARGIN]
    under, over = under - under.mean(), over - over.mean()
    lengths = float(np.linalg.norm(under) * np.linalg.norm(over))
    return 1 - (float((under * over).sum()) / lengths if lengths > 0 else 0.0)


def _details(image: Gray) -> Floats:
    exact = image.astype(np.float32)
    return np.asarray(exact - cv2.GaussianBlur(exact, (0, 0), _DETAIL))
