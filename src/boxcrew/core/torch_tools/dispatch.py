"""Observing every operator that torch runs, below autograd."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class OperatorMode(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """A context inside which every operator goes through `__torch_dispatch__`, which subclasses define."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()  # type: ignore[no-untyped-call]

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]


def tensors_in(values: object) -> list[Tensor]:
    """Return the tensors in nested lists, tuples and dictionaries, in order."""
    return [leaf for leaf in tree_leaves(values) if isinstance(leaf, Tensor)]


def storage_key(storage: torch.UntypedStorage) -> int:
    """Return a number that identifies a storage for as long as it lives, also on the meta device."""
    return int(storage._cdata)
