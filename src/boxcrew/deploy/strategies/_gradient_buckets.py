"""Gradients of all replicas added up while backward still runs.

torch's DistributedDataParallel averages, wants every replica to go backward in every micro-batch, and is
built for a fixed set of parameters that all take part. Here gradients are summed, a replica may have no
sample for a micro-batch, layers thaw in the middle of a run, and what no replica uses has no gradient
(docs/decisions/0014).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from boxcrew.deploy.processes.collectives import Pending, ReplicaGroup

BUCKET_BYTES = 8 << 20  # enough that a message is worth its while, and few enough that the first leave early


class _Bucket:
    """Gradients that travel together: one buffer, and a view of it for each parameter."""

    def __init__(self, parameters: Sequence[nn.Parameter]) -> None:
        self.parameters = parameters
        total = sum(parameter.numel() for parameter in parameters)
        self.buffer = torch.zeros(total, dtype=parameters[0].dtype, device=parameters[0].device)
        self.views: list[Tensor] = []
        start = 0
        for parameter in parameters:
            flat = self.buffer[start : start + parameter.numel()]
            # Laid out as its parameter, which steps on two layouts would slow down.
            self.views.append(flat.as_strided(parameter.shape, parameter.stride()))
            start += parameter.numel()
        self.missing = len(parameters)  # gradients that are not there yet

    def fill(self) -> None:
        for parameter, view in zip(self.parameters, self.views, strict=True):
            if parameter.grad is None:
                view.zero_()
            else:
                view.copy_(parameter.grad)

    def hand_out(self) -> None:
        for parameter, view in zip(self.parameters, self.views, strict=True):
            parameter.grad = view


class Reduction:
    """For the parameters that learn at the time; made anew when those change. Buckets leave in the order in
    which backward comes by their parameters, which is the same on all replicas.
    """

    def __init__(self, parameters: Sequence[nn.Parameter], group: ReplicaGroup) -> None:
        self._group = group
        self._buckets = [_Bucket(some) for some in _packed(list(reversed(parameters)))]
        self._home = {p: bucket for bucket in self._buckets for p in bucket.parameters}
        self._under_way: list[Pending] = []
        self._watching = False
        self._hooks = [
            p.register_post_accumulate_grad_hook(self._arrived)  # type: ignore[no-untyped-call]
            for p in parameters
        ]
        self.sent_bytes = 0  # in the last step
        self.num_early = 0  # buckets that left in the last step while backward still ran

    def close(self) -> None:
        for hook in self._hooks:
            hook.remove()

    def begin(self) -> None:
        """From now on a gradient that comes is the last of its parameter in this step."""
        self._watching = True

    def send_rest(self) -> None:
        """What has not left yet. Only then may anything else be sent: all messages must leave in the same
        order on all replicas, and how many gradients came early differs.
        """
        self._watching = False
        self.num_early = len(self._under_way)
        while len(self._under_way) < len(self._buckets):
            self._send_next()

    def finish(self) -> None:
        """Waits for all, and hands the sums out."""
        for pending in self._under_way:
            pending.wait()
        for bucket in self._buckets:
            bucket.hand_out()
            bucket.missing = len(bucket.parameters)
        self._under_way = []

    def abandon(self) -> None:
        """After a step that failed before `finish`."""
        self._watching = False
        for pending in self._under_way:
            pending.wait()
        self._under_way = []
        for bucket in self._buckets:
            bucket.missing = len(bucket.parameters)

    def used(self) -> list[float]:
        """Before `finish`: 1 for each parameter that this replica has a gradient for, else 0."""
        return [float(parameter.grad is not None) for parameter in self._home]

    def leave_out(self, used: Sequence[float]) -> None:
        """After `finish`: takes the gradients away that no replica had, by the sums of `used`."""
        for parameter, count in zip(self._home, used, strict=True):
            if not count:
                parameter.grad = None

    def _arrived(self, parameter: Tensor) -> None:
        if not self._watching:
            return
        assert isinstance(parameter, nn.Parameter)
        self._home[parameter].missing -= 1
        while len(self._under_way) < len(self._buckets) and not self._buckets[len(self._under_way)].missing:
            self._send_next()

    def _send_next(self) -> None:
        bucket = self._buckets[len(self._under_way)]
        if not self._under_way:
            self.sent_bytes = 0
        bucket.fill()
        self.sent_bytes += bucket.buffer.nbytes
        self._under_way.append(self._group.all_reduce_async(bucket.buffer))


def _packed(parameters: Sequence[nn.Parameter]) -> list[list[nn.Parameter]]:
    """In the order given, in parts of about BUCKET_BYTES; a bias does not travel alone because the weights
    after it are large.
    """
    packed: list[list[nn.Parameter]] = []
    filled = 0
    for parameter in parameters:
        size = parameter.numel() * parameter.element_size()
        same = packed and packed[-1][0].dtype == parameter.dtype
        full = filled + size > BUCKET_BYTES and filled >= BUCKET_BYTES // 8
        if not same or full:
            packed.append([])
            filled = 0
        packed[-1].append(parameter)
        filled += size
    return packed
