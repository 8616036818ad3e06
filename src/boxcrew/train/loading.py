"""A trained detector, back from its file and ready to look at photos."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from boxcrew.core.errors import ModelError
from boxcrew.data.transforms.pipeline import TransformsConfig, eval_pipeline
from boxcrew.deploy.deployment import Deployment, deploy
from boxcrew.detectors.base import DetectorNet, build_detector, detector_config_class
from boxcrew.evaluate.predictor import Predictor
from boxcrew.hardware.probe import probe_machine
from boxcrew.nets.weights import find_weights, read_weights
from boxcrew.plan.search import DeployConfig, InputWishes, make_plan
from boxcrew.train.planning import faster_format_on_cpus

Which = Literal["best", "last"]


@dataclass(frozen=True, kw_only=True, eq=False)
class Loaded:
    """A detector on its device. Use `deployment` as a context while it works."""

    detector: DetectorNet
    predictor: Predictor
    deployment: Deployment
    path: Path  # of the weights
    meta: dict[str, Any]  # what was written with them


def load_detector(place: Path, *, which: Which = "best", device: str = "auto", batch: int = 1) -> Loaded:
    """From a run directory or a weight file that boxcrew wrote."""
    path = find_weights(place, which=which)
    weights = read_weights(path)
    if weights.meta is None:
        raise ModelError(
            f"{path}: tensors without a description: not written by boxcrew",
            advice="give a run directory, or train with init=finetune init.checkpoint=FILE",
        )
    meta = dict(weights.meta)
    config = detector_config_class(meta["detector"]["name"]).of(meta["detector"])
    detector = build_detector(config, tuple(meta["classes"]))
    try:
        detector.load_state_dict(weights.state)
    except RuntimeError as error:
        raise ModelError(f"{path}: does not fit its own description: {str(error).splitlines()[0]}") from None
    plan = make_plan(
        probe_machine(),
        DeployConfig(),
        device=device,
        batch=batch,
        inputs=InputWishes(cache=0),  # each image is looked at once
        cpu_format=faster_format_on_cpus(detector),
    )
    deployment = deploy(plan)
    deployment.place(detector).eval()
    detector = deployment.lend(detector)
    pipeline = eval_pipeline(TransformsConfig.of(meta["transforms"]), config.size, config.size)
    predictor = Predictor(detector=detector, pipeline=pipeline, move=deployment.move)
    return Loaded(detector=detector, predictor=predictor, deployment=deployment, path=path, meta=meta)
