"""The promises of the classic `model_deploy`, in our own terms and by the numbers of its list.

It names jobs (`worker`, `ps`) and refuses empty names; here processes have numbers, and there is no name to
be empty.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from boxcrew.core.errors import UsageError
from boxcrew.core.types import Batch, Losses
from boxcrew.deploy.deployment import deploy
from boxcrew.deploy.processes.collectives import ReplicaGroup
from boxcrew.deploy.processes.environments import read_environment
from boxcrew.deploy.strategies.clones import Clones
from boxcrew.deploy.strategies.parameter_server.server import ParameterServerProcess
from boxcrew.detectors.ssdlite import SsdLite, SsdLiteConfig
from boxcrew.hardware.machine import Device, Machine
from boxcrew.plan.plan import Clone, Plan, Replica
from boxcrew.plan.request import DeployConfig, PlanRequest
from boxcrew.plan.search import make_plan
from boxcrew.tasks.detection import DetectionTask
from boxcrew.train.loop.hooks.images import on_cpu
from boxcrew.train.planning.placement import placement
from tests.helpers import learning
from tests.helpers.devices import FakeDevices
from tests.helpers.plans import plan_of
from tests.helpers.processes import in_all_processes
from tests.helpers.workloads import a_workload

CPU = Device(name="cpu", kind="cpu", model="a CPU", memory_bytes=1 << 34)
GPUS = tuple(Device(name=f"cuda:{i}", kind="cuda", model="a GPU", memory_bytes=1 << 34) for i in range(4))
MACHINE = Machine(
    platform="Linux", python="3.11", torch="2", cores=8, memory_bytes=1 << 34, devices=(CPU, *GPUS)
)


def config(strategy: str = "clones", **settings: object) -> Plan:
    deploy = DeployConfig.of({"strategy": strategy, **settings})
    return make_plan(
        MACHINE, a_workload(inputs=None), PlanRequest(deploy=deploy, batch=8, num_samples=80, steps=10)
    )


def devices(plan: Plan) -> list[str]:
    return [clone.device for clone in plan.clones]


def names(plan: Plan) -> list[str]:
    return [plan.clone_name(index) for index in range(len(plan.clones))]


def homes(plan: Plan) -> set[str]:
    return {plan.parameter_device, plan.inputs_device, plan.optimizer_device}


def test_1_one_clone_on_device_0_all_else_on_the_cpu() -> None:
    """The classic default; ours is `single`, whose parameters are beside the clone."""
    plan = config()
    assert (devices(plan), names(plan), homes(plan)) == (["cuda:0"], [""], {"cpu"})


def test_2_on_the_cpu_only() -> None:
    plan = config(clone_on_cpu=True)
    assert (devices(plan), names(plan), homes(plan)) == (["cpu"], [""], {"cpu"})


def test_3_two_accelerators_are_two_clones_with_names_of_their_own() -> None:
    plan = config(clones=2)
    assert (devices(plan), names(plan)) == (["cuda:0", "cuda:1"], ["clone_0", "clone_1"])
    assert homes(plan) == {"cpu"}


def ps(**settings: object) -> Plan:
    return config("parameter_server", **settings)


def homes_of_variables(plan: Plan) -> list[str]:
    net = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    return list(placement(plan, net)["parameters"].values())


def test_4_a_server_keeps_the_variables_all_else_is_the_workers() -> None:
    plan = ps(servers=1)
    assert (devices(plan), names(plan)) == (["cuda:0"], [""])
    assert (plan.inputs_device, plan.optimizer_device) == ("cpu", "cpu")
    assert homes_of_variables(plan) == ["ps_0"] * 4


def test_5_two_clones_and_a_server() -> None:
    plan = ps(clones=2, servers=1)
    assert (devices(plan), names(plan)) == (["cuda:0", "cuda:1"], ["clone_0", "clone_1"])
    assert (plan.inputs_device, plan.optimizer_device) == ("cpu", "cpu")
    assert homes_of_variables(plan) == ["ps_0"] * 4


def test_6_two_replicas_and_two_servers() -> None:
    plan = ps(replicas=2, servers=2)
    assert (plan.inputs_device, plan.optimizer_device) == ("cpu", "cpu")
    assert homes_of_variables(plan) == ["ps_0", "ps_1", "ps_0", "ps_1"]
    assert [[clone.device for clone in replica.clones] for replica in plan.replicas] == [
        ["cuda:0"],
        ["cuda:1"],
    ]
    assert plan.num_processes == 4


def test_7_two_replicas_of_two_clones_and_two_servers() -> None:
    plan = ps(replicas=2, clones=2, servers=2)
    assert [[clone.device for clone in replica.clones] for replica in plan.replicas] == [
        ["cuda:0", "cuda:1"],
        ["cuda:2", "cuda:3"],
    ]
    assert (plan.inputs_device, plan.optimizer_device) == ("cpu", "cpu")
    assert homes_of_variables(plan) == ["ps_0", "ps_1", "ps_0", "ps_1"]
    assert names(plan) == ["clone_0", "clone_1", "clone_2", "clone_3"]  # through all replicas


@pytest.mark.parametrize("index", [-1, 2])
def test_a_clone_that_is_not_there_has_no_name(index: int) -> None:
    with pytest.raises(IndexError):
        config(clones=2).clone_name(index)


def test_8_successive_variables_alternate_over_servers() -> None:
    assert homes_of_variables(ps(servers=2)) == ["ps_0", "ps_1", "ps_0", "ps_1"]
    assert homes_of_variables(ps(servers=3)) == ["ps_0", "ps_1", "ps_2", "ps_0"]


class Toy(nn.Module):
    """Two classes that a line tells apart."""

    def __init__(self, *, norm: bool = True) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(4, momentum=0.5) if norm else nn.Identity()
        self.line = nn.Linear(4, 1)

    def forward(self, batch: Batch, phase: str = "train") -> Losses:
        assert phase == "train"
        scores = self.line(self.norm(batch.inputs))[:, 0]
        loss = nn.functional.binary_cross_entropy_with_logits(
            scores, batch.targets["labels"], reduction="sum"
        )
        return Losses(terms={"log": loss}, weight=loss.new_tensor(float(len(batch))))


def toy_batch() -> Batch:
    draw = torch.Generator().manual_seed(0)
    labels = (torch.arange(16) % 2).float()
    inputs = torch.randn(16, 4, generator=draw) + 3 * (2 * labels[:, None] - 1)
    return Batch(inputs=inputs, targets={"labels": labels}, keys=tuple(map(str, range(16))))


def toy_plan(*names: str) -> Plan:
    clones = tuple(Clone(device=name, share=16 // len(names)) for name in names)
    return plan_of(*(clone.share for clone in clones), strategy="clones", replicas=(Replica(clones=clones),))


def make_toy(*, norm: bool = True) -> Toy:
    torch.manual_seed(0)
    return Toy(norm=norm)


@pytest.mark.parametrize("num", [1, 4])
@pytest.mark.parametrize("norm", [False, True])
def test_9_10_11_clones_share_one_set_of_variables(num: int, norm: bool) -> None:
    """Only the optimizer changes anything if there are no BatchNorms."""
    plan = toy_plan(*["cpu"] * num)
    with deploy(plan) as deployment:
        assert isinstance(deployment, Clones)
        task = deployment.setup_module(make_toy(norm=norm))
        before = {name: value.clone() for name, value in task.state_dict().items()}
        losses = deployment.gradients(task, toy_batch(), "train")
        assert losses.total().shape == ()
        modules = [clone.module for clone in deployment._clones]
        for parameters in zip(*(module.parameters() for module in modules), strict=True):
            assert len({parameter.data_ptr() for parameter in parameters}) == 1
    moved = {name for name, value in task.state_dict().items() if not torch.equal(value, before[name])}
    statistics = {"norm.running_mean", "norm.running_var", "norm.num_batches_tracked"}
    assert moved == (statistics if norm else set())
    assert set(placement(plan, task)["parameters"].values()) == {"cpu"}


@pytest.mark.parametrize("norm", [False, True])
@pytest.mark.parametrize("names", [("cuda:0",), ("cuda:0", "cuda:1", "cuda:2", "cuda:3"), ("cpu",) * 4])
def test_14_15_16_17_gradients_are_summed_beside_their_variables(
    names: tuple[str, ...],
    norm: bool,
) -> None:
    with deploy(toy_plan(*names), FakeDevices()) as deployment:
        task = deployment.setup_module(make_toy(norm=norm))
        deployment.gradients(task, toy_batch(), "train")
    wanted = make_toy(norm=norm)
    for share in toy_batch().split([16 // len(names)] * len(names)):
        (wanted(share).total() / 16).backward()
    for parameter, expected in zip(task.parameters(), wanted.parameters(), strict=True):
        assert parameter.grad is not None
        torch.testing.assert_close(parameter.grad, expected.grad)


def in_server_processes(plan: Plan, group: ReplicaGroup, file: Path) -> None:
    """A replica saves its devices and what it has learned, a server the shapes of what it keeps."""
    task = make_toy()
    if group.is_server:
        server = ParameterServerProcess(plan, group, task, torch.optim.SGD(task.parameters(), lr=1.0))
        server.run()
        torch.save([list(value.shape) for value in task.parameters()], file)
        return
    fakes = FakeDevices()
    with deploy(plan, fakes, group) as deployment:
        placed = deployment.setup_module(task)
        optimizer = torch.optim.SGD(placed.parameters(), lr=1.0)
        deployment.gradients(placed, toy_batch().select(deployment.positions), "train")
        deployment.update(optimizer, max_norm=None)
    torch.save((fakes.used, dict(placed.state_dict())), file)


@pytest.mark.parametrize(("names", "servers"), [(("cuda:0",), 1), (("cuda:0", "cuda:1"), 2)])
def test_12_13_18_clones_with_servers(names: tuple[str, ...], servers: int, tmp_path: Path) -> None:
    """Variable i is on server i mod n and nowhere else; gradients are summed on the worker's CPU, and then
    go to where their variable is.
    """
    plan = toy_plan(*names).model_copy(update={"strategy": "parameter_server", "servers": servers})
    (used, learned), *kept = in_all_processes(plan, partial(in_server_processes, plan), tmp_path)
    assert set(used) == {"cpu", *names}
    shapes = [list(value.shape) for value in make_toy().parameters()]
    assert kept == [
        [shape if i % servers == server else [0] for i, shape in enumerate(shapes)]
        for server in range(servers)
    ]
    with deploy(toy_plan(*["cpu"] * len(names))) as deployment:
        alone = deployment.setup_module(make_toy())
        deployment.gradients(alone, toy_batch(), "train")
        deployment.update(torch.optim.SGD(alone.parameters(), lr=1.0), max_norm=None)
    for name, value in alone.state_dict().items():
        torch.testing.assert_close(learned[name], value)


def test_19_two_clones_on_the_cpu_learn() -> None:
    """The statistics of BatchNorms are moved by one clone's update a step."""
    with deploy(toy_plan("cpu", "cpu")) as deployment:
        task = deployment.setup_module(make_toy())
        optimizer = torch.optim.SGD(task.parameters(), lr=1.0)
        losses = []
        for _ in range(10):
            step = deployment.gradients(task, toy_batch(), "train")
            losses.append(float(step.total() / step.weight))
            deployment.update(optimizer, max_norm=None)
    assert losses[-1] < losses[0] / 5
    assert int(task.get_buffer("norm.num_batches_tracked")) == 10
    mean: Tensor = toy_batch().inputs[:8].mean(dim=0)
    torch.testing.assert_close(task.get_buffer("norm.running_mean"), mean * (1 - 0.5**10))


