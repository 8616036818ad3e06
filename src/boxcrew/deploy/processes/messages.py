"""Messages from one process to another: JSON values, and tensors in main memory."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

_ALIGNMENT = 8  # bytes: every tensor begins where any dtype may


@dataclass(frozen=True, kw_only=True, eq=False)
class Message:
    kind: str
    data: Mapping[str, Any] = field(default_factory=dict)  # JSON values
    tensors: Mapping[str, Tensor] = field(default_factory=dict)
    sender: int = -1  # rank; only known to the receiver


class MessageChannel:
    """Point-to-point messages to all other processes.

    Sending never waits for the receiver, so two processes cannot wait for each other. What was sent to a
    process is kept until a message comes back from it: by then it has read everything.
    """

    def __init__(self, waiting: Callable[[], AbstractContextManager[None]]) -> None:
        """`waiting()` returns the context to be in while this process waits for another."""
        self._waiting = waiting
        self.unconfirmed: dict[int, list[tuple[dist.Work, Tensor]]] = {}  # by receiver

    def send(self, to: int, message: Message) -> None:
        """Send without waiting for the receiver; the tensors are copied first."""
        kinds = {
            name: (str(tensor.dtype).removeprefix("torch."), list(tensor.shape))
            for name, tensor in message.tensors.items()
        }
        text = json.dumps({"kind": message.kind, "data": message.data, "tensors": kinds}).encode()
        head = torch.tensor(list(text), dtype=torch.uint8)
        buffers = [torch.tensor([len(text)]), head]
        buffers += [_pack(message.tensors.values())] if message.tensors else []
        with self._waiting():  # not long, but the receiver may be gone
            for buffer in buffers:
                work = dist.isend(buffer, to)
                assert work is not None
                self.unconfirmed.setdefault(to, []).append((work, buffer))

    def receive(self, sender: int | None = None) -> Message:
        """Wait for the next message from that process, or from any."""
        with self._waiting():
            length = torch.zeros(1, dtype=torch.int64)
            sender = dist.recv(length, sender)
            head = torch.zeros(int(length), dtype=torch.uint8)
            dist.recv(head, sender)
            header = json.loads(bytes(head.tolist()))
            tensors = {}
            if header["tensors"]:
                size = sum(_padded_size(kind, shape) for kind, shape in header["tensors"].values())
                body = torch.zeros(size, dtype=torch.uint8)
                dist.recv(body, sender)
                tensors = _unpack(body, header["tensors"])
            self._confirm(sender)
        return Message(kind=header["kind"], data=header["data"], tensors=tensors, sender=sender)

    def finish(self) -> None:
        """Wait until everything that was sent has arrived."""
        with self._waiting():
            for to in list(self.unconfirmed):
                self._confirm(to)

    def _confirm(self, to: int) -> None:
        for work, _ in self.unconfirmed.pop(to, []):
            work.wait()


def _padded(num_bytes: int) -> int:
    return -(-num_bytes // _ALIGNMENT) * _ALIGNMENT


def _padded_size(dtype: str, shape: Sequence[int]) -> int:
    return _padded(torch.Size(shape).numel() * getattr(torch, dtype).itemsize)


def _pack(tensors: Iterable[Tensor]) -> Tensor:
    flats = [tensor.detach().cpu().reshape(-1).view(torch.uint8) for tensor in tensors]
    body = torch.zeros(sum(_padded(len(flat)) for flat in flats), dtype=torch.uint8)
    start = 0
    for flat in flats:
        body[start : start + len(flat)] = flat
        start += _padded(len(flat))
    return body


def _unpack(body: Tensor, kinds: Mapping[str, tuple[str, Sequence[int]]]) -> dict[str, Tensor]:
    """Return the tensors as views of the body."""
    tensors, start = {}, 0
    for name, (kind, shape) in kinds.items():
        dtype: torch.dtype = getattr(torch, kind)
        end = start + torch.Size(shape).numel() * dtype.itemsize
        tensors[name] = body[start:end].view(dtype).view(shape)
        start += _padded_size(kind, shape)
    return tensors
