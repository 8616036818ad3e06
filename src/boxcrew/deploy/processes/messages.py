"""Messages from one process to another: JSON values, and tensors in main memory."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor


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
        # The widest dtypes come first: so every tensor begins where its dtype may.
        tensors = dict(sorted(message.tensors.items(), key=lambda item: -item[1].itemsize))
        kinds = {name: (str(t.dtype).removeprefix("torch."), list(t.shape)) for name, t in tensors.items()}
        text = json.dumps({"kind": message.kind, "data": message.data, "tensors": kinds}).encode()
        buffers = [torch.tensor([len(text)]), torch.tensor(list(text), dtype=torch.uint8)]
        if tensors:
            flat = [t.detach().cpu().reshape(-1).view(torch.uint8) for t in tensors.values()]
            buffers.append(torch.cat(flat))
        with self._waiting():  # not long, but the receiver may be gone
            for buffer in buffers:
                work = dist.isend(buffer, to)
                assert work is not None
                self.unconfirmed.setdefault(to, []).append((work, buffer))

    def receive(self, sender: int | None = None) -> Message:
        """Wait for the next message from that process, or from any. Its tensors are views of one buffer."""
        with self._waiting():
            length = torch.zeros(1, dtype=torch.int64)
            sender = dist.recv(length, sender)
            head = torch.zeros(int(length), dtype=torch.uint8)
            dist.recv(head, sender)
            header, tensors = json.loads(bytes(head.tolist())), {}
            if header["tensors"]:
                kinds = [(getattr(torch, name), torch.Size(s)) for name, s in header["tensors"].values()]
                sizes = [shape.numel() * dtype.itemsize for dtype, shape in kinds]
                body = torch.zeros(sum(sizes), dtype=torch.uint8)
                dist.recv(body, sender)
                views = zip(header["tensors"], kinds, torch.split(body, sizes), strict=True)
                tensors = {name: part.view(dtype).view(shape) for name, (dtype, shape), part in views}
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
