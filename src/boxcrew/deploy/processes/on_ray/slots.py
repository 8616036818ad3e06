"""The slots of replicas on a cluster of Ray: the cores and the GPU that each waits for."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import ray
from ray.util.placement_group import (
    PlacementGroup,
    placement_group,
    placement_group_table,
    remove_placement_group,
)
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from boxcrew.deploy.processes.on_ray.process import RemoteProcess
from boxcrew.plan.request import ReplicaRange

_AT_ONCE = 4  # methods of an actor: it is stopped and asked for news while it starts


class Slot(NamedTuple):
    """Room for one replica."""

    group: PlacementGroup
    bundle: int


class Slots:
    """The slots of a job: as many as it needs at least are taken together, each more when there is room.

    What is not there yet is asked for until the job ends, so that a cluster that can grow does so. Slots on
    a machine that is lost are asked for again.
    """

    def __init__(self, num: ReplicaRange, resources: Mapping[str, float]) -> None:
        self._resources = dict(resources)
        more = num.most - num.least
        self._groups = [self._group(num.least), *(self._group(1) for _ in range(more))]

    def ready(self) -> list[Slot]:
        """Return the slots that are there, in an order that stays; none if they are too few."""
        if not _is_there(self._groups[0]):
            return []
        there = [group for group in self._groups if _is_there(group)]
        return [Slot(group, bundle) for group in there for bundle in range(group.bundle_count)]

    def actor(self, slot: Slot) -> Any:
        """Return a new actor in a slot."""
        options = {
            "num_cpus": self._resources.get("CPU", 0),
            "num_gpus": self._resources.get("GPU", 0),
            "max_concurrency": _AT_ONCE,
            "scheduling_strategy": PlacementGroupSchedulingStrategy(
                placement_group=slot.group, placement_group_bundle_index=slot.bundle
            ),
        }
        return ray.remote(RemoteProcess).options(**options).remote()

    def close(self) -> None:
        for group in self._groups:
            remove_placement_group(group)

    def _group(self, num: int) -> PlacementGroup:
        return placement_group([self._resources] * num)


def _is_there(group: PlacementGroup) -> bool:
    return bool(placement_group_table(group)["state"] == "CREATED")


def nodes() -> list[Mapping[str, float]]:
    """Return the resources of each machine of the cluster that computes."""
    alive = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    return [resources for resources in alive if resources.get("CPU", 0) >= 1]


def resources_of_each(machines: Sequence[Mapping[str, float]], num: int, *, gpu: bool) -> dict[str, float]:
    """Return what each of `num` replicas takes: a GPU each, and as many cores as all of them can have."""
    most = int(max((each.get("CPU", 0) for each in machines), default=1))
    for cores in range(most, 1, -1):
        if sum(_room(each, cores, gpu=gpu) for each in machines) >= num:
            break
    else:
        cores = 1
    return {"CPU": float(cores), **({"GPU": 1.0} if gpu else {})}


def _room(machine: Mapping[str, float], cores: int, *, gpu: bool) -> int:
    room = math.floor(machine.get("CPU", 0) / cores)
    return min(room, math.floor(machine.get("GPU", 0))) if gpu else room
