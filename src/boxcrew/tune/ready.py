"""Spaces that are ready to search: what measurably matters for each kind of task, around its recipe."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from boxcrew.core.errors import UsageError
from boxcrew.tasks.data import TaskData
from boxcrew.tasks.detection import DetectionConfig
from boxcrew.tasks.facts import ExampleFacts
from boxcrew.train.config import RunConfig
from boxcrew.train.run.stored_settings import flat
from boxcrew.tune.space import Dimension
from boxcrew.tune.words import parse_dimension

ReadyName = Literal["default", "optimizer", "augmentation", "all"]

_ADAPTIVE, _PLAIN = ("adamw", "adam"), ("momentum", "nesterov", "sgd")
_OPTIMIZERS = {  # rates that work for networks of this size; each kind has its own
    "optim.rate[adaptive]": (1e-4, 1e-2, _ADAPTIVE),
    "optim.rate[plain]": (1e-3, 3e-1, _PLAIN),
}
_EXAMPLE_AUGMENTATION = {
    "images": {
        "augment.flip": "0,0.5",
        "augment.shift": "0..4",
        "augment.erase": "0..0.5",
        "augment.policy": "none,randaugment,trivialaugment",
        "augment.mixup": "0,0.2,0.4",
        "augment.cutmix": "0,0.5,1",
    },
    "numbers": {"augment.mixup": "0,0.1,0.2,0.4"},
    "tokens": {"augment.drop_tokens": "0..0.2"},
}
_DETECTION_AUGMENTATION = {
    "transforms.expand": "1..3",
    "transforms.crop": "true,false",
    "transforms.jitter": "0..0.5",
    "transforms.flip": "0,0.5",
    "transforms.color": "0..1.5",
    "transforms.mosaic": "0..0.8",
    "transforms.copy_paste": "0..0.5",
    "transforms.mixup": "0..0.3",
}


def ready_space(name: ReadyName, base: RunConfig, task_data: TaskData) -> list[Dimension]:
    """Return the dimensions of a ready space for this recipe and data."""
    parts: dict[ReadyName, tuple[Callable[[RunConfig, TaskData], list[Dimension]], ...]] = {
        "default": (_around_the_recipe, _few_augmentations),
        "optimizer": (_optimizers,),
        "augmentation": (_augmentations,),
        "all": (_optimizers, _augmentations),
    }
    dimensions = [dimension for part in parts[name] for dimension in part(base, task_data)]
    if not dimensions:
        raise UsageError(f"search={name}: there is nothing of that to search for {base.task.title}")
    return dimensions


def _around_the_recipe(base: RunConfig, task_data: TaskData) -> list[Dimension]:
    """Return ranges around the recipe's own rate and regularization, which matter most in short trainings."""
    del task_data
    rate, decay = base.optim.rate, base.optim.weight_decay
    words = {"optim.rate": f"{rate / 5:.3g}..{rate * 5:.3g}:log"}
    if decay > 0:
        words["optim.weight_decay"] = f"{decay / 10:.3g}..{min(0.5, decay * 10):.3g}:log"
    if base.init.kind != "scratch":
        words["optim.backbone_rate"] = "0.03..1:log"
    words["schedule.warmup"] = "0..0.2"
    if "net.dropout" in flat(base.tree()):
        words["net.dropout"] = "0..0.5"
    return _parsed(words, base)


def _few_augmentations(base: RunConfig, task_data: TaskData) -> list[Dimension]:
    """Return the augmentations that most often decide: a short training has no time for strong ones."""
    names = {"transforms.expand", "transforms.jitter", "transforms.mosaic", "transforms.color"}
    names |= {"augment.flip", "augment.shift", "augment.mixup", "augment.drop_tokens"}
    return [dimension for dimension in _augmentations(base, task_data) if dimension.target in names]


def _augmentations(base: RunConfig, task_data: TaskData) -> list[Dimension]:
    if isinstance(base.task, DetectionConfig):
        return _parsed(_DETECTION_AUGMENTATION, base)
    if "augment.flip" not in flat(base.tree()) or not isinstance(task_data.facts, ExampleFacts):
        return []
    words = _EXAMPLE_AUGMENTATION[task_data.facts.kind]
    if base.task.predicts == "images":  # a generator would learn to generate what the others make
        words = {key: text for key, text in words.items() if key in {"augment.flip", "augment.shift"}}
    return _parsed(words, base)


def _optimizers(base: RunConfig, task_data: TaskData) -> list[Dimension]:
    """Return the choice of an optimizer, with a range of rates for each kind, and what goes with it."""
    del task_data
    rates = [
        Dimension(target="optim.rate", name=name, low=low, high=high, log=True, only={"optim.name": names})
        for name, (low, high, names) in _OPTIMIZERS.items()
    ]
    words = {
        "optim.name": ",".join((*_ADAPTIVE, *_PLAIN)),
        "optim.momentum": "0.8..0.98",
        "optim.weight_decay": "1e-5..0.1:log",
        "optim.ema": "0,0.99,0.998",
        "schedule.name": "cosine,polynomial",
        "schedule.warmup": "0..0.2",
    }
    if base.init.kind != "scratch":
        words["optim.backbone_rate"] = "0.03..1:log"
    return [*_parsed(words, base), *rates]


def _parsed(words: dict[str, str], base: RunConfig) -> list[Dimension]:
    return [parse_dimension(key, text, base) for key, text in words.items()]
