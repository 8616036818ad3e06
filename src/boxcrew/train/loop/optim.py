"""Optimizers: by name, with decay on weights alone and a rate of its own for the backbone."""

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
"""Where an optimizer's usual rate is not that of the others, a thousandth."""


FUSED_ON = {"cpu", "cuda"}  # kinds of devices that have kernels for it


class PhaseConfig(Config):
    """What is otherwise for the parameters that learn in one phase of a step."""

    group = "optim.phases"

    rate: float | None = Field(default=None, gt=0)
    momentum: float | None = Field(default=None, ge=0, lt=1)
    weight_decay: float | None = Field(default=None, ge=0)


class OptimConfig(Config):
    group = "optim"
    shorthand = "name"

    name: OptimizerName = "momentum"
    rate: float = Field(default_factory=lambda settings: _RATES.get(settings["name"], 1e-3), gt=0)
    """At its height; the schedule scales it."""
    backbone_rate: float = Field(default=1.0, ge=0)  # the backbone's rate, as a multiple of `rate`
    momentum: float = Field(default=0.9, ge=0, lt=1)  # momentum, nesterov, rmsprop; beta1 of adam and adamw
    weight_decay: float = Field(default=5e-4, ge=0)  # on weights of two or more dimensions only
    clip: float | None = Field(default=None, gt=0)  # the greatest norm of the whole gradient
    ema: float = Field(default=0.0, ge=0, lt=1)  # decay of the moving average of the weights; 0 keeps none
    stated_for: int | None = Field(default=None, ge=1)  # the batch that `rate` was chosen for
    rescale: Literal["off", "linear", "sqrt"] = "off"  # how the rate follows the batch away from that
    phases: dict[str, PhaseConfig] = Field(default_factory=dict)  # of tasks that have several

    @model_validator(mode="after")
    def _has_momentum_in_phases(self) -> Self:
        for phase, own in self.phases.items():
            if own.momentum is not None and self.name not in _HAVE_MOMENTUM:
                raise UsageError(
                    f"optim.phases.{phase}.momentum={own.momentum:g}: {self.name} has none",
                    advice=f"leave it out; {', '.join(_HAVE_MOMENTUM)} have one",
                )
        return self

    @model_validator(mode="after")
    def _scales_from_something(self) -> Self:
        if self.rescale != "off" and self.stated_for is None:
            raise UsageError(
                f"optim.rescale={self.rescale}: from which batch? the rate is stated for none",
                advice="say it with optim.stated_for= (recipes do, for the optimizer they have)",
            )
        return self

    def scaled_rate(self, batch: int) -> float:
        """At its height, for steps of so many samples over all clones."""
        if self.stated_for is None or self.rescale == "off":
            return self.rate
        ratio = batch / self.stated_for
        return self.rate * (ratio if self.rescale == "linear" else math.sqrt(ratio))

    def explain(self, batch: int) -> list[str]:
        """What is to be said about the rate where the batch is not the one it is stated for."""
        if self.stated_for in {None, batch}:
            return []
        stated = f"optim.rate {self.rate:g} is stated for batch {self.stated_for}"
        if self.rescale != "off":
            scaled = f"{self.scaled_rate(batch):.3g}"
            return [f"{stated}: for batch {batch} it is {scaled} (optim.rescale={self.rescale})"]
        return [f"{stated} and used for {batch} as it is (optim.rescale=linear or sqrt would scale it)"]


def optimizer_of(task: Task, config: OptimConfig) -> Optimizer:
    """One for all phases: in each it steps with those parameters that have a gradient."""
    unknown = config.phases.keys() - set(task.phases)
    if unknown:
        raise UsageError(f"optim.phases: {min(unknown)}: this task has {' and '.join(task.phases)}")
    backbone = task.network.backbone_prefix()
    prefix = None if backbone is None else f"{task.network_name}.{backbone}"
    optimizer = build_optimizer(task, config, backbone_prefix=prefix, phase_of=partial(_phase_of, task))
    optimizer.register_step_post_hook(lambda *_: task.constrain())
    return optimizer


def _phase_of(task: Task, name: str) -> str:
    return next(phase for phase in task.phases if task.learns_in(phase, name))


def build_optimizer(
    task: nn.Module,
    config: OptimConfig,
    *,
    backbone_prefix: str | None,
    phase_of: Callable[[str], str] = lambda _: "train",
) -> Optimizer:
    """For all parameters of the task; those without a gradient (frozen ones) are left as they are."""
    kinds: dict[tuple[str, bool, bool], list[nn.Parameter]] = {}
    for name, parameter in task.named_parameters():
        in_backbone = backbone_prefix is not None and name.startswith(backbone_prefix)
        kinds.setdefault((phase_of(name), in_backbone, parameter.ndim >= 2), []).append(parameter)
    groups = [
        {"params": parameters, **_options(config, phase, in_backbone=in_backbone, decays=decays)}
        for (phase, in_backbone, decays), parameters in kinds.items()
    ]
    fused = all(map(_can_be_fused, task.parameters()))
    return _builders(config, fused=fused)[config.name](groups, lr=config.rate)


def _can_be_fused(parameter: nn.Parameter) -> bool:
    """Not where it is divided among processes: kernels for that are not there for all optimizers."""
    return parameter.device.type in FUSED_ON and not hasattr(parameter, "device_mesh")


def _options(config: OptimConfig, phase: str, *, in_backbone: bool, decays: bool) -> dict[str, Any]:
    """Of a group of parameters."""
    own = config.phases.get(phase, PhaseConfig())
    decay = config.weight_decay if own.weight_decay is None else own.weight_decay
    scale = 1.0 if own.rate is None else own.rate / config.rate
    options: dict[str, Any] = {
        "weight_decay": decay if decays else 0.0,
        "rate_scale": scale * (config.backbone_rate if in_backbone else 1.0),
    }
    if own.momentum is not None:
        adam = config.name in {"adam", "adamw"}
        options |= {"betas": (own.momentum, _BETA2)} if adam else {"momentum": own.momentum}
    return options


def _builders(config: OptimConfig, *, fused: bool) -> Mapping[str, Callable[..., Optimizer]]:
    """`fused`: an update goes through memory once, and needs no more of it, where there is such a kernel."""
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
