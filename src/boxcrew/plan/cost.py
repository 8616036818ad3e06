"""What a candidate costs: seconds of a step by who waits for whom, and bytes on every device."""

from __future__ import annotations

from dataclasses import dataclass, field

from boxcrew.core.workload import Workload
from boxcrew.hardware.machine import Device, Machine
from boxcrew.plan.candidate import Candidate
from boxcrew.plan.memory import memory_of
from boxcrew.plan.observed import Observed
from boxcrew.plan.prediction import Bound, Interval, Memory, Prediction, Span
from boxcrew.plan.request import PlanRequest
from boxcrew.plan.speed import ComputeMode, Pace, Paces, speeds_of, update_seconds

HIDDEN = 0.9  # of backward can cover messages with gradients; 95 % of them were (docs/benchmarks.md)
HIDDEN_PARTS = 0.5  # of messages with divided parameters is covered
MESSAGES = 4  # on one host a byte that is sent is copied so many times
HANDED_OVER = 0.002  # seconds until a worker's batch is here and the loop is on: 1 ms of rows, 5 of photos
DRAWN_PARTS = 8  # of a step, in its timeline


@dataclass(frozen=True, kw_only=True)
class StepTime:
    """Seconds of a step: of each clone's work, of messages that nothing covers, of updates, of inputs."""

    compute: tuple[float, ...]
    messages: float
    update: float
    inputs: float  # until the samples of a step are made
    wall: float  # all in all
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
class Costs:
    """For one task on one machine."""

    machine: Machine
    workload: Workload
    request: PlanRequest
    observed: Observed
    _paces: dict[tuple[object, ...], Pace] = field(default_factory=dict, repr=False)

    def memory(self, candidate: Candidate) -> list[Memory]:
        return memory_of(candidate, self.machine, self.workload, self.observed, self.request)

    def fits(self, candidate: Candidate) -> bool:
        too_many = self.observed.too_many
        if too_many is not None and max(candidate.at_once) >= too_many and not candidate.recompute:
            return False
        return all(one.fits for one in self.memory(candidate))

    def pace(self, device: Device, candidate: Candidate) -> Pace:
        key = (
            device.name,
            candidate.memory_format,
            candidate.precision,
            candidate.threads,
            candidate.recompute,
        )
        if key not in self._paces:
            way = ComputeMode(
                device=device,
                memory_format=candidate.memory_format,
                precision=candidate.precision,
                threads=candidate.threads,
                recompute=candidate.recompute,
            )
            paces = Paces(machine=self.machine, workload=self.workload, observed=self.observed)
            self._paces[key] = paces.of(way)
        return self._paces[key]

    def step(self, candidate: Candidate, *, kept: bool = True) -> StepTime:
        """`kept`: as in all epochs after the first, when decoded images are kept."""
        paces = [self.pace(device, candidate) for device in candidate.devices]
        compute = self._compute(candidate, paces)
        update = self._update(candidate)
        messages = self._messages(candidate, max(compute))
        inputs = self._inputs(candidate, kept=kept)
        busiest = max(compute) + messages + update
        making = inputs / max(1, candidate.workers) / candidate.replicas
        spread_out = self._of_cores(candidate, paces, compute, inputs)
        wall = max(self._wall(candidate, busiest, making, inputs / candidate.replicas), spread_out)
        return StepTime(
            compute=tuple(compute),
            messages=messages,
            update=update,
            inputs=making,
            wall=max(wall, 1e-9),
            spread=max(pace.spread for pace in paces),
            basis=paces[0].basis,
        )

    def _wall(self, candidate: Candidate, busiest: float, making: float, core_seconds: float) -> float:
        """Until what is busiest is done and the next samples are there, which take that long to make, in all
        of so many core-seconds. Threads that have all cores wait for the one whose core makes samples, and
        for the worker to hand them over.
        """
        if candidate.workers == 0:
            return busiest + making
        all_busy = candidate.on_cpu and candidate.threads * candidate.replicas >= self.machine.cores
        return max(busiest + (core_seconds + HANDED_OVER if all_busy else 0.0), making)

    def _compute(self, candidate: Candidate, paces: list[Pace]) -> list[float]:
        """Of each clone. Those of one process on the CPU share its threads, and so take turns in effect."""
        found = [
            min(candidate.parts, share) * pace.fixed + pace.each * share
            for pace, share in zip(paces, candidate.shares, strict=True)
        ]
        if candidate.on_cpu and candidate.replicas == 1 and len(found) > 1:
            found = [sum(found)] * len(found)
        return [seconds * self._crowding(candidate) for seconds in found]

    def _crowding(self, candidate: Candidate) -> float:
        """How much longer threads take that others want cores of too: all get their turn. What was measured
        has it in it.
        """
        if not candidate.on_cpu or self.observed.timings:
            return 1.0
        wanted = candidate.threads * candidate.replicas + self.machine.busy_cores
        return max(1.0, wanted / self.machine.cores)

    def _update(self, candidate: Candidate) -> float:
        keeper = next(one for one in self.machine.devices if one.name == candidate.keeper)
        seconds = update_seconds(self.workload, speeds_of(keeper, self.machine)[0])
        seconds *= self.pace(candidate.devices[0], candidate).corrected
        return seconds / (candidate.replicas if candidate.strategy == "fsdp" else 1)

    def _messages(self, candidate: Candidate, compute: float) -> float:
        """Between clones and processes, as far as nothing covers them."""
        link = min(self._link(device) for device in candidate.devices)
        num, gradients, parameters = candidate.replicas, self.workload.gradients, self.workload.parameters
        backward = compute * (1 - self._forward_part()) / candidate.parts
        if candidate.strategy == "ddp" and num > 1:
            sent = 2 * (num - 1) / num * gradients / link
            return max(0.0, sent - HIDDEN * backward)
        if candidate.strategy == "fsdp" and num > 1:
            sent = (2 * candidate.parts * parameters + gradients) * (num - 1) / num / link
            return sent - min(HIDDEN_PARTS * sent, compute)
        if candidate.strategy == "parameter_server" or candidate.offloaded:
            return (gradients + parameters) / link
        return 0.0

    def _link(self, device: Device) -> float:
        """Bytes a second between it and the others."""
        speeds = speeds_of(device, self.machine)[0]
        return speeds.from_host_bytes or speeds.copy_bytes / MESSAGES

    def _forward_part(self) -> float:
        return self.workload.forward_operations / max(1, self.workload.whole.operations)

    def _inputs(self, candidate: Candidate, *, kept: bool) -> float:
        """Core-seconds for the samples of a step."""
        inputs = self.workload.inputs
        if inputs is None:
            return 0.0
        all_images = self.request.num_samples * inputs.image_bytes
        held = min(1.0, candidate.cache * candidate.replicas / all_images) if kept and all_images else 0.0
        return self.request.batch * (held * inputs.kept_seconds + (1 - held) * inputs.seconds)

    def _of_cores(
        self, candidate: Candidate, paces: list[Pace], compute: list[float], inputs: float
    ) -> float:
        """If all work were spread over the cores evenly."""
        work = inputs
        if candidate.on_cpu:
            per_replica = compute[:: max(1, len(compute) // candidate.replicas)]
            work += sum(seconds * candidate.threads * paces[0].parallel for seconds in per_replica)
        return work / self.machine.cores

    def predict(self, candidate: Candidate) -> Prediction:
        step = self.step(candidate)
        per_epoch = self.request.num_samples / self.request.batch
        first = Interval.around(self.step(candidate, kept=False).wall, step.spread)
        later = Interval.around(step.wall, step.spread)
        begun = min(self.request.steps, per_epoch)
        run = first.times(begun).plus(later.times(self.request.steps - begun))
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
        spans = []
        if candidate.workers and step.inputs:
            spans.append(Span(lane="loader workers", name="read and transform", begin=0, end=step.inputs))
        begin = step.inputs if candidate.workers == 0 else 0.0
        if begin:
            spans.append(Span(lane="cpu", name="read and transform", begin=0, end=begin))
        ends = []
        for index, (device, seconds) in enumerate(zip(candidate.devices, step.compute, strict=True)):
            lane = device.name if len(candidate.devices) == 1 else f"clone_{index} on {device.name}"
            spans += self._passes(lane, begin, seconds, candidate.parts)
            ends.append(begin + seconds)
        end = max(ends)
        if step.messages:
            spans.append(Span(lane="messages", name="add up gradients", begin=end, end=end + step.messages))
        after = end + step.messages
        spans.append(Span(lane=candidate.keeper, name="update", begin=after, end=after + step.update))
        return spans

    def _passes(self, lane: str, begin: float, seconds: float, parts: int) -> list[Span]:
        parts = min(parts, DRAWN_PARTS)
        each, forward = seconds / parts, self._forward_part()
        found = []
        for part in range(parts):
            start = begin + part * each
            turn = start + forward * each
            found.append(Span(lane=lane, name="forward", begin=start, end=turn))
            found.append(Span(lane=lane, name="backward", begin=turn, end=start + each))
        return found
