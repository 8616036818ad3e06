"""Properties of every plan, whatever the machine and the workload."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from boxcrew.core.errors import UsageError
from boxcrew.core.workload import InputCost, Workload
from boxcrew.hardware.assumed import assumed_machine
from boxcrew.plan.layouts import by_speed
from boxcrew.plan.plan import Plan
from boxcrew.plan.prediction import Prediction
from boxcrew.plan.request import DeployConfig, Goal, PlanRequest
from boxcrew.plan.search import make_plan
from tests.helpers.workloads import MIB, a_workload

GB = 10**9
few = settings(
    max_examples=40, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.filter_too_much]
)
many = settings(few, max_examples=100)

speeds = st.lists(st.integers(1, 90), min_size=2, max_size=5)
gpus = st.builds(
    "{}x{}GB-gpu{}{}".format,
    st.integers(1, 8),
    st.sampled_from([1, 2, 4, 8, 16, 24, 80]),
    st.sampled_from(["", "-fp16"]),
    st.sampled_from(["", "@1TFLOPS", "@20TFLOPS", "@80TFLOPS"]),
)
tpus = st.builds("{}x{}GB-tpu".format, st.integers(1, 8), st.sampled_from([8, 16, 32]))
machines = st.builds(
    lambda accelerators, cores, memory, nodes: ", ".join(
        [*accelerators, f"{cores:g} cores", f"{memory}GB", f"{nodes} NUMA nodes"]
    ),
    st.one_of(
        st.just([]), st.lists(gpus, min_size=1, max_size=2), st.lists(st.one_of(gpus, tpus), max_size=2)
    ),
    st.sampled_from([0.1, 0.5, 1, 1.5, 2, 4, 8, 16, 64]),
    st.sampled_from([0.1, 1, 2, 4, 8, 16, 64, 256]),
    st.sampled_from([1, 1, 2, 4]),
)
places = st.sampled_from(
    [
        "24GB-gpu, 64GB",
        "2x24GB-gpu, 64GB",
        "24GB-gpu@60TFLOPS, 24GB-gpu@20TFLOPS, 64GB",
        "64GB",
        "8GB-tpu, 64GB",
    ]
)
goals = st.sampled_from(["fastest", "smallest", "deadline:1h", "deadline:1d", "budget:1GB", "budget:6GB"])


@st.composite
def workloads(draw: st.DrawFn) -> Workload:
    size = draw(st.sampled_from([0, 1, 20, 100, 1000, 5000])) * MIB
    reading = draw(st.sampled_from([None, 1e-4, 0.01, 0.5]))
    inputs = (
        InputCost(seconds=reading, cached_seconds=reading / 5, image_bytes=MIB).tree() if reading else None
    )
    usual = a_workload(
        activations=draw(st.sampled_from([0, 1, 10, 100, 1000])) * MIB,
        parameters=size,
        gradients=draw(st.sampled_from([size, size // 10, 0])),
        slots=draw(st.integers(0, 2)),
        averages=draw(st.integers(0, 1)),
        min_samples=draw(st.integers(1, 2)),
        depthwise=draw(st.booleans()),
        inputs=inputs,
    )
    return usual if draw(st.booleans()) else usual.model_copy(update={"with_recompute": None})


def request(batch: int, goal: str = "fastest", **deploy: Any) -> PlanRequest:
    others = {name: deploy.pop(name) for name in ("workers", "cache") if name in deploy}
    asked = {"batch": batch, "goal": Goal.parse(goal), "deploy": DeployConfig.of(deploy)}
    return PlanRequest.of(asked | {"num_samples": 500, "steps": 1000} | others)


def predicted(plan: Plan) -> Prediction:
    assert plan.predicted is not None
    return plan.predicted


def at_once(plan: Plan) -> int:
    """Samples that a clone computes at the same time, at the most."""
    return max(max(counts) for counts in plan.split(plan.batch))


@given(text=machines, workload=workloads(), batch=st.integers(1, 64), goal=goals)
@many
def test_any_machine_gets_a_plan_that_keeps_its_word_or_an_error_that_says_why(
    text: str, workload: Workload, batch: int, goal: str
) -> None:
    machine, wanted = assumed_machine(text), request(batch, goal)
    try:
        plan = make_plan(machine, workload, wanted)
    except UsageError as error:
        assert "not enough memory: " in error.message or "the fastest plan takes " in error.message  # noqa: PT017
        assert error.advice  # noqa: PT017
        return
    assert sum(clone.share for clone in plan.clones) == plan.batch == batch
    assert {clone.device for clone in plan.clones} <= {device.name for device in machine.devices}
    tight = any("memory is tight" in reason for reason in plan.reasons)
    for memory in predicted(plan).memory:
        assert memory.is_enough or (tight and memory.peak <= memory.capacity)
    assert make_plan(machine, workload, wanted) == plan
    assert Plan.of(json.loads(json.dumps(plan.tree()))) == plan


@given(text=machines, workload=workloads(), batch=st.integers(1, 64))
@settings(few, max_examples=150)
def test_what_only_saves_time_is_given_up_before_anything_is_refused(
    text: str, workload: Workload, batch: int
) -> None:
    """Decoded images that are kept, and loader workers with what they have ready."""
    machine = assumed_machine(text)
    try:
        make_plan(machine, workload, request(batch, cache=0, workers=0))
    except UsageError:
        return
    assert make_plan(machine, workload, request(batch)).batch == batch


@given(
    sizes=st.tuples(st.integers(1, 60), st.integers(1, 60)).map(sorted),
    place=st.sampled_from(["{}GB-gpu, 64GB", "2x{}GB-gpu, 64GB", "2 cores, {}GB"]),
    activations=st.integers(1, 1500),
    mebibytes=st.sampled_from([20, 500, 2000]),
    recompute=st.booleans(),
)
@many
def test_more_memory_never_makes_a_clone_compute_fewer_samples_at_once(
    sizes: list[int], place: str, activations: int, mebibytes: int, recompute: bool
) -> None:
    """Compare with fixed `recompute`: activations that are kept leave memory for fewer samples at once."""
    workload = a_workload(
        activations=activations * MIB, parameters=mebibytes * MIB, gradients=mebibytes * MIB
    )
    deploy: dict[str, Any] = {"strategy": "ddp", "replicas": 2 if "2x" in place else 1}
    plans: list[Plan | None] = []
    for size in sizes:
        try:
            plans.append(
                make_plan(
                    assumed_machine(place.format(size)), workload, request(32, recompute=recompute, **deploy)
                )
            )
        except UsageError:
            plans.append(None)
    less, more = plans
    assume(less is not None)
    assert more is not None
    assert less is not None
    assert at_once(more) >= at_once(less)


@given(speeds=speeds, batch=st.integers(10, 100))
@few
def test_a_faster_device_never_gets_a_smaller_share(speeds: list[int], batch: int) -> None:
    text = ", ".join(f"24GB-gpu@{speed}TFLOPS" for speed in speeds)
    plan = make_plan(assumed_machine(text), a_workload(), request(batch))
    shares = {clone.device: clone.share for clone in plan.clones}
    placed = sorted((speed, shares.get(f"cuda:{index}", 0)) for index, speed in enumerate(speeds))
    assert [share for _, share in placed] == sorted(shares.get(f"cuda:{i}", 0) for i in range(len(speeds)))


@given(speeds=speeds, batch=st.integers(10, 100), more=st.integers(1, 100))
@few
def test_who_becomes_faster_never_gets_less(speeds: list[int], batch: int, more: int) -> None:
    before, after = by_speed(batch, speeds), by_speed(batch, [speeds[0] + more, *speeds[1:]])
    assert sum(before) == sum(after) == batch
    assert min(before) >= 1
    assert after[0] >= before[0]


@given(
    batch=st.integers(10, 60),
    speeds=st.lists(st.integers(2, 40), min_size=2, max_size=4),
    size=st.integers(1200, 4000),
    data=st.data(),
)
@few
def test_clones_compute_as_many_samples_at_once_as_was_planned(
    batch: int, speeds: list[int], size: int, data: st.DataObject
) -> None:
    """Not more, which would not fit, nor fewer than can be computed."""
    text = ", ".join(f"{size}MB-gpu@{speed}TFLOPS" for speed in speeds)
    least = data.draw(st.integers(1, 2))
    workload = a_workload(activations=60 * MIB, min_samples=least)
    try:
        plan = make_plan(
            assumed_machine(f"{text}, 64GB"), workload, request(batch, recompute=False, precision="fp32")
        )
    except UsageError:
        assume(False)
    dealt = plan.split(batch)
    assert min(map(min, dealt)) >= least
    for clone, counts in zip(plan.clones, zip(*dealt, strict=True), strict=True):
        planned = predicted(plan).on(clone.device)
        assert planned.activations >= workload.without_recompute.peak.at(max(counts)) - workload.gradients
        assert planned.peak <= planned.capacity


def pace(place: str, cores: float, batch: int, *, reading: float | None, workers: int) -> float:
    """Return the images per second."""
    inputs = InputCost(seconds=reading, cached_seconds=reading, image_bytes=MIB).tree() if reading else None
    machine = assumed_machine(f"{place}, {cores:g} cores")
    return predicted(
        make_plan(machine, a_workload(inputs=inputs), request(batch, workers=workers))
    ).images_per_second


readers = given(
    place=places,
    cores=st.sampled_from([0.5, 1, 2, 8]),
    batch=st.sampled_from([4, 16, 64]),
    reading=st.sampled_from([1e-4, 0.01, 0.5]),
    workers=st.integers(0, 7),
)


@readers
@few
def test_no_number_of_workers_makes_more_images_than_are_computed(
    place: str, cores: float, batch: int, reading: float, workers: int
) -> None:
    most = pace(place, cores, batch, reading=None, workers=workers)
    assert pace(place, cores, batch, reading=reading, workers=workers) <= 1.000001 * most


@readers
@few
def test_one_worker_more_never_makes_fewer_images(
    place: str, cores: float, batch: int, reading: float, workers: int
) -> None:
    """The first worker is left out, because it has to hand its samples over."""
    before = pace(place, cores, batch, reading=reading, workers=workers + 1)
    assert pace(place, cores, batch, reading=reading, workers=workers + 2) >= 0.999999 * before


def test_no_worker_hands_over_what_takes_no_time() -> None:
    """The CPU computes with all its cores."""
    alone = pace("64GB", 2, 16, reading=1e-6, workers=0)
    assert pace("64GB", 2, 16, reading=1e-6, workers=1) < alone


@given(
    place=places,
    batch=st.integers(8, 32),
    activations=st.integers(1, 300),
    mebibytes=st.sampled_from([20, 500]),
)
@few
def test_more_micro_batches_never_need_more_memory(
    place: str, batch: int, activations: int, mebibytes: int
) -> None:
    """Cache and workers are fixed: a plan without its safety margin gives them up."""
    workload = a_workload(activations=activations * MIB, parameters=mebibytes * MIB, inputs=None)
    last: dict[str, int] = {}
    for num_micro_batches in (1, 2, 3, 5, 8):
        wanted = request(batch, accumulation=num_micro_batches, recompute=False, workers=0, cache=0)
        try:
            plan = make_plan(assumed_machine(place), workload, wanted)
        except UsageError:
            assert not last  # fewer micro-batches had enough memory
            continue
        needed = {memory.device: memory.needed for memory in predicted(plan).memory}
        assert all(num <= last.get(device, num) for device, num in needed.items())
        last = needed
