"""The Python interface of boxcrew, with the same settings as on the command line.

`Detector`, `Classifier`, `TextModel` and `Generator` each load or train a network, measure it and predict
with it; `model` has what they share. `images` and `samples` turn what a user has (files, arrays, rows, texts)
into inputs; results are those of `boxcrew.report.predictions`. `runs` is behind the commands that train.
"""

from boxcrew.api.classifier import Classifier
from boxcrew.api.detector import Detector
from boxcrew.api.generator import Generator
from boxcrew.api.images import find_images
from boxcrew.api.model import KINDS, stored_kind
from boxcrew.api.runs import plan_run, resume_run, run_config, serve_run, train_run, work_for_run
from boxcrew.api.text_model import TextModel

__all__ = [
    "KINDS", "Classifier", "Detector", "Generator", "TextModel", "find_images", "plan_run", "resume_run",
    "run_config", "serve_run", "stored_kind", "train_run", "work_for_run",
]  # fmt: skip
