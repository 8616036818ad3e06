"""A folder of predictions for a video, written while they are made."""

from __future__ import annotations

import json
from pathlib import Path

from boxcrew.core.units import counted
from boxcrew.data.images.video import VideoFile
from boxcrew.report.predictions import Result


class PredictionVideo:
    """The files about a video: a copy of it with the boxes drawn, and `predictions.jsonl` with a line for
    each frame. The lines are written at once; the copy can be played after `close`.
    """

    def __init__(self, folder: Path, *, stem: str, rate: float) -> None:
        self._video: VideoFile | None = None  # until the size of its frames is known
        self._stem, self._rate, self._num = folder / stem, rate, 0
        self._lines = (folder / "predictions.jsonl").open("w", encoding="utf-8", buffering=1)

    @property
    def contents(self) -> str:
        """The files, for people."""
        video = f"{self._video.path.name} of {counted(self._num, 'frame')}, " if self._video else ""
        return f"{video}predictions.jsonl"

    def add(self, result: Result) -> None:
        if self._video is None:
            self._video = VideoFile(self._stem, result.source.extent, self._rate)
        self._video.add(result.plot())
        self._num += 1
        self._lines.write(json.dumps(result.to_json(), ensure_ascii=False, allow_nan=False) + "\n")

    def close(self) -> None:
        with self._lines:
            if self._video is not None:
                self._video.close()
