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
from boxcrew.plan.places import layouts_of
from boxcrew.plan.plan import Clone, Plan, Replica
from boxcrew.plan.search import fast_precision, usual_workers
from boxcrew.plan.wishes import DeployConfig, Order
from boxcrew.tasks.account import has_depthwise

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
    deployment = deploy(_plan_for(detector, device=device, batch=batch))
    deployment.place(detector).eval()
    detector = deployment.lend(detector)
    pipeline = eval_pipeline(TransformsConfig.of(meta["transforms"]), config.size, config.size)
    predictor = Predictor(detector=detector, pipeline=pipeline, move=deployment.move)
    return Loaded(detector=detector, predictor=predictor, deployment=deployment, path=path, meta=meta)


def _plan_for(detector: DetectorNet, *, device: str, batch: int) -> Plan:
    """To look, not to learn: on one device, of which it needs little."""
    machine = probe_machine()
    order = Order(device=device, batch=batch, deploy=DeployConfig(replicas=1), num_samples=batch, steps=1)
    chosen = layouts_of(machine, order)[0].devices[0]
    is_faster = chosen.kind != "cpu" or has_depthwise(detector)
    return Plan(
        replicas=(Replica(clones=(Clone(device=chosen.name, share=batch),)),),
        parameter_device=chosen.name,
        optimizer_device=chosen.name,
        batch=batch,
        precision=fast_precision([chosen]),
        memory_format="channels_last" if is_faster else "contiguous",
        threads=max(1, int(machine.cores)),
        loader_workers=usual_workers(machine.cores, [chosen]),
    )
