"""The planner of a run: it makes plans from what was observed before, in a trial, and in the first steps."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import psutil

from boxcrew.core.types import Batch
from boxcrew.core.units import format_bytes
from boxcrew.core.workload import Workload
from boxcrew.hardware.machine import Host, Machine
from boxcrew.hardware.speed import QUIET, with_speeds
from boxcrew.plan.candidate import candidate_of
from boxcrew.plan.cost import Costs
from boxcrew.plan.memory import capacity_of
from boxcrew.plan.observed import Observed, ObservedRatio, Timing, load_ratios, store_ratio
from boxcrew.plan.plan import Plan
from boxcrew.plan.search import with_enough_workers
from boxcrew.tasks.facts import DataFacts
from boxcrew.train.config import RunConfig
from boxcrew.train.planning.from_settings import choose_plan, plan_request
from boxcrew.train.planning.trial import TrialJob, run_trial, trial_settings


@dataclass(frozen=True, kw_only=True)
class FirstSteps:
    """The measured time and memory of a run's first steps."""

    step_seconds: float
    wait_seconds: float  # part of `step_seconds`: waiting for data
    peak_bytes: int | None  # of the first clone's device, or of the process that computes on the CPU


@dataclass(frozen=True, kw_only=True, eq=False)
class Planner:
    """Plans one run. It is immutable: methods that add observations return a new planner."""

    config: RunConfig
    machine: Machine
    workload: Workload
    num_samples: int  # of the training set
    hosts: Sequence[Host] = ()
    observed: Observed = field(default_factory=Observed)

    def with_history(self) -> Planner:
        """Return a planner that knows the speeds of this machine, and how far off earlier predictions are."""
        machine = with_speeds(self.machine)
        if sum(len(host.ranks) for host in self.hosts) > 1:  # the load is that of our own replicas
            machine = machine.model_copy(update={"busy_cores": 0.0})
        libraries = psutil.Process().memory_info().rss - self.workload.parameters - self.workload.buffers
        ratios = load_ratios(machine, _key(self.config))
        return replace(self, machine=machine, observed=Observed(ratios=ratios, libraries=max(0, libraries)))

    def plan(self) -> Plan:
        """Return the best plan, or that of `plan=` with a new prediction, because it may have been edited."""
        plan = choose_plan(
            self.config,
            self.machine,
            self.workload,
            num_samples=self.num_samples,
            hosts=self.hosts,
            observed=self.observed,
        )
        return plan if self.config.plan is None else self.with_prediction(plan)

    def with_prediction(self, plan: Plan) -> Plan:
        """Return the plan with a prediction; there is none for several hosts."""
        predicted = None
        if len(self.hosts) <= 1:
            predicted = self._costs(self.observed, plan).predict(candidate_of(plan, self.machine))
        return plan.model_copy(update={"predicted": predicted})

    def with_trial(self, plan: Plan, facts: DataFacts, batch: Batch) -> Planner:
        """Return a planner that knows the time and memory of a few steps with this micro-batch."""
        request = plan_request(self.config, self.num_samples)
        job = TrialJob(
            config=self.config,
            facts=facts,
            batch=batch,
            settings=trial_settings(plan, self.config, busy_cores=self.machine.busy_cores),
            memory=capacity_of(self.machine.devices[0], request),
            least=self.workload.min_samples,
        )
        known = {"ratios": self.observed.ratios, "libraries": self.observed.libraries}
        return replace(self, observed=run_trial(job).model_copy(update=known))

    def compare(self, plan: Plan, first: FirstSteps) -> tuple[str, bool]:
        """Return a sentence with predicted and measured numbers, and whether they agree."""
        assert plan.predicted is not None
        step, memory = plan.predicted.at_first, plan.predicted.on(plan.clones[0].device)
        slower = first.step_seconds / step.likely - 1
        predicted = f"predicted {step.likely:.3g} s per step ({step.low:.3g} to {step.high:.3g})"
        measured = f"measured {first.step_seconds:.3g} s ({slower:+.0%})"
        as_expected = first.step_seconds in step
        if first.peak_bytes is not None:
            most = memory.measurable + memory.margin
            larger = first.peak_bytes / memory.measurable - 1
            predicted += f" and {format_bytes(memory.measurable)} (at most {format_bytes(most)})"
            measured += f", {format_bytes(first.peak_bytes)} ({larger:+.0%})"
            as_expected = as_expected and first.peak_bytes <= most
        return f"{predicted}; {measured}", as_expected

    def replanned(self, plan: Plan, first: FirstSteps) -> Plan:
        """Return the plan corrected by the first steps. What decides the run's numbers is not changed."""
        device, peak = plan.clones[0].device, first.peak_bytes
        timing = Timing(
            device=device,
            memory_format=plan.memory_format,
            threads=plan.threads,
            precision=plan.precision,
            samples=plan.micro_batches(plan.batch)[0],
            seconds=max(1e-6, (first.step_seconds - first.wait_seconds) / plan.accumulation),
            num_bytes=None if peak is None else max(1, peak - self._libraries_on(device)),
        )
        costs = self._costs(self.observed.model_copy(update={"timings": (timing,), "failures": ()}), plan)
        return with_enough_workers(costs, plan).with_reason("replanned after the first steps")

    def store_ratio(self, plan: Plan, first: FirstSteps) -> None:
        """Store how far off a prediction from device speeds alone was, unless others disturbed it."""
        if self.machine.busy_cores >= QUIET:
            return
        device = plan.clones[0].device
        bare = self._costs(Observed(libraries=self.observed.libraries), plan)
        candidate = candidate_of(plan, self.machine)
        predicted = bare.predict(candidate).on(device).measurable
        libraries = self._libraries_on(device)
        larger = 1.0
        if first.peak_bytes is not None:
            larger = max(1, first.peak_bytes - libraries) / max(1, predicted - libraries)
        ratio = ObservedRatio(
            device=device,
            memory_format=plan.memory_format,
            precision=plan.precision,
            seconds=max(1e-6, first.step_seconds - first.wait_seconds) / max(1e-9, bare.step(candidate).busy),
            num_bytes=larger,
        )
        store_ratio(self.machine, _key(self.config), ratio)

    def _libraries_on(self, device: str) -> int:
        """Return the measured bytes on a device that are not the model's."""
        return (self.observed.libraries or 0) if device == "cpu" else 0

    def _costs(self, observed: Observed, plan: Plan) -> Costs:
        """Return the costs with the plan's batch, which may differ from that of the settings."""
        request = plan_request(self.config, self.num_samples).model_copy(update={"batch": plan.batch})
        return Costs(machine=self.machine, workload=self.workload, request=request, observed=observed)


def _key(config: RunConfig) -> str:
    """Return the key of stored ratios: the task with all settings that change its cost."""
    tree = config.tree()
    settings = {name: tree[name] for name in ("trainable", "optim")} | {"task": config.task.tree()}
    text = json.dumps(settings, sort_keys=True)
    return f"{config.task.title} {hashlib.blake2b(text.encode(), digest_size=8).hexdigest()}"
