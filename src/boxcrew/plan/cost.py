"""The predicted cost of a candidate: seconds per step, and bytes on every device."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from boxcrew.hardware.machine import Device
from boxcrew.plan.candidate import Candidate, PlanInputs
from boxcrew.plan.dealing import deal
from boxcrew.plan.memory import memory_of
from boxcrew.plan.prediction import Bound, Interval, Memory, Prediction, Span
from boxcrew.plan.speed import ComputeTime, compute_time_of, speeds_of, update_seconds

OVERLAPPED_BACKWARD = 0.9  # of backward can hide gradient messages; 95 % of these did (docs/benchmarks.md)
HIDDEN_SHARDED = 0.5  # of the messages with sharded parameters overlaps with computing
BUCKET_BYTES = 8 << 20  # of gradients in a message: large enough to be efficient, and the first leave early
SMALL_MESSAGES = 4  # of a step, that nothing hides: a barrier, the losses, and the status twice
BATCH_RECEIVE_SECONDS = 0.002  # seconds to receive a worker's batch: 1 ms for table rows, 5 ms for images


@dataclass(frozen=True, kw_only=True)
class StepTime:
    """Seconds of one step: computing per clone, messages that nothing hides, updates and inputs."""

    compute: tuple[float, ...]
    messages: float
    update: float
    inputs: float  # until the samples of a step are made
    wall: float  # in total
    spread: float
    basis: str

    @property
    def busy(self) -> float:
        """Seconds in which the devices compute, send or update."""
        return max(self.compute) + self.messages + self.update

    @property
    def bound(self) -> Bound:
        if self.inputs > 1.02 * self.busy:
            return "input"
        return "communication" if self.messages > max(self.compute) else "compute"


@dataclass(frozen=True, kw_only=True)
class Costs(PlanInputs):
    """Predicts the cost of candidates for one task on one machine."""

    _compute_times: dict[tuple[object, ...], ComputeTime] = field(default_factory=dict, repr=False)

    def memory(self, candidate: Candidate) -> list[Memory]:
        return memory_of(candidate, self)

    def has_enough_memory(self, candidate: Candidate) -> bool:
        oom_samples = None if candidate.recompute else self.observed.oom_samples
        if oom_samples is not None and max(candidate.largest_micro_batches) >= oom_samples:
            return False
        return all(memory.is_enough for memory in self.memory(candidate))

    def compute_time(self, device: Device, candidate: Candidate) -> ComputeTime:
        mode = candidate.memory_format, candidate.precision, candidate.threads, candidate.recompute
        key = (device.name, *mode)
        return self._compute_times.get(key) or self._compute_times.setdefault(
            key, compute_time_of(device, candidate, self)
        )

    def step(self, candidate: Candidate, *, cached: bool = True) -> StepTime:
        """Predict one step. `cached`: decoded images are in the cache, as in all epochs after the first."""
        times = [self.compute_time(device, candidate) for device in candidate.devices]
        compute = self._compute(candidate, times)
        core_seconds = self._inputs(candidate, cached=cached)
        step = StepTime(
            compute=tuple(compute),
            messages=self._messages(candidate, max(compute)),
            update=self._update(candidate),
            inputs=core_seconds / max(1, candidate.loader_workers) / candidate.replicas,
            wall=0.0,
            spread=max(time.spread for time in times),
            basis=times[0].basis,
        )
        work = core_seconds
        if candidate.on_cpu:
            per_replica = [compute[own[0]] for own in deal(len(compute), candidate.replicas)]
            work += sum(seconds * candidate.threads * times[0].parallel for seconds in per_replica)
        evenly = work / self.machine.cores  # a lower bound: all work is spread over the cores
        return replace(step, wall=max(self._wall(candidate, step, core_seconds), evenly, 1e-9))

    def _wall(self, candidate: Candidate, step: StepTime, core_seconds: float) -> float:
        """Return the seconds until the devices are done and the next samples, which take so many
        `core_seconds`, are ready. When threads occupy all cores, they also wait for the one whose core makes
        samples, and for the worker to hand them over.
        """
        if candidate.loader_workers == 0:
            return step.busy + step.inputs
        all_busy = candidate.on_cpu and candidate.threads * candidate.replicas >= self.machine.cores
        delay = core_seconds / candidate.replicas + BATCH_RECEIVE_SECONDS if all_busy else 0.0
        return max(step.busy + delay, step.inputs)

    def _compute(self, candidate: Candidate, times: list[ComputeTime]) -> list[float]:
        """Return the seconds of each clone; they add up for clones of one process that share its threads, or
        compute in turn.
        """
        num, pairs = candidate.accumulation, zip(times, candidate.shares, strict=True)
        seconds = [min(num, share) * time.fixed + time.each * share for time, share in pairs]
        seconds = [sum(seconds[own[0] : own[-1] + 1]) for own in candidate.turns for _ in own]
        is_shared = candidate.strategy != "ddp" and candidate.on_cpu and candidate.replicas == 1
        if is_shared and len(seconds) > 1:
            seconds = [sum(seconds)] * len(seconds)
        if not candidate.on_cpu or self.observed.timings:  # measured steps include the load of others
            return seconds
        wanted = candidate.threads * candidate.replicas + self.machine.busy_cores
        return [each * max(1.0, wanted / self.machine.cores) for each in seconds]

    def _update(self, candidate: Candidate) -> float:
        device = next(each for each in self.machine.devices if each.name == candidate.parameter_device)
        seconds = update_seconds(self.workload, speeds_of(device, self.machine)[0])
        return seconds * self.compute_time(candidate.devices[0], candidate).corrected / candidate.shards

    def _messages(self, candidate: Candidate, compute: float) -> float:
        """Return the seconds of messages between clones and processes that computing does not hide."""
        speeds = [speeds_of(device, self.machine)[0] for device in candidate.devices]
        # Bytes per second between a device and the others; on one host every byte is copied four times.
        link = min(each.from_host_bytes or each.copy_bytes / 4 for each in speeds)
        num, gradients, parameters = candidate.replicas, self.workload.gradients, self.workload.parameters
        latency, network = 0.0, self.machine.link
        if network is not None and self.request.num_replicas is not None:
            num, link = self.request.num_replicas, min(link, network.bytes_per_second)
            latency = network.seconds
        in_turn = max(map(len, candidate.turns))  # gradients are sent in the backward of the last
        backward = compute * (1 - self._forward_share()) / candidate.accumulation / in_turn
        if candidate.strategy == "ddp" and num > 1:
            rows = candidate.ordered_rows
            num_messages = gradients // BUCKET_BYTES * (2 if rows else 1)
            sent = (1 + max(rows, default=1)) * (num - 1) / num * gradients / link + num_messages * latency
            if self.request.deploy.batch_norm == "synced":  # then gradients are sent after backward
                backward = 0.0
            return SMALL_MESSAGES * latency + max(0.0, sent - OVERLAPPED_BACKWARD * backward)
        if candidate.strategy == "fsdp" and num > 1:
            sent = (2 * candidate.accumulation * parameters + gradients) * (num - 1) / num / link
            return sent - min(HIDDEN_SHARDED * sent, compute)
        if candidate.strategy == "parameter_server" or candidate.offloaded:
            return (gradients + parameters) / link
        return 0.0

    def _forward_share(self) -> float:
        return self.workload.forward_operations / max(1, self.workload.without_recompute.operations)

    def _inputs(self, candidate: Candidate, *, cached: bool) -> float:
        """Return the core-seconds that the samples of a step take."""
        inputs = self.workload.inputs
        if inputs is None:
            return 0.0
        all_images, held = self.request.num_samples * inputs.image_bytes, 0.0
        if cached and all_images:
            held = min(1.0, candidate.cache_bytes * candidate.replicas / all_images)
        return self.request.batch * (held * inputs.cached_seconds + (1 - held) * inputs.seconds)

    def predict(self, candidate: Candidate) -> Prediction:
        step = self.step(candidate)
        per_epoch = self.request.num_samples / self.request.batch
        first = Interval.around(self.step(candidate, cached=False).wall, step.spread)
        later = Interval.around(step.wall, step.spread)
        first_steps = min(self.request.steps, per_epoch)
        run = first.times(first_steps).plus(later.times(self.request.steps - first_steps))
        if self.request.seconds is not None and self.request.seconds < run.likely:
            run = Interval.around(self.request.seconds, 0.0)
        return Prediction(
            memory=tuple(self.memory(candidate)),
            step=later,
            first=first,
            epoch=later.times(per_epoch),
            run=run,
            images_per_second=self.request.batch / step.wall,
            bound=step.bound,
            timeline=tuple(self._timeline(candidate, step)),
            basis=step.basis,
        )

    def _timeline(self, candidate: Candidate, step: StepTime) -> list[Span]:
        maker = "loader workers" if candidate.loader_workers else "cpu"
        making = Span(lane=maker, name="read and transform", begin=0, end=step.inputs)
        spans = [making] if step.inputs else []
        begin = 0.0 if candidate.loader_workers else step.inputs
        num, forward = min(candidate.accumulation, 8), self._forward_share()  # more could not be drawn
        waits = {clone: (clone - own[0], len(own)) for own in candidate.turns for clone in own}
        for index, (device, seconds) in enumerate(zip(candidate.devices, step.compute, strict=True)):
            lane = device.name if len(candidate.devices) == 1 else f"clone_{index} on {device.name}"
            before, turns = waits[index]
            each = seconds / turns / num
            for start in (begin + (before * num + i) * each for i in range(num)):
                turn = start + forward * each
                spans.append(Span(lane=lane, name="forward", begin=start, end=turn))
                spans.append(Span(lane=lane, name="backward", begin=turn, end=start + each))
        end = begin + max(step.compute)
        if step.messages:
            spans.append(Span(lane="messages", name="add up gradients", begin=end, end=end + step.messages))
        begin = end + step.messages
        update = Span(lane=candidate.parameter_device, name="update", begin=begin, end=begin + step.update)
        return [*spans, update]
