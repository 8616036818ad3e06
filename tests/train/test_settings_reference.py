"""Every setting is listed with its documentation, and the page of settings is up to date."""

from __future__ import annotations

from pathlib import Path

from boxcrew.recipes import RECIPES
from boxcrew.train.settings_reference import list_settings, settings_page

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "settings.md"


def keys_of(tree: object, prefix: str = "") -> set[str]:
    """The dotted keys of a recipe's settings; what is below `unfreeze` and `optim.phases` are values."""
    if not isinstance(tree, dict) or prefix in {"unfreeze.", "optim.phases.", "goal.", "init.rename."}:
        return {prefix.removesuffix(".")}
    return {key for name, value in tree.items() for key in keys_of(value, f"{prefix}{name}.")}


def test_the_page_is_not_stale() -> None:
    assert PAGE.read_text(encoding="utf-8") == settings_page(), "python tools/write_settings_page.py"


def test_every_setting_of_every_recipe_is_listed() -> None:
    listed = {setting.key for setting in list_settings()}
    chosen = {"task.name", "detector.name", "net.name", "init.kind"}  # listed as `task`, `detector`, …
    for name in RECIPES.names():
        assert keys_of(RECIPES.get(name)().tree()) - chosen <= listed, name


def test_every_setting_is_documented_in_one_line() -> None:
    for setting in list_settings():
        assert setting.text.endswith("."), setting.key
        assert "\n" not in setting.text
        assert setting.type
        assert setting.default


def test_a_setting_says_what_it_depends_on() -> None:
    settings = list_settings()
    settings_by_key = {setting.key: setting for setting in settings}
    assert settings_by_key["optim.rate"].choices == ()
    assert settings_by_key["detector.scales"].choices == ("detector=ssd",)
    assert settings_by_key["detector.depth"].type == "integer ≥ 1, ≤ 4"
    assert settings_by_key["goal"].default == "fastest"
    sizes = {
        setting.choices: setting.default for setting in list_settings() if setting.key == "detector.size"
    }
    assert sizes[("detector=ssdlite",)] == "320"
