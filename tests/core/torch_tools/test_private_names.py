"""Private names of torch are used in core/torch_tools only: what a new torch may break is in one place."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.optim import Optimizer

import boxcrew
from boxcrew.core.torch_tools.dispatch import tensors_in

SOURCE = Path(boxcrew.__file__).parent
ALLOWED = SOURCE / "core" / "torch_tools"


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


PRIVATE_ATTRIBUTES = {
    name
    for value in (
        nn.Linear(1, 1),
        torch.zeros(1),
        torch.zeros(1).untyped_storage(),
        torch.amp.GradScaler,
        Optimizer,
    )
    for name in dir(value)
    if is_private(name)
} | {"_local_tensor", "_shutdown_workers", "_spec"}


def private_uses(tree: ast.AST) -> Iterator[str]:
    """Yield every import, attribute and `getattr` string that names something private of torch."""
    torch_names = {
        (alias.asname or alias.name).partition(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
        if (node.module or "" if isinstance(node, ast.ImportFrom) else alias.name).partition(".")[0]
        == "torch"
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "torch":
            names = [*(node.module or "").split("."), *(alias.name for alias in node.names)]
            yield from filter(is_private, names)
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names if alias.name.startswith("torch.")]
            yield from (name for name in names if any(map(is_private, name.split("."))))
        elif isinstance(node, ast.Attribute) and is_private(node.attr):
            root: ast.expr = node
            while isinstance(root, ast.Attribute):
                root = root.value
            owner = root.id if isinstance(root, ast.Name) else ""
            if owner in torch_names or (owner not in {"self", "cls"} and node.attr in PRIVATE_ATTRIBUTES):
                yield ast.unparse(node)
        elif isinstance(node, ast.Constant) and node.value in PRIVATE_ATTRIBUTES:
            yield repr(node.value)


def test_private_names_of_torch_stay_in_their_package() -> None:
    files = [file for file in SOURCE.rglob("*.py") if ALLOWED not in file.parents]
    assert len(files) > 100
    offenders = {
        str(file.relative_to(SOURCE)): uses
        for file in files
        if (uses := list(private_uses(ast.parse(file.read_text(encoding="utf-8")))))
    }
    assert offenders == {}


@pytest.mark.parametrize(
    "code",
    [
        "import torch._dynamo",
        "from torch.utils._pytree import tree_leaves",
        "from torch.nn.modules.batchnorm import _BatchNorm",
        "import torch\ntorch._foreach_mul_(values, 2)",
        "from torch import nn\nnn.modules.batchnorm._BatchNorm",
        "storage._cdata",
        "tensor.untyped_storage()._cdata",
        "layer._buffers",
        "scaler._found_inf_per_device(optimizer)",
        "parameter._local_tensor",
        "getattr(results, '_shutdown_workers', None)",
    ],
)
def test_uses_are_recognized(code: str) -> None:
    assert list(private_uses(ast.parse(code)))


@pytest.mark.parametrize(
    "code", ["import os\nos._exit(1)", "self._buffers", "torch.__version__", "_name = 1", "other._plan"]
)
def test_names_of_others_are_left_alone(code: str) -> None:
    assert not list(private_uses(ast.parse("import torch\n" + code)))


def test_tensors_are_found_in_nested_values() -> None:
    first, second = torch.zeros(1), torch.ones(2)
    assert [len(tensor) for tensor in tensors_in([first, {"a": (second, 3, None)}])] == [1, 2]
