"""Videos are real ones, written by OpenCV, of frames in one gray each."""

from __future__ import annotations

from pathlib import Path

import cv2
import numpy as np
import pytest

from boxcrew.core.errors import BoxcrewError, DataError
from boxcrew.data.images import video
from boxcrew.data.images.video import VideoFile, VideoFrame, is_video, open_camera, open_video


@pytest.fixture(scope="module")
def clip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Ten frames, 20 gray levels apart, at 5 frames a second."""
    file = VideoFile(tmp_path_factory.mktemp("video") / "a.b", (64, 48), 5.0)
    for number in range(10):
        frame = np.full((48, 64, 3), 20 * number, dtype=np.uint8)
        frame[:, :, 0] = 255  # red
        file.add(frame)
    file.close()
    return file.path


def read(path: Path, *, stride: int = 1) -> tuple[list[VideoFrame], list[str]]:
    warnings: list[str] = []
    return list(open_video(path, stride=stride).frames(warnings.append)), warnings


def test_frames_have_numbers_times_and_pixels(clip: Path) -> None:
    assert (clip.name, is_video(clip)) == ("a.b.mp4", True)
    frames, warnings = read(clip)
    assert warnings == []
    assert [frame.number for frame in frames] == list(range(10))
    np.testing.assert_allclose([frame.seconds for frame in frames], np.arange(10) / 5, atol=1e-3)
    for frame in frames:
        assert frame.image.shape == (48, 64, 3)
        red, green, blue = frame.image.mean(axis=(0, 1))
        assert red > 235
        assert abs((green + blue) / 2 - 20 * frame.number) < 12


def test_a_stride_leaves_frames_out_and_keeps_the_speed(clip: Path) -> None:
    source = open_video(clip, stride=3)
    assert (source.num_frames, source.is_live) == (4, False)
    assert source.rate == pytest.approx(5 / 3)
    frames, _ = read(clip, stride=3)
    assert [frame.number for frame in frames] == [0, 3, 6, 9]
    for frame in frames:
        assert abs(frame.image[..., 1].mean() - 20 * frame.number) < 12


def test_what_is_no_video_is_refused(clip: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"none\.mp4: no such video file"):
        open_video(tmp_path / "none.mp4")
    whole = clip.read_bytes()
    for content in (b"", b"not a video", whole[: len(whole) // 2]):  # the last has no table of its frames
        (tmp_path / "bad.mp4").write_bytes(content)
        with pytest.raises(DataError, match=r"bad\.mp4: (cannot be read as a video|no frames can be read)"):
            read(tmp_path / "bad.mp4")


def test_a_video_that_ends_early_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(video, "_ENCODERS", ((".avi", "MJPG"),))  # whose frames can be read one by one
    random = np.random.default_rng(0)
    file = VideoFile(tmp_path / "cut", (64, 48), 5.0)
    for _ in range(10):
        file.add(random.integers(0, 256, (48, 64, 3), dtype=np.uint8))
    file.close()
    content = file.path.read_bytes()
    file.path.write_bytes(content[: len(content) // 2])
    frames, warnings = read(file.path)
    assert 2 <= len(frames) < 9
    assert warnings == [f"{file.path}: ends after {len(frames)} of 10 frames"]


def test_another_encoder_is_used_if_the_first_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(video, "_ENCODERS", ((".none", "????"), (".avi", "MJPG")))
    file = VideoFile(tmp_path / "a", (63, 47), 5.0)
    file.add(np.zeros((47, 63, 3), dtype=np.uint8))
    file.add(np.zeros((20, 30, 3), dtype=np.uint8))  # of another size
    file.close()
    assert [path.name for path in tmp_path.iterdir()] == ["a.avi"]
    assert len(read(file.path)[0]) == 2
    monkeypatch.setattr(video, "_ENCODERS", ((".none", "????"),))
    with pytest.raises(BoxcrewError, match="this build of OpenCV cannot write videos"):
        VideoFile(tmp_path / "b", (64, 48), 5.0)


def test_a_camera_that_is_not_there_is_refused() -> None:
    with pytest.raises(DataError, match="source=63: there is no camera 63 that can be opened"):
        open_camera(63)


def test_a_camera_is_live_and_must_not_end(clip: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file stands in for the device."""
    capture = cv2.VideoCapture(str(clip))
    monkeypatch.setattr(cv2, "VideoCapture", lambda index: capture)
    source = open_camera(0)
    assert (source.name, source.is_live, source.num_frames) == ("camera 0", True, 0)
    frames = source.frames(lambda _: None)
    times = [next(frames).seconds for _ in range(10)]
    assert times == sorted(times)
    with pytest.raises(DataError, match="camera 0: no more frames can be read"):
        next(frames)
