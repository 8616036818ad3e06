"""Recipes: complete settings of known-good runs, found by name.

A recipe is a function that returns a `RunConfig` and is registered by a decorator, one file for each family
of networks. Its docstring gives a title, the command, the machine, the time and the result to expect.
"""

from __future__ import annotations

from collections.abc import Callable

from boxcrew.core.registry import Registry
from boxcrew.train.config import RunConfig

Recipe = Callable[[], RunConfig]

RECIPES: Registry[Recipe] = Registry("recipe", "boxcrew.recipes")
"""All recipes, registered by `@RECIPES.register("ssd300_vgg16")`."""

DEFAULT = "starter"


def describe(name: str) -> str:
    """Return the first line of a recipe's docstring."""
    return (RECIPES.get(name).__doc__ or "").strip().splitlines()[0]
