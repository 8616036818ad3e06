"""Plans for described machines and made-up workloads, so that these tests run anywhere."""

from __future__ import annotations

import re
from typing import Any

import pytest
from pydantic import ByteSize, TypeAdapter

from boxcrew.core.errors import UsageError
from boxcrew.core.workload import InputCost, LinearBytes, PassCost, Peak, Workload
from boxcrew.hardware.assumed import assumed_machine
from boxcrew.plan.observed import Observed, Timing
from boxcrew.plan.plan import MemoryFormat, Plan
from boxcrew.plan.prediction import Prediction
from boxcrew.plan.request import DeployConfig, Goal, PlanRequest
from boxcrew.plan.search import make_plan
from boxcrew.plan.speed import RUN_SLOWDOWN
from tests.helpers.workloads import MIB, a_workload

GB = 10**9


def plan_for(
    text: str,
    workload: Workload | None = None,
    *,
    goal: str = "fastest",
    observed: Observed | None = None,
    device: str = "auto",
    batch: int = 16,
    **deploy: object,
) -> Plan:
    """Return the plan for an assumed machine. `deploy` has deploy settings, `workers` and `cache`."""
    others = {name: deploy.pop(name) for name in ("workers", "cache") if name in deploy}
    request = PlanRequest.of(
        {
            "deploy": DeployConfig.of(deploy),
            "goal": Goal.parse(goal),
            "device": device,
            "batch": batch,
            "num_samples": 1000,
            "steps": 1000,
        }
        | others
    )
    return make_plan(assumed_machine(text), workload or a_workload(), request, observed)


def test_a_card_with_a_name_computes_as_fast_as_its_data_sheet_says() -> None:
    """16-bit speed decides where operations are many, bandwidth where they are few."""
    step = {
        (card, kind): _predicted(plan_for(f"{card}, 16 cores, 64GB", workload, device="cuda", batch=4096))
        for card in ("V100-32GB", "A100-40GB")
        for kind, workload in (("many", _work(operations=10**12)), ("few", _work(traffic=10**10)))
    }
    assert step["V100-32GB", "many"] / step["A100-40GB", "many"] == pytest.approx(312 / 125, rel=0.02)
    assert step["V100-32GB", "few"] / step["A100-40GB", "few"] == pytest.approx(1555 / 900, rel=0.02)


def _predicted(plan: Plan) -> float:
    assert plan.predicted is not None
    assert plan.predicted.basis == "the data sheets of the devices"
    return plan.predicted.step.likely


def _work(**changes: int) -> Workload:
    """Return a workload without any operations and traffic but these."""
    usual = a_workload(inputs=None)
    nothing = usual.without_recompute.model_copy(update={"operations": 0, "traffic": 0} | changes)
    return usual.model_copy(update={"without_recompute": nothing, "with_recompute": None})


