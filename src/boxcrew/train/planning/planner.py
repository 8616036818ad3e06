"""Plans a run: with what is known before it, with steps that are tried, and with what its own first steps
show.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace

import psutil

from boxcrew.core.types import Batch
from boxcrew.core.units import format_bytes
from boxcrew.core.workload import Workload
from boxcrew.hardware.machine import Host, Machine
from boxcrew.hardware.speed import QUIET, measured
from boxcrew.plan.candidate import candidate_of
from boxcrew.plan.cost import Costs
from boxcrew.plan.memory import capacity_of
from boxcrew.plan.observed import Observed, ObservedRatio, Timing
from boxcrew.plan.observed_store import recall, remember
from boxcrew.plan.plan import Plan
from boxcrew.plan.search import with_enough_workers
from boxcrew.tasks.base import DataFacts
from boxcrew.train.config import RunConfig
from boxcrew.train.planning.choose import choose_plan, plan_request, task_name
from boxcrew.train.planning.trial import TrialJob, run_trial, trial_settings


@dataclass(frozen=True, kw_only=True)
class Measured:
    """What the first steps of a run took."""

    step_seconds: float
    wait_seconds: float  # of them, for data
    peak_bytes: int | None  # of the first clone's device, or of the process that computes on the CPU


@dataclass(frozen=True, kw_only=True, eq=False)
class Planner:
    config: RunConfig
    machine: Machine
    workload: Workload
    num_samples: int  # of the training set
    hosts: Sequence[Host] = ()
    observed: Observed

    @classmethod
    def of(
        cls,
        config: RunConfig,
        machine: Machine,
        workload: Workload,
        *,
        num_samples: int,
        hosts: Sequence[Host] = (),
        is_here: bool = True,
    ) -> Planner:
        """With all that is known of the machine. One that is not here nothing was measured on."""
        observed = Observed()
        if is_here:
            machine = measured(machine)
            if sum(len(host.ranks) for host in hosts) > 1:  # replicas that begin together are no others
                machine = machine.model_copy(update={"busy_cores": 0.0})
            libraries = psutil.Process().memory_info().rss - workload.parameters - workload.buffers
            ratios = recall(machine, _key(config))
            observed = Observed(ratios=ratios, libraries=max(0, libraries))
        return cls(
            config=config,
            machine=machine,
            workload=workload,
            num_samples=num_samples,
            hosts=hosts,
            observed=observed,
        )

    def plan(self) -> Plan:
        """Of one that was given, what it is expected to take is worked out anew: it may have been edited."""
        plan = self._chosen()
        return plan if self.config.plan is None else self.expecting(plan)

    def expecting(self, plan: Plan) -> Plan:
        """The same with what it is expected to take, as far as that is known: not of several hosts."""
        predicted = None
        if len(self.hosts) <= 1:
            predicted = self._costs(self.observed, plan).predict(candidate_of(plan, self.machine))
        return plan.model_copy(update={"predicted": predicted})

    def _chosen(self) -> Plan:
        return choose_plan(
            self.config,
            self.machine,
            self.workload,
            num_samples=self.num_samples,
            hosts=self.hosts,
            observed=self.observed,
        )

    def with_steps_tried(self, plan: Plan, facts: DataFacts, batch: Batch) -> Planner:
        """The same, knowing what a few steps of this batch, which is computed at once, take here."""
        request = plan_request(self.config, self.num_samples)
        job = TrialJob(
            config=self.config,
            facts=facts,
            batch=batch,
            settings=trial_settings(plan, self.config, busy_cores=self.machine.busy_cores),
            memory=capacity_of(self.machine.devices[0], request),
            least=self.workload.least_samples,
        )
        found = run_trial(job)
        update = {"timings": found.timings, "failures": found.failures, "too_many": found.too_many}
        return replace(self, observed=self.observed.model_copy(update=update))

    def verdict(self, plan: Plan, found: Measured) -> tuple[str, bool]:
        """Predicted against measured, in a sentence; and whether it was as expected."""
        assert plan.predicted is not None
        step, memory = plan.predicted.at_first, plan.predicted.on(plan.clones[0].device)
        slower = found.step_seconds / step.likely - 1
        said = f"predicted {step.likely:.3g} s a step ({step.low:.3g} to {step.high:.3g})"
        as_measured = f"measured {found.step_seconds:.3g} s ({slower:+.0%})"
        as_expected = found.step_seconds in step
        if found.peak_bytes is not None:
            most = memory.measurable + memory.margin
            larger = found.peak_bytes / memory.measurable - 1
            said += f" and {format_bytes(memory.measurable)} (at most {format_bytes(most)})"
            as_measured += f", {format_bytes(found.peak_bytes)} ({larger:+.0%})"
            as_expected = as_expected and found.peak_bytes <= most
        return f"{said}; {as_measured}", as_expected

    def replanned(self, plan: Plan, found: Measured) -> Plan:
        """With what the run itself has shown. What decides its numbers to the last bit stays as it began."""
        device, peak = plan.clones[0].device, found.peak_bytes
        timing = Timing(
            device=device,
            memory_format=plan.memory_format,
            threads=plan.threads,
            precision=plan.precision,
            samples=plan.micro_batches(plan.batch)[0],
            seconds=max(1e-6, (found.step_seconds - found.wait_seconds) / plan.accumulation),
            num_bytes=None if peak is None else max(1, peak - self._libraries_on(device)),
        )
        costs = self._costs(self.observed.model_copy(update={"timings": (timing,), "failures": ()}), plan)
        return with_enough_workers(costs, plan).because("planned anew after the first steps")

    def remember(self, plan: Plan, found: Measured) -> None:
        """How far off a prediction by the speeds of the machine alone would have been. Not while others are
        at work: they are not the machine's.
        """
        if self.machine.busy_cores >= QUIET:
            return
        device = plan.clones[0].device
        bare = self._costs(Observed(libraries=self.observed.libraries), plan)
        candidate = candidate_of(plan, self.machine)
        predicted = bare.predict(candidate).on(device).measurable
        libraries = self._libraries_on(device)
        larger = 1.0
        if found.peak_bytes is not None:
            larger = max(1, found.peak_bytes - libraries) / max(1, predicted - libraries)
        ratio = ObservedRatio(
            device=device,
            memory_format=plan.memory_format,
            precision=plan.precision,
            seconds=max(1e-6, found.step_seconds - found.wait_seconds) / max(1e-9, bare.step(candidate).busy),
            num_bytes=larger,
        )
        remember(self.machine, _key(self.config), ratio)

    def _libraries_on(self, device: str) -> int:
        """Bytes that are measured there besides the model's."""
        return (self.observed.libraries or 0) if device == "cpu" else 0

    def _costs(self, observed: Observed, plan: Plan) -> Costs:
        """Of a plan, whose batch may be another than that of the settings."""
        request = plan_request(self.config, self.num_samples).model_copy(update={"batch": plan.batch})
        return Costs(machine=self.machine, workload=self.workload, request=request, observed=observed)


def _key(config: RunConfig) -> str:
    """Of what was measured: the task with all that changes its network."""
    tree = config.tree()
    parts = {name: tree[name] for name in ("trainable", "optim")} | {"task": config.task.tree()}
    known = json.dumps(parts, sort_keys=True)
    return f"{task_name(config)} {hashlib.blake2b(known.encode(), digest_size=8).hexdigest()}"
