"""The Python interface of boxcrew, with the same settings as on the command line.

`Detector`, `Classifier`, `TextModel` and `Generator` each load or train a network, measure it and predict
with it; `model` has what they share, `images` and `image_arrays` make inputs of what users have, and results
are those of `boxcrew.report.predictions`. `runs` is behind the commands that train.
"""

from boxcrew.api.classifier import Classifier
from boxcrew.api.detector import Detector
from boxcrew.api.generator import Generator
from boxcrew.api.runs import plan_run, resume_run, run_config, train_run
from boxcrew.api.text_model import TextModel

__all__ = ["Classifier", "Detector", "Generator", "TextModel"]
__all__ += ["plan_run", "resume_run", "run_config", "train_run"]
