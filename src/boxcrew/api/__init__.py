"""The Python interface of boxcrew, with the same settings as on the command line.

`Detector`, `Classifier`, `TextModel` and `Generator` each load or train a network, measure it and predict
with it; `model` has what they share, `images` and `image_arrays` make inputs of what users have, and results
are those of `boxcrew.report.predictions`. `runs` is behind the commands that train. Each module is imported
when one of its names is used: a `Detector` that uses an exported file needs no torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from boxcrew.api.classifier import Classifier
    from boxcrew.api.detector import Detector
    from boxcrew.api.generator import Generator
    from boxcrew.api.runs import plan_run, resume_run, run_config, train_run
    from boxcrew.api.text_model import TextModel

__all__ = ["Classifier", "Detector", "Generator", "TextModel"]
__all__ += ["plan_run", "resume_run", "run_config", "train_run"]

_MODULES = {
    "Classifier": "classifier",
    "Detector": "detector",
    "Generator": "generator",
    "TextModel": "text_model",
    "plan_run": "runs",
    "resume_run": "runs",
    "run_config": "runs",
    "train_run": "runs",
}


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module 'boxcrew.api' has no attribute {name!r}")
    return getattr(import_module(f"boxcrew.api.{_MODULES[name]}"), name)