def heavy(mebibytes: int, **changes: Any) -> Workload:
    """Return the workload of a network of this size; gradients are part of the peak of a step."""
    size = mebibytes * MIB
    usual = a_workload(parameters=size, gradients=size, largest_layer=size // 10, **changes)
    assert usual.with_recompute is not None
    passes = {
        "without_recompute": _above(usual.without_recompute, size),
        "with_recompute": _above(usual.with_recompute, size),
    }
    return usual.model_copy(update=passes)


def _above(usual: PassCost, size: int) -> PassCost:
    moments = tuple(LinearBytes(fixed=line.fixed + size, each=line.each) for line in usual.peak.moments)
    return usual.model_copy(update={"peak": Peak(moments=moments)})


def slow_images(seconds: float) -> dict[str, object]:
    return InputCost(seconds=seconds, cached_seconds=seconds, image_bytes=MIB).tree()


def devices(plan: Plan) -> list[str]:
    return [clone.device for clone in plan.clones]


def shares(plan: Plan) -> list[int]:
    return [clone.share for clone in plan.clones]


def predicted(plan: Plan) -> Prediction:
    assert plan.predicted is not None
    return plan.predicted


def needed(plan: Plan) -> int:
    """Bytes on the device that needs most."""
    return max(memory.needed for memory in predicted(plan).memory)


def sizes_in(message: str) -> tuple[int, int]:
    """Bytes that are needed and that are there, as an error names them."""
    match = re.search(r"needs (.*?B) on \S+, which has (.*?B)$", message)
    assert match, message
    size = TypeAdapter(ByteSize).validate_python
    return size(match[1]), size(match[2])


# Tables: machine x workload -> plan.


@pytest.mark.parametrize(
    ("text", "batch", "expected"),
    [
        pytest.param(
            "8 cores, 32GB",
            16,
            {"strategy": "single", "precision": "fp32", "memory_format": "contiguous", "threads": 8},
            id="one CPU",
        ),
        pytest.param(
            "80GB-gpu, 16 cores, 128GB",
            64,
            {"strategy": "single", "precision": "bf16", "memory_format": "channels_last"},
            id="one large GPU",
        ),
        pytest.param(
            "16GB-gpu-fp16, 16 cores, 128GB", 64, {"strategy": "single", "precision": "fp16"}, id="an old GPU"
        ),
        pytest.param(
            "8x24GB-gpu, 64 cores, 256GB",
            256,
            {"strategy": "ddp", "precision": "bf16", "threads": 8},
            id="8 equal GPUs",
        ),
        pytest.param(
            "4x16GB-tpu, 96 cores, 256GB", 64, {"strategy": "single", "precision": "fp32"}, id="TPUs"
        ),
        pytest.param(
            "64 cores, 128GB, 2 NUMA nodes",
            64,
            {"strategy": "ddp", "threads": 32, "pinned": True},
            id="2 NUMA nodes",
        ),
        pytest.param("1.5 cores, 8GB", 16, {"strategy": "single", "threads": 1}, id="a quota of 1.5 cores"),
        pytest.param("0.5 cores, 8GB", 16, {"strategy": "single", "threads": 1}, id="half a core"),
    ],
)
def test_where_all_fits_nothing_is_given_up(text: str, batch: int, expected: dict[str, object]) -> None:
    plan = plan_for(text, batch=batch)
    usual = {"accumulation": 1, "recompute": False, "pinned": False, "batch": batch}
    expected = usual | expected
    assert {name: getattr(plan, name) for name in expected} == expected
    assert plan.parameter_device == plan.optimizer_device == devices(plan)[0]
    assert predicted(plan).bound == "compute"


@pytest.mark.parametrize(
    ("text", "batch", "placed"),
    [
        pytest.param("1 NUMA node", 16, {"cpu": 16}, id="one CPU"),
        pytest.param("80GB-gpu", 64, {"cuda:0": 64}, id="one GPU"),
        pytest.param("8x24GB-gpu", 256, {f"cuda:{i}": 32 for i in range(8)}, id="8 equal GPUs"),
        pytest.param("8x24GB-gpu", 5, {"cuda:0": 3, "cuda:1": 2}, id="fewer samples than GPUs"),
        pytest.param("24GB-gpu, 8GB-gpu", 64, {"cuda:0": 32, "cuda:1": 32}, id="unequal memory"),
        pytest.param(
            "24GB-gpu@30TFLOPS, 8GB-gpu@10TFLOPS", 64, {"cuda:0": 48, "cuda:1": 16}, id="unequal speeds"
        ),
        pytest.param(
            "8GB-gpu@10TFLOPS, 24GB-gpu@30TFLOPS", 64, {"cuda:0": 16, "cuda:1": 48}, id="the slow one first"
        ),
        pytest.param("4x16GB-tpu", 64, {"xla:0": 64}, id="TPUs cannot communicate"),
        pytest.param("24GB-gpu, 16GB-tpu", 16, {"cuda:0": 16}, id="a GPU and a TPU"),
    ],
)
def test_who_computes_how_much(text: str, batch: int, placed: dict[str, int]) -> None:
    plan = plan_for(f"{text}, 16 cores, 256GB", batch=batch)
    assert dict(zip(devices(plan), shares(plan), strict=True)) == placed
    by_speed = any("by the speeds of the devices" in reason for reason in plan.reasons)
    assert by_speed == ("TFLOPS" in text)  # else shares differ only by rounding


def test_every_numa_node_has_a_replica() -> None:
    plan = plan_for("64 cores, 128GB, 2 NUMA nodes", batch=64)
    assert (devices(plan), shares(plan), len(plan.replicas)) == (["cpu", "cpu"], [32, 32], 2)
    assert "2 NUMA nodes: one replica on each" in plan.reasons
    assert len(plan_for("64 cores, 128GB, 2 NUMA nodes", batch=3).replicas) == 1


def test_a_cpu_and_a_gpu_work_together_if_told() -> None:
    machine = "24GB-gpu, 16 cores, 64GB"
    assert devices(plan_for(machine, batch=64)) == ["cuda:0"]
    plan = plan_for(machine, batch=64, device="cuda:0,cpu")
    assert (plan.strategy, devices(plan), plan.parameter_device) == ("clones", ["cuda:0", "cpu"], "cpu")
    fast, slow = shares(plan)
    assert fast > 8 * slow
    assert plan.precision == "fp32"  # clones of one model compute alike


def test_accelerators_of_another_kind_keep_nobody_from_working() -> None:
    assert devices(plan_for("2x24GB-gpu, 16GB-tpu", batch=16)) == ["cuda:0", "cuda:1"]


@pytest.mark.parametrize("strategy", ["ddp", "fsdp"])
def test_a_strategy_for_several_devices_gets_them(strategy: str) -> None:
    plan = plan_for("2x24GB-gpu, 16 cores, 64GB", strategy=strategy)
    assert (plan.strategy, devices(plan)) == (strategy, ["cuda:0", "cuda:1"])


def test_it_is_said_that_accelerators_are_idle_and_why() -> None:
    plan = plan_for("4x16GB-tpu, 96 cores, 256GB", a_workload(inputs=None), batch=64)
    assert any("4" in reason or "others" in reason for reason in plan.reasons), plan.reasons


def test_a_gpu_that_would_hold_up_the_other_is_left_out() -> None:
    alone = plan_for("24GB-gpu@50TFLOPS, 16 cores, 64GB")
    both = plan_for("24GB-gpu@50TFLOPS, 8GB-gpu@1TFLOPS, 16 cores, 64GB")
    assert predicted(both).images_per_second >= 0.95 * predicted(alone).images_per_second


@pytest.mark.parametrize("speed", [1, 2, 10])
def test_nobody_gets_fewer_samples_than_can_be_computed(speed: int) -> None:
    plan = plan_for(f"24GB-gpu@50TFLOPS, 24GB-gpu@{speed}TFLOPS", a_workload(min_samples=2), batch=8)
    assert min(shares(plan)) >= 2


# Little memory.


def test_a_small_gpu_computes_in_several_parts() -> None:
    plan = plan_for("4GB-gpu, 8 cores, 32GB", batch=64)
    assert (plan.strategy, plan.recompute) == ("single", False)
    assert plan.accumulation > 1
    assert any(reason.startswith(f"{plan.accumulation} micro-batches per step: ") for reason in plan.reasons)
    assert any(other.startswith("deploy.accumulation=1: needs ") for other in plan.rejected)
    assert predicted(plan).on("cuda:0").is_enough


def test_activations_are_computed_again_where_they_cannot_be_kept() -> None:
    plan = plan_for("4GB-gpu, 8 cores, 32GB", a_workload(activations=3000 * MIB), batch=64)
    assert plan.recompute
    assert predicted(plan).on("cuda:0").is_enough
    assert any(
        "recomputed in backward: keeping them needs too much memory" in reason for reason in plan.reasons
    )


def test_one_core_with_little_memory_computes_in_several_parts() -> None:
    small, known = a_workload(activations=20 * MIB), Observed(libraries=300 * MIB)
    plan = plan_for("1 core, 1GB", small, observed=known)
    assert (plan.strategy, plan.threads) == ("single", 1)
    assert 1 < plan.accumulation < 16
    assert predicted(plan).on("cpu").is_enough


def test_one_core_with_too_little_memory_says_what_would_fit() -> None:
    with pytest.raises(UsageError, match="not enough memory: a micro-batch of 2 samples needs") as caught:
        plan_for("1 core, 1GB", a_workload(activations=1000 * MIB))
    least, capacity = sizes_in(caught.value.message)
    assert least > capacity
    assert re.match(r"use a device with [\d.]+ GiB, ", caught.value.advice)
    roomy = plan_for(f"1 core, {1.25 * least / GB:.2f}GB", a_workload(activations=1000 * MIB))
    assert predicted(roomy).on("cpu").is_enough


def test_one_sample_is_one_sample() -> None:
    with pytest.raises(UsageError, match="not enough memory: a micro-batch of 1 sample needs "):
        plan_for("1 core, 1GB", a_workload(activations=1000 * MIB, min_samples=1))


def test_an_accumulation_that_is_too_low_is_said() -> None:
    with pytest.raises(UsageError) as caught:
        plan_for("2GB-gpu, 8 cores, 32GB", batch=64, accumulation=1)
    assert "a micro-batch of 64 samples" in caught.value.message
    assert "deploy.accumulation=" in caught.value.advice


def test_decoded_images_are_not_kept_where_the_model_needs_the_room() -> None:
    """They only save time; without them there is room."""
    tiny = a_workload(activations=2 * MIB)
    plan = plan_for("1 core, 1.3GB", tiny, cache=0)
    assert predicted(plan).on("cpu").is_enough
    plan = plan_for("1 core, 1.3GB", tiny)
    assert predicted(plan).on("cpu").is_enough


def test_fewer_loader_workers_where_main_memory_is_scarce() -> None:
    machine = "24GB-gpu, 16 cores, 2GB"
    assert predicted(plan_for(machine, batch=64, workers=1, cache=0)).on("cpu").is_enough
    plan = plan_for(machine, batch=64)
    assert plan.loader_workers < 8


def test_numa_nodes_with_little_memory_share_a_replica() -> None:
    """Every process has libraries of its own."""
    assert len(plan_for("8 cores, 4GB").replicas) == 1
    assert len(plan_for("8 cores, 4GB, 4 NUMA nodes").replicas) < 4


def test_where_memory_is_tight_as_little_as_can_be_is_taken() -> None:
    """A plan without its safety margin computes as few samples at once as possible."""
    model = heavy(6000, activations=500 * MIB, inputs=None)
    plan = plan_for("8 cores, 47GB", model, cache=0)
    assert any("memory is tight" in reason for reason in plan.reasons)
    smallest = plan_for("8 cores, 47GB", model, cache=0, goal="smallest")
    assert needed(plan) == needed(smallest)


# Models that one device has no room for.


def test_a_model_that_fits_no_gpu_is_divided_among_them() -> None:
    plan = plan_for("2x24GB-gpu, 16 cores, 128GB", heavy(4500))
    assert (plan.strategy, devices(plan)) == ("fsdp", ["cuda:0", "cuda:1"])
    assert all(memory.is_enough for memory in predicted(plan).memory)
    assert any(other.startswith("ddp: needs ") for other in plan.rejected)


@pytest.mark.parametrize("strategy", ["ddp", "fsdp"])
def test_every_replica_keeps_an_optimizer(strategy: str) -> None:
    """The optimizer is beside the parameters: of all of them, or of a shard."""
    workload = heavy(1000)
    plan = plan_for("2x24GB-gpu, 16 cores, 128GB", workload, strategy=strategy, replicas=2)
    shards = 2 if strategy == "fsdp" else 1
    for device in devices(plan):
        assert predicted(plan).on(device).optimizer == workload.optimizer // shards
    if strategy == "ddp":
        alone = plan_for("24GB-gpu, 16 cores, 128GB", workload, strategy="single", batch=8)
        assert predicted(plan).on("cuda:1").needed == predicted(alone).on("cuda:0").needed


@pytest.mark.parametrize(("num", "mebibytes"), [(2, 1000), (8, 100)])
def test_a_model_that_fits_is_not_divided(num: int, mebibytes: int) -> None:
    """More would have to be sent than gradients are."""
    plan = plan_for(f"{num}x24GB-gpu, 64 cores, 256GB", heavy(mebibytes), batch=4 * num)
    assert plan.strategy == "ddp"


def test_gpus_without_bfloat16_divide_a_model_too() -> None:
    """Divided models do not compute in float16, which such GPUs would take."""
    machine = "2x24GB-gpu-fp16, 16 cores, 128GB"
    plan = plan_for(machine, heavy(4500))
    assert (plan.strategy, plan.precision) == ("fsdp", "fp32")
    assert plan_for(machine, heavy(1000), goal="smallest").goal == "smallest"


def test_a_model_that_does_not_fit_the_only_gpu_lives_in_main_memory() -> None:
    plan = plan_for("24GB-gpu, 16 cores, 64GB", heavy(4500))
    assert (plan.strategy, devices(plan)) == ("clones", ["cuda:0"])
    assert plan.parameter_device == plan.optimizer_device == "cpu"
    assert all(memory.is_enough for memory in predicted(plan).memory)
    assert predicted(plan).on("cuda:0").optimizer == 0
    assert predicted(plan).on("cpu").optimizer > 0


@pytest.mark.parametrize(
    ("machine", "strategy", "usual"),
    [("2x24GB-gpu, 16 cores, 128GB", "fsdp", "ddp"), ("24GB-gpu, 16 cores, 64GB", "clones", "single")],
)
def test_it_is_said_why_not_the_usual_strategy(machine: str, strategy: str, usual: str) -> None:
    plan = plan_for(machine, heavy(4500))
    [reason] = [reason for reason in plan.reasons if reason.startswith(f"{strategy}: ")]
    assert usual in reason  # that needs so much, not the one that was chosen


@pytest.mark.parametrize(
    "deploy",
    [
        pytest.param({"strategy": "fsdp", "replicas": 8}, id="divided"),
        pytest.param({"optimizer_device": "cpu"}, id="in main memory"),
    ],
)
def test_an_update_that_is_made_elsewhere_needs_nothing_here(deploy: dict[str, Any]) -> None:
    """A device updates only its shard of the parameters, and none of those in main memory."""
    plan = plan_for("8x24GB-gpu, 64 cores, 256GB", heavy(1000, activations=MIB), precision="fp32", **deploy)
    assert predicted(plan).on("cuda:0").activations < 500 * MIB


@pytest.mark.parametrize(
    "machine", ["24GB-gpu, 16 cores, 16GB", "2x4GB-gpu, 16 cores, 16GB", "16 cores, 16GB", "8GB-tpu, 8GB"]
)
def test_what_fits_nowhere_is_refused_with_the_bytes_needed_and_there(machine: str) -> None:
    with pytest.raises(UsageError, match="not enough memory") as caught:
        plan_for(machine, heavy(8000))
    least, capacity = sizes_in(caught.value.message)
    assert least > capacity
    assert "a device with" in caught.value.advice


# What was measured.


def timing(memory_format: MemoryFormat, seconds: float, *, threads: int = 8) -> Timing:
    return Timing(
        device="cpu",
        memory_format=memory_format,
        threads=threads,
        precision="fp32",
        samples=16,
        seconds=seconds,
    )


def test_a_way_that_was_measured_to_be_faster_is_taken() -> None:
    known = Observed(timings=(timing("contiguous", 2.3), timing("channels_last", 1.0)))
    plan = plan_for("8 cores, 32GB", observed=known)
    assert plan.memory_format == "channels_last"
    [reason] = [reason for reason in plan.reasons if reason.startswith("measured 16-sample steps: ")]
    assert "contiguous on 8 threads 2.30 s" in reason
    assert "channels_last on 8 threads 1.00 s" in reason
    [other] = [other for other in plan.rejected if other.startswith("contiguous: ")]
    assert re.search(r"2\.[23]\d x as long", other)
    assert 1.0 in predicted(plan).step
    assert "measured" in predicted(plan).basis


def test_a_way_that_is_not_clearly_faster_is_not_taken() -> None:
    known = Observed(timings=(timing("contiguous", 1.02), timing("channels_last", 1.0)))
    plan = plan_for("8 cores, 32GB", observed=known)
    assert plan.memory_format == "contiguous"
    [other] = [other for other in plan.rejected if other.startswith("channels_last: ")]
    assert other.endswith("not clearly faster")


def test_only_ways_that_were_tried_are_said_to_have_been() -> None:
    known = Observed(timings=(timing("contiguous", 1.0), timing("channels_last", 1.5, threads=4)))
    plan = plan_for("8 cores, 32GB", observed=known)
    [reason] = [reason for reason in plan.reasons if reason.startswith("measured 16-sample steps: ")]
    assert "contiguous on 8 threads 1.00 s" in reason
    assert "channels_last on 4 threads 1.50 s" in reason
    assert "channels_last on 8 threads" not in reason
    assert "contiguous on 4 threads" not in reason


def test_what_could_not_be_tried_is_said() -> None:
    known = Observed(timings=(timing("contiguous", 1.0),), failures=("channels_last: ran out of memory",))
    assert "channels_last: ran out of memory" in plan_for("8 cores, 32GB", observed=known).reasons


@pytest.mark.parametrize("mebibytes", [20, 1000])
def test_a_step_takes_what_it_was_measured_to_take(mebibytes: int) -> None:
    """The measured time includes the update, which is not counted twice."""
    known = Observed(timings=(timing("contiguous", 1.0),))
    plan = plan_for("8 cores, 64GB", heavy(mebibytes, inputs=None), observed=known)
    assert predicted(plan).step.likely == pytest.approx(1.0, rel=0.01)


def test_a_run_takes_a_little_longer_than_steps_that_were_tried_alone() -> None:
    known = Observed(timings=(timing("contiguous", 1.0).model_copy(update={"alone": True}),))
    plan = plan_for("8 cores, 64GB", a_workload(inputs=None), observed=known)
    assert predicted(plan).step.likely == pytest.approx(RUN_SLOWDOWN, rel=0.01)


# Reading.


def test_threads_that_have_all_cores_wait_for_the_one_that_reads() -> None:
    reading = a_workload(inputs=slow_images(0.001))
    alone, beside = (
        predicted(plan_for("8 cores, 32GB", workload, batch=16, workers=1)).step.likely
        for workload in (a_workload(inputs=None), reading)
    )
    assert beside - alone == pytest.approx(16 * 0.001)


def test_the_slower_images_are_read_the_more_workers_read_them() -> None:
    machine = "24GB-gpu@20TFLOPS, 16 cores, 64GB"
    plans = [plan_for(machine, a_workload(inputs=slow_images(s)), batch=64) for s in (0.001, 0.005, 0.01)]
    assert [predicted(plan).bound for plan in plans] == ["compute"] * 3
    workers = [plan.loader_workers for plan in plans]
    assert workers == sorted(set(workers))


@pytest.mark.parametrize("machine", ["24GB-gpu, 4 cores, 128GB", "2 cores, 32GB"])
def test_where_cores_do_not_suffice_the_devices_wait_for_samples(machine: str) -> None:
    plan = plan_for(machine, a_workload(inputs=slow_images(0.5)), batch=64)
    assert predicted(plan).bound == "input"
    assert plan.loader_workers >= 2
    assert predicted(plan).images_per_second <= assumed_machine(machine).cores / 0.5


def test_no_core_is_idle_while_devices_wait_for_samples() -> None:
    plan = plan_for("24GB-gpu, 64 cores, 128GB", a_workload(inputs=slow_images(0.02)), batch=64)
    assert predicted(plan).bound == "compute", plan.loader_workers


def test_one_core_does_not_do_two_things_at_once() -> None:
    reading = a_workload(inputs=slow_images(0.02))
    none, single = (plan_for("1 core, 8GB", reading, workers=num) for num in (0, 1))
    assert predicted(single).step.likely == pytest.approx(predicted(none).step.likely, rel=0.01)


def test_the_pace_of_the_model_is_told_beside_that_of_its_readers() -> None:
    plan = plan_for("24GB-gpu, 4 cores, 128GB", a_workload(inputs=slow_images(0.1)), batch=64)
    [reason] = [reason for reason in plan.reasons if "samples/s" in reason]
    made, used = map(int, re.findall(r"\d+(?= samples/s|$)", reason))
    assert made == 30
    assert used > 10 * made  # what it could use, not what it gets


def test_more_workers_are_not_refused_for_memory_that_is_there() -> None:
    plan = plan_for("24GB-gpu, 4 cores, 128GB", a_workload(inputs=slow_images(0.1)), batch=64)
    workers = [other for other in plan.rejected if "loader worker" in other]
    assert workers
    assert not any("needs" in other for other in workers), workers


# Goals.

MACHINES = ["8 cores, 32GB", "24GB-gpu, 8 cores, 32GB", "2x24GB-gpu, 16 cores, 64GB"]


@pytest.mark.parametrize("machine", MACHINES)
def test_the_smallest_plan_needs_less_than_the_fastest(machine: str) -> None:
    fastest, smallest = (plan_for(machine, batch=64, goal=goal) for goal in ("fastest", "smallest"))
    for memory in predicted(smallest).memory:
        assert memory.needed < predicted(fastest).on(memory.device).needed
    assert predicted(smallest).step.likely >= predicted(fastest).step.likely
    assert (smallest.goal, smallest.cache_bytes) == ("smallest", 0)


@pytest.mark.parametrize("machine", MACHINES)
def test_nothing_needs_less_than_the_smallest_plan(machine: str) -> None:
    smallest = plan_for(machine, batch=64, goal="smallest")
    for recompute in (False, True):
        other = plan_for(machine, batch=64, goal="smallest", recompute=recompute)
        for device in devices(smallest):
            assert predicted(smallest).on(device).needed <= predicted(other).on(device).needed


def test_what_the_smallest_plan_gives_up_is_not_said_to_be_too_large() -> None:
    reasons = plan_for("8 cores, 32GB", goal="smallest").reasons
    assert not any("too much" in reason for reason in reasons), reasons
    assert not any(re.search(r"with \d+ it needs", reason) for reason in reasons), reasons


@pytest.mark.parametrize("machine", MACHINES)
def test_a_deadline_is_met_with_as_little_memory_as_can_be(machine: str) -> None:
    fastest, smallest = (plan_for(machine, batch=64, goal=goal) for goal in ("fastest", "smallest"))
    for slack in (1.0, 1.02, 10):
        limit = slack * predicted(fastest).run.likely
        plan = plan_for(machine, batch=64, goal=f"deadline:{limit:.6f}")
        assert predicted(plan).run.likely <= limit * 1.001
        assert needed(plan) <= needed(fastest)
        if slack == 10:
            assert needed(plan) == needed(smallest)


def test_readers_that_make_a_deadline_possible_are_thought_of() -> None:
    slow = a_workload(inputs=slow_images(0.1))
    limit = 1.05 * predicted(plan_for("8 cores, 32GB", slow)).run.likely
    plan = plan_for("8 cores, 32GB", slow, goal=f"deadline:{limit:.3f}")
    assert predicted(plan).run.likely <= limit


def test_an_impossible_deadline_says_how_long_the_fastest_takes() -> None:
    fastest = predicted(plan_for("8 cores, 32GB"))
    with pytest.raises(UsageError) as caught:
        plan_for("8 cores, 32GB", goal="deadline:1m")
    assert caught.value.message == f"goal=deadline:1m00s: the fastest plan takes about {fastest.run}"
    assert "fewer epochs=" in caught.value.advice


@pytest.mark.parametrize(
    "machine", [*MACHINES, "24GB-gpu, 8GB-gpu, 8 cores, 32GB", "8 cores, 64GB, 2 NUMA nodes"]
)
@pytest.mark.parametrize("gigabytes", [4, 6, 10])
def test_a_budget_is_kept_on_every_device(machine: str, gigabytes: int) -> None:
    plan = plan_for(machine, batch=64, goal=f"budget:{gigabytes}GB")
    for memory in predicted(plan).memory:
        assert memory.needed <= memory.capacity <= gigabytes * GB


@pytest.mark.parametrize("machine", MACHINES)
def test_an_impossible_budget_is_refused_with_what_would_do(machine: str) -> None:
    with pytest.raises(UsageError, match=r"goal=budget:.*: not enough memory") as caught:
        plan_for(machine, batch=64, goal="budget:100MB")
    least, capacity = sizes_in(caught.value.message)
    assert least > capacity


def test_a_budget_that_would_do_is_not_refused() -> None:
    """The budget that an error names is enough."""
    with pytest.raises(UsageError) as caught:
        plan_for("8 cores, 32GB", goal="budget:500MB")
    least, _ = sizes_in(caught.value.message)
    plan = plan_for("8 cores, 32GB", goal=f"budget:{int(1.1 * least)}B")
    assert needed(plan) <= 1.1 * least
