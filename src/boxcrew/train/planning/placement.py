"""The placement of a plan: who does what where, as a table for people, and per tensor for programs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import nn

from boxcrew.core.units import counted, format_bytes, format_count
from boxcrew.plan.plan import Plan

Row = tuple[str, str, str]
"""Who does what, and where."""


def placement(plan: Plan, model: nn.Module) -> dict[str, Any]:
    """Return every stage, parameter and buffer with its device. Buffers live with the parameters."""
    owners = [rank for rank, replica in enumerate(plan.replicas) for _ in replica.clones]
    clones = [
        {"name": plan.clone_name(i), "replica": owners[i], "device": clone.device, "samples": clone.share}
        for i, clone in enumerate(plan.clones)
    ]
    home = _without_servers(plan)
    names = [name for name, _ in model.named_parameters()]
    holders = [f"ps_{plan.server_of(i)}" if plan.servers else home for i in range(len(names))]
    return {
        "inputs_device": plan.inputs_device,
        "clones": clones,
        "parameter_device": plan.parameter_device,
        "optimizer_device": plan.optimizer_device,
        "stages": {
            "read and transform samples": plan.inputs_device,
            "forward, loss, backward": [clone["device"] for clone in clones],
            "add up gradients of clones": plan.parameter_device,
            "add up gradients of replicas, update": sorted(set(holders)) if plan.servers else home,
            "summaries and files": "cpu",
        },
        "parameters": dict(zip(names, holders, strict=True)),
        "buffers": {
            name: "every replica" if len(plan.replicas) > 1 else plan.parameter_device
            for name, _ in model.named_buffers()
        },
    }


def _without_servers(plan: Plan) -> str:
    """Return where parameters are if no server holds them."""
    if len(plan.replicas) == 1:
        return plan.parameter_device
    return "every replica" if plan.strategy == "ddp" else f"1/{len(plan.replicas)} on every replica"


def roles(plan: Plan, model: nn.Module, optimizer: str) -> list[Row]:
    """Return the rows of the table."""
    workers = counted(plan.loader_workers, "worker")
    accumulated = f", in {plan.accumulation} micro-batches" if plan.accumulation > 1 else ""
    clones = [
        (
            plan.clone_name(index) or "clone",
            f"computes forward, loss and gradients of {clone.share} of {plan.batch} samples{accumulated}",
            clone.device,
        )
        for index, clone in enumerate(plan.clones)
    ]
    return [
        ("inputs device", f"reads and transforms samples ({workers}), makes batches", plan.inputs_device),
        *clones,
        *_parameter_roles(plan, list(model.parameters()), optimizer),
        ("chief", f"evaluates on {plan.clones[0].device}, writes summaries and files", "replica 0"),
    ]


def _parameter_roles(plan: Plan, model: Sequence[nn.Parameter], optimizer: str) -> list[Row]:
    parameters = _size_text(model)
    if plan.strategy == "ddp":
        does = f"keeps {parameters}, adds up gradients with the others, applies {optimizer}"
        return [("every replica", does, "beside its clone")]
    if plan.strategy == "fsdp":
        shard = f"keeps 1/{len(plan.replicas)} of {parameters}"
        return [("every replica", f"{shard}, adds up its gradients, applies {optimizer}", "beside its clone")]
    if plan.strategy == "parameter_server":
        does = "sends the gradients of its clones to the servers, fetches parameters"
        shards = [[p for i, p in enumerate(model) if plan.server_of(i) == s] for s in range(plan.servers)]
        return [
            ("every replica", does, plan.parameter_device),
            *(
                (f"ps_{s}", f"keeps {_size_text(shard)}, adds up gradients, applies {optimizer}", "cpu")
                for s, shard in enumerate(shards)
            ),
        ]
    return [
        ("parameter device", f"keeps {parameters}, adds up gradients", plan.parameter_device),
        ("optimizer device", f"applies {optimizer}", plan.optimizer_device),
    ]


def _size_text(parameters: Sequence[nn.Parameter]) -> str:
    numbers = sum(parameter.numel() for parameter in parameters)
    held = sum(parameter.numel() * parameter.element_size() for parameter in parameters)
    return f"{format_count(numbers)} parameters ({format_bytes(held)})"
