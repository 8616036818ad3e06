"""The maps name what exists: docs/architecture.md, the index, README.md, and the docstrings of packages."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from boxcrew.cli.help import HELP

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "boxcrew"
PACKAGES = sorted(file.parent for file in SOURCE.rglob("__init__.py"))


def test_every_file_that_the_architecture_names_exists() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    paths = {path for path in re.findall(r"`([\w/]+\.py)`", text) if "NAME" not in path}
    assert len(paths) > 15
    missing = [
        path for path in paths if not any((base / path).is_file() for base in (ROOT, ROOT / "src/boxcrew"))
    ]
    assert not missing


def test_the_architecture_and_its_picture_have_every_package() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    table = {name for row in re.findall(r"^\| (`.*?) \|", text, re.MULTILINE) for name in named_in(row)}
    picture = (ROOT / "docs" / "images" / "architecture.svg").read_text(encoding="utf-8")
    packages = {folder.name for folder in PACKAGES if folder.parent == SOURCE}
    assert len(packages) > 15
    assert packages <= table
    assert packages == set(re.findall(r'class="t">(\w+)<', picture))


def test_the_index_lists_every_page() -> None:
    docs = ROOT / "docs"
    listed = re.findall(r"\]\(([\w/.-]+\.md)\)", (docs / "index.md").read_text(encoding="utf-8"))
    folders = (docs, docs / "how-to", docs / "concepts", docs / "reference")
    pages = {file.relative_to(docs).as_posix() for folder in folders for file in folder.glob("*.md")}
    assert sorted(listed) == sorted(pages - {"index.md"})


def test_the_readme_lists_every_command() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    listed = set(re.findall(r"^\| `boxcrew (\w+)", text, re.MULTILINE))
    assert listed == HELP.keys()


@pytest.mark.parametrize("package", PACKAGES, ids=lambda folder: str(folder.relative_to(SOURCE.parent)))
def test_the_docstring_of_a_package_names_its_packages_and_what_exists(package: Path) -> None:
    docstring = docstring_of(package)
    assert len(docstring.split("\n\n")) > 1 or len(docstring.splitlines()) > 1, "one line says too little"
    own_packages = {folder.name for folder in PACKAGES if folder.parent == package}
    names = named_in(docstring)
    assert own_packages <= names
    unknown = names - known_in(package)
    assert not unknown


def named_in(text: str) -> set[str]:
    """Return the back-quoted names of a text: of `source.open_source` both parts, of a command none, and none
    of a full path such as `boxcrew.report.predictions` that exists.
    """
    quoted = {name.removesuffix(".py") for name in re.findall(r"`(\w[\w.]*\w)/?`", text)}
    return {part for name in quoted if not is_module(name) for part in name.split(".")}


def is_module(name: str) -> bool:
    path = ROOT / "src" / name.replace(".", "/")
    return path.is_dir() or path.with_suffix(".py").is_file()


def known_in(package: Path) -> set[str]:
    """Return the names that a package's docstring may use: modules here and above, the packages of boxcrew,
    and what is defined in its files, beside it or in `core`.
    """
    folders = [package, *(folder for folder in package.parents if folder.is_relative_to(SOURCE))]
    known = {file.stem for folder in folders for file in folder.iterdir()} | {"types"}  # of `core`
    for file in (*package.rglob("*.py"), *package.parent.glob("*.py"), *(SOURCE / "core").rglob("*.py")):
        known |= set(defined_in(file))
    return known


def defined_in(file: Path) -> Iterator[str]:
    """Yield the names of the functions, classes, imports and assigned names of a file, but no local ones."""
    scopes: list[ast.AST] = [ast.parse(file.read_text(encoding="utf-8"))]
    while scopes:
        for node in ast.iter_child_nodes(scopes.pop()):
            if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                yield node.name
            if isinstance(node, ast.ClassDef | ast.If):
                scopes.append(node)
            elif isinstance(node, ast.ImportFrom):
                yield from (alias.name for alias in node.names)
            elif isinstance(node, ast.Assign | ast.AnnAssign):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                yield from (
                    name.id for target in targets for name in ast.walk(target) if isinstance(name, ast.Name)
                )


def docstring_of(package: Path) -> str:
    tree = ast.parse((package / "__init__.py").read_text(encoding="utf-8"))
    return ast.get_docstring(tree) or ""