def test_20_21_summaries_are_made_on_the_cpu() -> None:
    """One hook does it while training and when only evaluating. A network on the meta device has no data:
    only the attempt can be seen.
    """
    here = DetectionTask(SsdLite(SsdLiteConfig(size=64, backbone="mobilenetv3_small_050"), ("cup",)))
    assert on_cpu(here) is here
    with pytest.raises(NotImplementedError, match="meta"):
        on_cpu(here.to("meta"))
    for plan in (config(clones=2), config(), config(clone_on_cpu=True)):
        assert placement(plan, make_toy())["stages"]["summaries and files"] == "cpu"


@pytest.mark.parametrize("settings", [{"clones": 0}, {"clones": -1}, {"clones": 5}])
def test_what_upstream_accepts_silently_is_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=r"deploy\.clones"):
        config(**settings)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"replicas": 2},
            "deploy.strategy=clones: cannot be used with deploy.replicas=2",
        ),  # as it has no servers
        ({"servers": 0}, "deploy.servers"),
        ({"servers": -1}, "deploy.servers"),
        ({"servers": 1}, "deploy.servers=1: cannot be used with deploy.strategy=clones"),
        ({"staleness": 2}, "deploy.staleness=2: cannot be used with deploy.strategy=clones"),
        ({"strategy": "parameter_server", "replicas": 5}, "deploy.replicas=5: more than there are"),
        ({"strategy": "parameter_server", "replicas": 3, "clones": 2}, "deploy.replicas=3 deploy.clones=2"),
        ({"strategy": "parameter_server", "staleness": -1}, "deploy.staleness"),
    ],
)
def test_every_refusal(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        config(**settings)
    assert message in caught.value.message


def test_a_rank_beyond_the_world_size_is_refused() -> None:
    with pytest.raises(UsageError, match="RANK=2: there are only 2 replicas"):
        read_environment({"RANK": "2", "WORLD_SIZE": "2", "MASTER_ADDR": "localhost", "MASTER_PORT": "4000"})


def test_regularization_counts_once_however_many_clones() -> None:
    """Weight decay is the optimizer's, which steps once."""
    states = []
    for names in (("cpu",), ("cpu",) * 4):
        with deploy(toy_plan(*names)) as deployment:
            task = deployment.setup_module(make_toy(norm=False))
            optimizer = torch.optim.SGD(task.parameters(), lr=0.1, weight_decay=0.5)
            deployment.gradients(task, toy_batch(), "train")
            deployment.update(optimizer, max_norm=None)
        states.append(task.state_dict())
    assert learning.distance(states[1], states[0]) < 1e-6


def test_a_parameter_that_no_clone_touches_is_left_out() -> None:
    plan = plan_of(4, 4, strategy="clones")
    with deploy(plan) as deployment:
        task = deployment.setup_module(learning.make_task("idle"))
        deployment.gradients(task, learning.make_batch(8, step=0), "train")
    assert task.get_parameter("idle.weight").grad is None
    assert task.get_parameter("rare.weight").grad is not None  # only the second clone has a crowded sample
