"""timm, with the networks that are defined here added to its own. Importing it takes a second."""

from __future__ import annotations

import timm

from boxcrew.nets import pplcnet_v2  # noqa: F401 - registers itself

__all__ = ["timm"]
