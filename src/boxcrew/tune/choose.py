"""The space of a study, put together from words and ready parts, and freed of contradictions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, get_args

from boxcrew.core.errors import UsageError
from boxcrew.core.registry import suggest
from boxcrew.tasks.augmentation import AugmentConfig
from boxcrew.tasks.data import TaskData
from boxcrew.tasks.facts import ExampleFacts
from boxcrew.train.config import RunConfig
from boxcrew.train.run.stored_settings import flat
from boxcrew.tune.ready import ReadyName, ready_space
from boxcrew.tune.space import Dimension, Space, ordered
from boxcrew.tune.words import parse_dimensions

_READY: tuple[ReadyName, ...] = get_args(ReadyName)


def split_search(search: object) -> tuple[ReadyName | None, dict[str, Any]]:
    """Return the ready space that is named, if any, and the words of single settings."""
    words = dict(search) if isinstance(search, Mapping) else {"": search}
    name = words.pop("", None if words else "default")
    if name is None or name in _READY:
        return name, words
    raise UsageError(
        f"search={name}: no such space; {suggest(str(name), _READY)}",
        advice="single settings are given as search.optim.rate=1e-4..1e-2:log",
    )


def choose_space(search: object, base: RunConfig, task_data: TaskData) -> Space:
    """Return the space that `search` describes. A setting given alone replaces that of the ready space."""
    name, words = split_search(search)
    own = parse_dimensions(words, base)
    targets = {dimension.target for dimension in own}
    ready = [] if name is None else ready_space(name, base, task_data)
    dimensions = [*(each for each in ready if each.target not in targets), *own]
    for dimension in own:
        _require_for_data(dimension, task_data)
    return Space(dimensions=ordered([_simplified(each, dimensions, base) for each in dimensions]))


def _require_for_data(dimension: Dimension, task_data: TaskData) -> None:
    """Raise `UsageError` for augmentation that does nothing to this kind of data."""
    group, _, name = dimension.target.partition(".")
    if group == "augment" and isinstance(task_data.facts, ExampleFacts):
        value = dimension.choices[-1] if dimension.choices else dimension.high
        AugmentConfig.of({name: value}).require_for(task_data.facts.kind)


def _simplified(dimension: Dimension, all_: Sequence[Dimension], base: RunConfig) -> Dimension:
    """Return the dimension without conditions that always hold; `UsageError` if one never does."""
    stored, only = flat(base.tree()), dict[str, tuple[Any, ...]]()
    for key, values in dimension.only.items():
        deciding = [each for each in all_ if each.target == key]
        options = {choice for each in deciding for choice in each.choices} or {stored.get(key)}
        if not options & set(values):
            raise UsageError(
                f"search.{dimension.target}: has no effect with {key}={' or '.join(map(str, options))}",
                advice=f"it matters with {key}={' or '.join(map(str, values))}: search.{key}=…",
            )
        if not options <= set(values):
            only[key] = values
    return dimension.model_copy(update={"only": only})
