"""boxcrew: train object detectors on whatever hardware there is: exactly, fast, and explained.

`Detector`, `Classifier`, `TextModel` and `Generator` are the Python interface (`api`); `cli` is the
command. Science: `data`, `nets`, `detectors`, `runtime`, `evaluate` and `tasks` say what is computed.
Machine: `hardware`, `plan` and `deploy` say where. `train` joins them. `recipes`, `report`, `export`,
`serve`, `compare`, `submit` and `tune` use what it makes; `core` is the vocabulary of all, and `testing`
has the contracts. docs/architecture.md is the map.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from boxcrew.core.version import VERSION

if TYPE_CHECKING:
    from boxcrew.api import Classifier, Detector, Generator, TextModel

__version__ = VERSION
__all__ = ["Classifier", "Detector", "Generator", "TextModel", "__version__"]


def __getattr__(name: str) -> object:
    """Import the classes, which need torch, only when one is used, so that `--help` is quick."""
    if name in __all__:
        from boxcrew import api

        return getattr(api, name)
    raise AttributeError(f"module 'boxcrew' has no attribute {name!r}")
