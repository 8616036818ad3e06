"""A network small enough to be trained in a test."""

from collections.abc import Sequence

BACKBONE = "test_efficientnet"  # as in boxcrew.testing.detectors, which imports torch
TINY_NET = (
    "detector.name=ssdlite",
    f"detector.backbone={BACKBONE}",
    "size=96",
    "init=scratch",
    "trainable=*",
)
TINY = (*TINY_NET, "batch=4")
"""Settings that make any recipe of a detector train in a second."""

_SAME = {"epochs": "steps", "time": "steps", "detector": "detector.name"}  # keys that exclude each other


def replaced(words: Sequence[str], settings: Sequence[str]) -> list[str]:
    """Return the words of a command with these settings in the place of those that it has for the same."""
    keys = {setting.partition("=")[0] for setting in settings}
    kept = [word for word in words if not {key := word.partition("=")[0], _SAME.get(key, key)} & keys]
    return [*kept, *settings]
