"""Messages from one process to another: some words as JSON, and tensors in main memory."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

_ALIGNED = 8  # bytes: every tensor begins where any kind of number may


@dataclass(frozen=True, kw_only=True, eq=False)
class Message:
    kind: str
    words: Mapping[str, Any] = field(default_factory=dict)  # JSON values
    tensors: Mapping[str, Tensor] = field(default_factory=dict)
    sender: int = -1  # for who receives it


class MessageChannel:
    """Sending never waits for the other end, so that no two can wait for each other. What was sent is kept
    until a letter comes back: who writes has by then read all that it was sent.
    """

    def __init__(self, waiting: Callable[[], AbstractContextManager[None]]) -> None:
        """`waiting()`: what to be in while one waits for another process."""
        self._waiting = waiting
        self.under_way: dict[int, list[tuple[dist.Work, Tensor]]] = {}  # by whom it was sent to

    def send(self, to: int, message: Message) -> None:
        kinds = {name: (_kind(tensor), list(tensor.shape)) for name, tensor in message.tensors.items()}
        text = json.dumps({"kind": message.kind, "words": message.words, "tensors": kinds}).encode()
        head = torch.tensor(list(text), dtype=torch.uint8)
        parts = [torch.tensor([len(text)]), head]
        parts += [_packed(message.tensors.values())] if message.tensors else []
        with self._waiting():  # not long, but the other may be gone
            for part in parts:
                work = dist.isend(part, to)
                assert work is not None
                self.under_way.setdefault(to, []).append((work, part))

    def receive(self, sender: int | None = None) -> Message:
        """The next from that process, or from any."""
        with self._waiting():
            length = torch.zeros(1, dtype=torch.int64)
            sender = dist.recv(length, sender)
            head = torch.zeros(int(length), dtype=torch.uint8)
            dist.recv(head, sender)
            told = json.loads(bytes(head.tolist()))
            tensors = {}
            if told["tensors"]:
                body = torch.zeros(_size(told["tensors"].values()), dtype=torch.uint8)
                dist.recv(body, sender)
                tensors = _unpacked(body, told["tensors"])
            self._settle(sender)
        return Message(kind=told["kind"], words=told["words"], tensors=tensors, sender=sender)

    def finish(self) -> None:
        """Waits until all that was sent has arrived."""
        with self._waiting():
            for to in list(self.under_way):
                self._settle(to)

    def _settle(self, to: int) -> None:
        for work, _ in self.under_way.pop(to, []):
            work.wait()


def _kind(tensor: Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def _room(kind: str, shape: Sequence[int]) -> int:
    size: int = torch.Size(shape).numel() * getattr(torch, kind).itemsize
    return -(-size // _ALIGNED) * _ALIGNED


def _size(kinds: Iterable[tuple[str, Sequence[int]]]) -> int:
    return sum(_room(kind, shape) for kind, shape in kinds)


def _packed(tensors: Iterable[Tensor]) -> Tensor:
    given = [tensor.detach().cpu().reshape(-1).view(torch.uint8) for tensor in tensors]
    body = torch.zeros(sum(-(-len(one) // _ALIGNED) * _ALIGNED for one in given), dtype=torch.uint8)
    start = 0
    for one in given:
        body[start : start + len(one)] = one
        start += -(-len(one) // _ALIGNED) * _ALIGNED
    return body


def _unpacked(body: Tensor, kinds: Mapping[str, tuple[str, Sequence[int]]]) -> dict[str, Tensor]:
    """Views of the body."""
    tensors, start = {}, 0
    for name, (kind, shape) in kinds.items():
        dtype: torch.dtype = getattr(torch, kind)
        end = start + torch.Size(shape).numel() * dtype.itemsize
        tensors[name] = body[start:end].view(dtype).view(shape)
        start += _room(kind, shape)
    return tensors
