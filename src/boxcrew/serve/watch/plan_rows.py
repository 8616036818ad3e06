"""The numbers that the plan of a run predicted, beside those that were measured."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace

from boxcrew.core.errors import BoxcrewError
from boxcrew.plan.plan import Plan
from boxcrew.plan.prediction import Interval, Prediction
from boxcrew.serve.watch.curves import MetricTable
from boxcrew.serve.watch.reading import JsonRecord


@dataclass(frozen=True, kw_only=True)
class PlanRow:
    """A number of the plan. Values are in seconds, bytes or samples per second, as the name says."""

    name: str
    likely: float | None = None
    low: float | None = None
    high: float | None = None
    measured: float | None = None
    is_projected: bool = False  # measured so far, and extended to the end of the run


def read_plan(record: JsonRecord) -> Plan | None:
    """Return the plan of a run; None if there is none that is whole."""
    try:
        return Plan.of(record.value()) if record else None
    except BoxcrewError:
        return None


def plan_rows(
    plan: Plan, training: MetricTable, status: JsonRecord, summary: JsonRecord
) -> list[dict[str, object]]:
    """Return a row for each number that is predicted or measured."""
    predicted, speed = plan.predicted, training.recent("images_per_second")
    step = None if not speed else plan.batch / speed
    rate = None if predicted is None else predicted.images_per_second
    rows = [
        _time("step_seconds", None if predicted is None else predicted.step, step),
        PlanRow(name="images_per_second", likely=rate, measured=speed),
        _time("epoch_seconds", None if predicted is None else predicted.epoch, _epoch_seconds(step, status)),
        _run_row(predicted, status),
        _memory_row(plan, summary),
        PlanRow(name="data_wait", measured=training.recent("data_wait")),
    ]
    return [asdict(row) for row in rows if row.likely is not None or row.measured is not None]


def _time(name: str, predicted: Interval | None, measured: float | None) -> PlanRow:
    if predicted is None:
        return PlanRow(name=name, measured=measured)
    return PlanRow(
        name=name, likely=predicted.likely, low=predicted.low, high=predicted.high, measured=measured
    )


def _epoch_seconds(step: float | None, status: JsonRecord) -> float | None:
    """Return the seconds of an epoch's steps, without evaluations."""
    steps, epochs = status.number("step"), status.number("epoch")
    return step * steps / epochs if step and steps and epochs and epochs > 0 else None


def _run_row(predicted: Prediction | None, status: JsonRecord) -> PlanRow:
    """Return the row of the whole run; until it has ended, its time is projected from what is done."""
    seconds, fraction = status.number("train_seconds"), status.number("fraction") or 0.0
    measured = seconds / fraction if seconds and fraction > 0 else None
    row = _time("run_seconds", None if predicted is None else predicted.run, measured)
    return replace(row, is_projected=0 < fraction < 1)


def _memory_row(plan: Plan, summary: JsonRecord) -> PlanRow:
    """Return the row of the first device's memory. It is measured at the end of the run."""
    measured = summary.number("peak_memory_bytes")
    devices = () if plan.predicted is None or plan.num_processes > 1 else plan.predicted.memory
    memory = next((memory for memory in devices if memory.device == plan.clones[0].device), None)
    if memory is None:
        return PlanRow(name="peak_bytes", measured=measured)
    likely = memory.measurable + memory.evaluation  # loader processes are not measured
    return PlanRow(name="peak_bytes", likely=likely, high=likely + memory.margin, measured=measured)
