"""A family is found by importing its package."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from boxcrew.core.errors import UsageError
from boxcrew.core.registry import Registry, suggest

MEMBER = "from zoo import ANIMALS\n@ANIMALS.register({name!r})\ndef make(): return {name!r}\n"
FAMILY = "from boxcrew.core.registry import Registry\nANIMALS = Registry('animal', 'zoo')\n"


@pytest.fixture
def animals(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Registry[object]:
    """The registry of a package on disk with two members, each in its own file."""
    package = tmp_path / "zoo"
    package.mkdir()
    (package / "__init__.py").write_text(FAMILY)
    for name in ("lynx", "otter"):
        (package / f"a_{name}.py").write_text(MEMBER.format(name=name))
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in [name for name in sys.modules if name.partition(".")[0] == "zoo"]:
        monkeypatch.delitem(sys.modules, name)
    import zoo  # type: ignore[import-not-found]

    registry: Registry[object] = zoo.ANIMALS
    return registry


def test_members_are_found_without_a_list_of_them(animals: Registry[object]) -> None:
    assert animals.names() == ["lynx", "otter"]
    member = animals.get("otter")
    assert callable(member)
    assert member() == "otter"


def test_looking_up_first_also_finds_them(animals: Registry[object]) -> None:
    assert callable(animals.get("lynx"))


def test_a_name_is_taken_only_once(animals: Registry[object]) -> None:
    animals.names()
    with pytest.raises(ValueError, match="two animals are named 'lynx'"):
        animals.register("lynx")(object())
    animals.register("boar")(object())
    assert animals.names() == ["boar", "lynx", "otter"]


def test_an_unknown_name_is_a_usage_error_with_a_suggestion(animals: Registry[object]) -> None:
    with pytest.raises(UsageError, match=r"^oter: no such animal; did you mean 'otter'\?$"):
        animals.get("oter")
    with pytest.raises(UsageError, match=r"^whale: no such animal; there are: lynx, otter$"):
        animals.get("whale")


def test_a_very_long_list_of_options_is_cut() -> None:
    text = suggest("zzz", [f"network{i}" for i in range(1000)])
    assert text.endswith("(1000 in all)")
    assert len(text) < 600


@pytest.mark.parametrize(
    ("name", "end"),
    [
        ("sdd300", "did you mean 'ssd300_vgg16'?"),
        ("SSD300_VGG16", "did you mean 'ssd300_vgg16'?"),
        ("vgg", "did you mean 'ssd300_vgg16' or 'ssd512_vgg16'?"),
        ("efficientnet", "did you mean 'ssdlite_efficientnet_lite0'?"),
        ("startr", "did you mean 'starter'?"),
        ("yolov8n", "there are: cnn, ssd300_vgg16, ssd512_vgg16, ssdlite_efficientnet_lite0, starter"),
        ("n", "there are: cnn, ssd300_vgg16, ssd512_vgg16, ssdlite_efficientnet_lite0, starter"),
    ],
)
def test_a_name_is_known_by_a_part_of_it_and_by_its_beginning(name: str, end: str) -> None:
    options = ["starter", "ssd300_vgg16", "ssd512_vgg16", "ssdlite_efficientnet_lite0", "cnn"]
    assert suggest(name, options) == end
