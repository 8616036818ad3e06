"""Gradients of all replicas added up while backward still runs.

torch's DistributedDataParallel averages, wants every replica to go backward in every micro-batch, and is
built for a fixed set of parameters that are all used. Here gradients are summed, a replica may have no
sample for a micro-batch, layers thaw in the middle of a run, and what no replica uses has no gradient
(docs/decisions/0014).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from boxcrew.deploy.processes.collectives import ReplicaGroup, Wait
from boxcrew.plan.cost import BUCKET_BYTES


class _Bucket:
    """Gradients that are sent together: one buffer, and a view of it for each parameter."""

    def __init__(self, parameters: Sequence[nn.Parameter]) -> None:
        self.parameters, sizes = parameters, [parameter.numel() for parameter in parameters]
        self.buffer = torch.zeros(sum(sizes), dtype=parameters[0].dtype, device=parameters[0].device)
        # Laid out like their parameters: updates on two layouts would be slower.
        pieces = zip(parameters, torch.split(self.buffer, sizes), strict=True)
        self.views = [piece.as_strided(parameter.shape, parameter.stride()) for parameter, piece in pieces]
        self.missing = len(parameters)  # gradients that are not there yet


class GradientReducer:
    """The all_reduce of the gradients of a fixed set of parameters. Buckets are sent in the order in which
    backward reaches their parameters, which is the same on all replicas.
    """

    def __init__(self, parameters: Sequence[nn.Parameter], group: ReplicaGroup) -> None:
        self.parameters = parameters
        self._group = group
        self._buckets = [_Bucket(packed) for packed in _packed(list(reversed(parameters)))]
        self._bucket_of = {p: bucket for bucket in self._buckets for p in bucket.parameters}
        self._pending: list[Wait] = []  # of the first buckets, which are sent
        self._watching = False
        self._hooks = [
            p.register_post_accumulate_grad_hook(self._arrived)  # type: ignore[no-untyped-call]
            for p in parameters
        ]
        self.sent_bytes = 0  # in the last step
        self.num_early = 0  # buckets sent in the last step while backward still ran

    def close(self) -> None:
        for hook in self._hooks:
            hook.remove()

    def begin(self) -> None:
        """Send buckets from now on as soon as they are full: the last micro-batch of the step begins."""
        self._watching = True

    def send_rest(self) -> None:
        """Send the buckets that have not been sent. Nothing else may be sent before: all messages must leave
        in the same order on all replicas, and how many buckets left early differs.
        """
        self._watching = False
        self.num_early = len(self._pending)
        while len(self._pending) < len(self._buckets):
            self._send_next()

    def abandon(self) -> None:
        """Wait for all sums, and forget them: the step has failed before `finish`."""
        self._watching = False
        for wait in self._pending:
            wait()
        self._pending = []
        for bucket in self._buckets:
            bucket.missing = len(bucket.parameters)

    def finish(self) -> None:
        """Wait for all sums, and make them the parameters' gradients."""
        self.abandon()
        for bucket in self._buckets:
            for parameter, view in zip(bucket.parameters, bucket.views, strict=True):
                parameter.grad = view

    def used(self) -> list[float]:
        """Return, before `finish`, 1 for each parameter that this replica has a gradient for, else 0."""
        return [float(parameter.grad is not None) for parameter in self._bucket_of]

    def clear_unused(self, used: Sequence[float]) -> None:
        """Clear, after `finish`, the gradients that no replica had, by the sums of `used`."""
        for parameter, count in zip(self._bucket_of, used, strict=True):
            if not count:
                parameter.grad = None

    def _arrived(self, parameter: Tensor) -> None:
        if not self._watching:
            return
        assert isinstance(parameter, nn.Parameter)
        self._bucket_of[parameter].missing -= 1
        while len(self._pending) < len(self._buckets) and not self._buckets[len(self._pending)].missing:
            self._send_next()

    def _send_next(self) -> None:
        bucket = self._buckets[len(self._pending)]
        for parameter, view in zip(bucket.parameters, bucket.views, strict=True):
            if parameter.grad is None:
                view.zero_()
            else:
                view.copy_(parameter.grad)
        self.sent_bytes = bucket.buffer.nbytes + (self.sent_bytes if self._pending else 0)
        self._pending.append(self._group.all_reduce_async(bucket.buffer))


def _packed(parameters: Sequence[nn.Parameter]) -> list[list[nn.Parameter]]:
    """Return the parameters of each bucket, in order. A bias is not sent alone before large weights."""
    packed: list[list[nn.Parameter]] = []
    filled = 0
    for parameter in parameters:
        full = filled + parameter.nbytes > BUCKET_BYTES and filled >= BUCKET_BYTES // 8
        if not packed or packed[-1][0].dtype != parameter.dtype or full:
            packed.append([])
            filled = 0
        packed[-1].append(parameter)
        filled += parameter.nbytes
    return packed
