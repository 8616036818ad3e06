"""Reads the frames of video files and cameras, and writes videos, by OpenCV."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np

from boxcrew.core.errors import BoxcrewError, DataError
from boxcrew.core.types import Image

VIDEO_SUFFIXES = frozenset({
    ".3gp", ".avi", ".flv", ".m2ts", ".m4v", ".mkv", ".mov", ".mp4", ".mpeg", ".mpg", ".mts", ".ogv", ".webm",
    ".wmv",
})  # fmt: skip
"""The suffixes of the files that are videos, in lower case."""

_ENCODERS = ((".mp4", "mp4v"), (".avi", "MJPG"))  # not every build of OpenCV has the first
_DEFAULT_RATE = 25.0  # frames a second, where a file or a camera does not tell
_SHORTFALL = 0.9  # the number of frames in a header is an estimate

# FFmpeg would print warnings about files that the errors here report.
os.environ.setdefault("OPENCV_FFMPEG_LOGLEVEL", "-8")


@dataclass(frozen=True, kw_only=True, eq=False)
class VideoFrame:
    """A frame of a video or camera."""

    number: int  # from 0, in the video
    seconds: float  # since the first frame
    image: Image


def is_video(path: str | os.PathLike[str]) -> bool:
    """Return whether a name is that of a video file."""
    return Path(path).suffix.lower() in VIDEO_SUFFIXES


class FrameSource:
    """Frames of a video or camera, to be iterated once, each `stride`-th of them. `rate` is how many of these
    there are in a second, `num_frames` about how many in all, 0 if that is not known.
    """

    def __init__(self, capture: cv2.VideoCapture, name: str, *, stride: int, is_live: bool) -> None:
        rate = capture.get(cv2.CAP_PROP_FPS)
        self._rate = rate if 0 < rate < 1000 else _DEFAULT_RATE
        self._capture, self._stride = capture, stride
        self._num_stored = 0 if is_live else max(0, int(capture.get(cv2.CAP_PROP_FRAME_COUNT)))
        self.name, self.is_live = name, is_live  # live: a camera
        self.num_frames = -(-self._num_stored // stride)

    @property
    def rate(self) -> float:
        return self._rate / self._stride

    def frames(self, warn: Callable[[str], object]) -> Iterator[VideoFrame]:
        """Yield the frames; `warn` is called if a file ends early. `DataError` if there are none."""
        number, start = 0, time.monotonic()
        try:
            while self._capture.grab():
                if number % self._stride == 0:
                    decoded, pixels = self._capture.retrieve()
                    if not decoded:
                        break
                    yield VideoFrame(number=number, seconds=self._seconds(number, start), image=_rgb(pixels))
                number += 1
        finally:
            self._capture.release()
        if number == 0 or self.is_live:
            raise DataError(f"{self.name}: {'no' if number == 0 else 'no more'} frames can be read")
        if number < _SHORTFALL * self._num_stored:
            warn(f"{self.name}: ends after {number} of {self._num_stored} frames")

    def _seconds(self, number: int, start: float) -> float:
        if self.is_live:
            return time.monotonic() - start
        stored = self._capture.get(cv2.CAP_PROP_POS_MSEC) / 1000
        return stored if stored > 0 else number / self._rate  # some files have no times


def open_video(path: Path, *, stride: int = 1) -> FrameSource:
    """Open a video file; `DataError` if it cannot be read."""
    if not path.is_file():
        raise DataError(f"{path}: no such video file")
    capture = cv2.VideoCapture(str(path))
    if not capture.isOpened():
        raise DataError(
            f"{path}: cannot be read as a video", advice="convert it to MP4, for example by ffmpeg"
        )
    return FrameSource(capture, str(path), stride=stride, is_live=False)


def open_camera(index: int, *, stride: int = 1) -> FrameSource:
    """Open a camera by its index, 0 for the first; `DataError` if there is none."""
    capture = cv2.VideoCapture(index)
    if not capture.isOpened():
        advice = "check that it is connected, and that you may use it"
        raise DataError(f"source={index}: there is no camera {index} that can be opened", advice=advice)
    return FrameSource(capture, f"camera {index}", stride=stride, is_live=True)


class VideoFile:
    """A video file that frames of one size are added to. Its suffix depends on what OpenCV can write here."""

    def __init__(self, stem: Path, size: tuple[int, int], rate: float) -> None:
        """Open a file for frames of `size` (width, height), `rate` of them a second."""
        self._size = size
        for suffix, codec in _ENCODERS:
            self.path = stem.with_name(f"{stem.name}{suffix}")
            self._writer = cv2.VideoWriter(str(self.path), cv2.VideoWriter.fourcc(*codec), rate, size)
            if self._writer.isOpened():
                return
            self.path.unlink(missing_ok=True)
        raise BoxcrewError(f"{stem}: this build of OpenCV cannot write videos")

    def add(self, image: Image) -> None:
        """Add a frame; one of another size, which few formats have, is resized."""
        if image.shape[:2] != self._size[::-1]:
            image = cv2.resize(image, self._size, interpolation=cv2.INTER_AREA)
        self._writer.write(cv2.cvtColor(image, cv2.COLOR_RGB2BGR))

    def close(self) -> None:
        self._writer.release()


def _rgb(pixels: Image) -> Image:
    return np.asarray(cv2.cvtColor(pixels, cv2.COLOR_BGR2RGB))
