"""boxcrew: train object detectors on whatever hardware there is: exactly, fast, and explained."""

from __future__ import annotations

from typing import TYPE_CHECKING

from boxcrew.core.version import VERSION

if TYPE_CHECKING:
    from boxcrew.api import Detector

__version__ = VERSION
__all__ = ["Detector", "__version__"]


def __getattr__(name: str) -> object:
    """Import `Detector`, which needs torch, only when it is used, so that `--help` is quick."""
    if name == "Detector":
        from boxcrew.api import Detector

        return Detector
    raise AttributeError(f"module 'boxcrew' has no attribute {name!r}")
