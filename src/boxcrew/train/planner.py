"""Plans a run: with what is known before it, with steps that are tried, and with what its own first steps
show.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace

import psutil

from boxcrew.core.errors import UsageError
from boxcrew.core.types import Batch
from boxcrew.core.units import format_bytes
from boxcrew.core.workload import Workload
from boxcrew.hardware.machine import Host, Machine
from boxcrew.hardware.speed import measured
from boxcrew.plan.knowledge import Knowledge, Residual, Timing
from boxcrew.plan.memory import capacity_of
from boxcrew.plan.plan import Plan
from boxcrew.plan.residuals import recall, remember
from boxcrew.train.config import RunConfig
from boxcrew.train.planning import choose_plan, order_of, task_name
from boxcrew.train.probe import Job, probe, ways_of


@dataclass(frozen=True, kw_only=True)
class Measured:
    """What the first steps of a run took."""

    step_seconds: float
    wait_seconds: float  # of them, for data
    peak_bytes: int  # of the first clone's device, or of the process that computes on the CPU


@dataclass(frozen=True, kw_only=True, eq=False)
class Planner:
    config: RunConfig
    machine: Machine
    workload: Workload
    num_samples: int  # of the training set
    hosts: Sequence[Host] = ()
    knowledge: Knowledge

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
        knowledge = Knowledge()
        if is_here:
            machine = measured(machine)
            libraries = psutil.Process().memory_info().rss - workload.parameters - workload.buffers
            residuals = recall(machine, _key(config))
            knowledge = Knowledge(residuals=residuals, libraries=max(0, libraries))
        return cls(
            config=config,
            machine=machine,
            workload=workload,
            num_samples=num_samples,
            hosts=hosts,
            knowledge=knowledge,
        )

    @property
    def fits(self) -> bool:
        """Whether there is a plan for it at all, with room to spare."""
        try:
            plan = self.plan()
        except UsageError:
            return False
        return plan.predicted is None or all(one.fits for one in plan.predicted.memory)

    def plan(self) -> Plan:
        return self._plan(self.config, self.knowledge)

    def with_steps_tried(self, plan: Plan, classes: tuple[str, ...], batch: Batch) -> Planner:
        """The same, knowing what a few steps of this batch, which is computed at once, take here."""
        order = order_of(self.config, self.num_samples)
        job = Job(
            config=self.config,
            classes=classes,
            batch=batch,
            ways=ways_of(plan, self.config, busy_cores=self.machine.busy_cores),
            memory=capacity_of(self.machine.devices[0], order),
            least=self.workload.least_samples,
        )
        found = probe(job)
        update = {"timings": found.timings, "failures": found.failures}
        return replace(self, knowledge=self.knowledge.model_copy(update=update))

    def verdict(self, plan: Plan, found: Measured) -> tuple[str, bool]:
        """Predicted against measured, in a sentence; and whether it was as expected."""
        assert plan.predicted is not None
        step, memory = plan.predicted.step, plan.predicted.on(plan.clones[0].device).measurable
        slower, larger = found.step_seconds / step.likely - 1, found.peak_bytes / memory - 1
        margin = plan.predicted.on(plan.clones[0].device).margin
        as_expected = found.step_seconds in step and found.peak_bytes <= memory + margin
        return (
            f"predicted {step.likely:.3g} s a step ({step.low:.3g} to {step.high:.3g}) and "
            f"{format_bytes(memory)} (at most {format_bytes(memory + margin)}); measured "
            f"{found.step_seconds:.3g} s ({slower:+.0%}), {format_bytes(found.peak_bytes)} ({larger:+.0%})",
            as_expected,
        )

    def replanned(self, plan: Plan, found: Measured) -> Plan:
        """With what the run itself has shown. What decides its numbers to the last bit stays as it began."""
        timing = Timing(
            device=plan.clones[0].device,
            memory_format=plan.memory_format,
            threads=plan.threads,
            precision=plan.precision,
            samples=plan.micro_batches(plan.batch)[0],
            seconds=max(1e-6, (found.step_seconds - found.wait_seconds) / plan.accumulation),
            num_bytes=max(1, found.peak_bytes - (self.knowledge.libraries or 0)),
        )
        knowledge = self.knowledge.model_copy(update={"timings": (timing,)})
        again = self._plan(self._settled(plan), knowledge)
        return plan.model_copy(
            update={"loader_workers": again.loader_workers, "predicted": again.predicted}
        ).because("planned anew after the first steps")

    def remember(self, plan: Plan, found: Measured) -> None:
        """How far off a prediction by the speeds of the machine alone would have been."""
        libraries = self.knowledge.libraries or 0
        bare = self._plan(self._settled(plan), Knowledge(libraries=self.knowledge.libraries))
        assert bare.predicted is not None
        residual = Residual(
            device=plan.clones[0].device,
            memory_format=plan.memory_format,
            seconds=max(1e-6, found.step_seconds - found.wait_seconds) / bare.predicted.step.likely,
            num_bytes=max(1, found.peak_bytes - libraries)
            / max(1, bare.predicted.on(plan.clones[0].device).measurable - libraries),
        )
        remember(self.machine, _key(self.config), residual)

    def _settled(self, plan: Plan) -> RunConfig:
        """The settings, with all that may not change as the plan has it."""
        fixed = {
            name: getattr(plan, name)
            for name in ("memory_format", "threads", "precision", "accumulation", "recompute")
        }
        deploy = self.config.deploy.model_copy(update=fixed)
        return self.config.model_copy(update={"deploy": deploy})

    def _plan(self, config: RunConfig, knowledge: Knowledge) -> Plan:
        return choose_plan(
            config,
            self.machine,
            self.workload,
            num_samples=self.num_samples,
            hosts=self.hosts,
            knowledge=knowledge,
        )


def _key(config: RunConfig) -> str:
    """Of what was measured: the task with all that changes its network."""
    known = json.dumps({"detector": config.detector.tree(), "trainable": config.trainable}, sort_keys=True)
    return f"{task_name(config)} {hashlib.blake2b(known.encode(), digest_size=8).hexdigest()}"
