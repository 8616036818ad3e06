"""Optimizers by name, with weight decay on matrices only and a separate rate for the backbone."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Literal, Self

import torch
from pydantic import Field, model_validator
from torch import nn
from torch.optim import Optimizer

from boxcrew.core.config import Config
from boxcrew.core.errors import UsageError
from boxcrew.tasks.base import Task
from boxcrew.train.loop.ftrl import Ftrl

OptimizerName = Literal[
    "sgd", "momentum", "nesterov", "adam", "adamw", "rmsprop", "adagrad", "adadelta", "ftrl"
]

_BETA2 = 0.999  # adam, adamw
_HAVE_MOMENTUM = ("momentum", "nesterov", "rmsprop", "adam", "adamw")
_RATES = {"sgd": 1e-2, "adagrad": 1e-2, "adadelta": 1.0, "ftrl": 0.05}
"""The default rates of the optimizers for which it is not 1e-3."""

FUSED_ON = {"cpu", "cuda"}  # kinds of devices with fused kernels


class PhaseConfig(Config):
    """Settings that differ for the parameters that learn in one phase of a step."""

    group = "optim.phases"

    rate: float | None = Field(default=None, gt=0)
    """Learning rate in this phase."""
    momentum: float | None = Field(default=None, ge=0, lt=1)
    """Momentum in this phase."""
    weight_decay: float | None = Field(default=None, ge=0)
    """Weight decay in this phase."""


class OptimConfig(Config):
    group = "optim"
    shorthand = "name"

    name: OptimizerName = "momentum"
    """Optimizer."""
    rate: float = Field(default_factory=lambda settings: _RATES.get(settings["name"], 1e-3), gt=0)
    """Peak learning rate, which the schedule scales."""
    backbone_rate: float = Field(default=1.0, ge=0)
    """Learning rate of the backbone, as a multiple of rate."""
    momentum: float = Field(default=0.9, ge=0, lt=1)
    """Momentum of momentum, nesterov and rmsprop; beta1 of adam and adamw."""
    weight_decay: float = Field(default=5e-4, ge=0)
    """Weight decay, on weights of two or more dimensions only."""
    clip: float | None = Field(default=None, gt=0)
    """Largest norm of the whole gradient."""
    ema: float = Field(default=0.0, ge=0, lt=1)
    """Decay of the moving average of the weights; 0 keeps none."""
    reference_batch: int | None = Field(default=None, ge=1)
    """Batch size that rate was chosen for."""
    rescale: Literal["off", "linear", "sqrt"] = "off"
    """How the rate follows the batch size: off, linear or sqrt."""
    phases: dict[str, PhaseConfig] = Field(default_factory=dict)
    """Other settings for the phases of a step, for tasks that have several."""

    @model_validator(mode="after")
    def _is_consistent(self) -> Self:
        for phase, settings in self.phases.items():
            if settings.momentum is not None and self.name not in _HAVE_MOMENTUM:
                raise UsageError(
                    f"optim.phases.{phase}.momentum={settings.momentum:g}: {self.name} has none",
                    advice=f"leave it out; {', '.join(_HAVE_MOMENTUM)} have one",
                )
        if self.rescale != "off" and self.reference_batch is None:
            raise UsageError(
                f"optim.rescale={self.rescale}: the batch that optim.rate was chosen for is not known",
                advice="set it with optim.reference_batch= (recipes do, for the optimizer they have)",
            )
        return self

    def scaled_rate(self, batch: int) -> float:
        """Return the peak rate for steps of `batch` samples over all clones."""
        if self.reference_batch is None or self.rescale == "off":
            return self.rate
        ratio = batch / self.reference_batch
        return self.rate * (ratio if self.rescale == "linear" else math.sqrt(ratio))

    def explain(self, batch: int) -> list[str]:
        """Describe how the rate follows a batch that differs from `reference_batch`; empty if it does not."""
        if self.reference_batch in {None, batch}:
            return []
        stated = f"optim.rate {self.rate:g} is stated for batch {self.reference_batch}"
        if self.rescale != "off":
            scaled = f"{self.scaled_rate(batch):.3g}"
            return [f"{stated}: for batch {batch} it is {scaled} (optim.rescale={self.rescale})"]
        return [f"{stated} and used for {batch} as it is (optim.rescale=linear or sqrt would scale it)"]


def optimizer_of(task: Task, config: OptimConfig) -> Optimizer:
    """Build one optimizer for all phases: in each it updates those parameters that have a gradient."""
    unknown = config.phases.keys() - set(task.phases)
    if unknown:
        raise UsageError(f"optim.phases: {min(unknown)}: this task has {' and '.join(task.phases)}")
    second = task.network.class_backbone()
    prefixes = (task.network.backbone_prefix(), second.prefix if second else None)
    backbones = tuple(f"{task.network_name}.{prefix}" for prefix in prefixes if prefix is not None)

    def phase_of(name: str) -> str:
        return next(phase for phase in task.phases if task.learns_in(phase, name))

    optimizer = build_optimizer(task, config, backbones=backbones, phase_of=phase_of)
    optimizer.register_step_post_hook(lambda *_: task.constrain())
    return optimizer


def build_optimizer(
    task: nn.Module,
    config: OptimConfig,
    *,
    backbones: tuple[str, ...],
    phase_of: Callable[[str], str] = lambda _: "train",
) -> Optimizer:
    """Build an optimizer for all parameters. Those without a gradient (frozen ones) are never updated.
    The names of parameters of backbones begin with one of `backbones`.
    """
    grouped: dict[tuple[str, bool, bool], list[nn.Parameter]] = {}
    for name, parameter in task.named_parameters():
        in_backbone = name.startswith(backbones)
        grouped.setdefault((phase_of(name), in_backbone, parameter.ndim >= 2), []).append(parameter)
    groups = [
        {"params": parameters, **_options(config, phase, in_backbone=in_backbone, decays=decays)}
        for (phase, in_backbone, decays), parameters in grouped.items()
    ]
    # Not all optimizers have fused kernels for sharded parameters, which have a mesh.
    fused = all(p.device.type in FUSED_ON and not hasattr(p, "device_mesh") for p in task.parameters())
    return _builders(config, fused=fused)[config.name](groups, lr=config.rate)


def _options(config: OptimConfig, phase: str, *, in_backbone: bool, decays: bool) -> dict[str, Any]:
    settings = config.phases.get(phase, PhaseConfig())
    decay = config.weight_decay if settings.weight_decay is None else settings.weight_decay
    scale = 1.0 if settings.rate is None else settings.rate / config.rate
    options: dict[str, Any] = {
        "weight_decay": decay if decays else 0.0,
        "rate_scale": scale * (config.backbone_rate if in_backbone else 1.0),
    }
    if settings.momentum is not None:
        adam = config.name in {"adam", "adamw"}
        options |= {"betas": (settings.momentum, _BETA2)} if adam else {"momentum": settings.momentum}
    return options


def _builders(config: OptimConfig, *, fused: bool) -> Mapping[str, Callable[..., Optimizer]]:
    """Return the builder of each optimizer. A fused update passes through memory once and needs no extra."""
    at_once: dict[str, Any] = {"foreach": True}  # one call for all parameters, on every kind of device
    best: dict[str, Any] = {"fused": True} if fused else at_once
    momentum: dict[str, Any] = {"momentum": config.momentum}
    betas: dict[str, Any] = {"betas": (config.momentum, _BETA2), **best}
    return {
        "sgd": partial(torch.optim.SGD, **best),
        "momentum": partial(torch.optim.SGD, **momentum, **best),
        "nesterov": partial(torch.optim.SGD, nesterov=True, **momentum, **best),
        "adam": partial(torch.optim.Adam, **betas),
        "adamw": partial(torch.optim.AdamW, **betas),
        "rmsprop": partial(torch.optim.RMSprop, **momentum, **at_once),
        "adagrad": partial(torch.optim.Adagrad, **at_once),
        "adadelta": partial(torch.optim.Adadelta, **at_once),
        "ftrl": Ftrl,
    }


def set_rate(optimizer: Optimizer, rate: float) -> None:
    for group in optimizer.param_groups:
        group["lr"] = rate * group["rate_scale"]
