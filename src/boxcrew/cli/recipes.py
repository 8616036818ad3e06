"""The command `boxcrew recipes`: the list of recipes, or the settings of one."""

from __future__ import annotations

import inspect

from boxcrew.cli.output import Output, parse_names
from boxcrew.core.config import to_yaml
from boxcrew.recipes import RECIPES, describe


def recipes_command(words: list[str], out: Output) -> None:
    names = parse_names(words, most=1)
    if names:
        recipe = RECIPES.get(names[0])
        out.result(recipe().tree())
        lines = [inspect.cleandoc(recipe.__doc__ or ""), "", to_yaml(recipe())]
    else:
        out.result({name: describe(name) for name in RECIPES.names()})
        width = max(map(len, RECIPES.names()))
        lines = [f"{name:{width}}  {describe(name)}" for name in RECIPES.names()]
    if not out.as_json:
        for number, line in enumerate(lines):
            out.info(line, style="bold" if names and not number else None)
