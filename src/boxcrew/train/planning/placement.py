"""Who does what where, in the classic words: as a table for people, and down to every tensor for programs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import nn

from boxcrew.core.units import counted, format_bytes, format_count
from boxcrew.plan.plan import Plan

Row = tuple[str, str, str]
"""Who, does what, where."""


def placement(plan: Plan, model: nn.Module) -> dict[str, Any]:
    """Every stage, parameter and buffer with its device. What BatchNorms learn lives with the parameters."""
    owners = [rank for rank, replica in enumerate(plan.replicas) for _ in replica.clones]
    clones = [
        {"name": plan.clone_name(i), "replica": owners[i], "device": clone.device, "samples": clone.share}
        for i, clone in enumerate(plan.clones)
    ]
    home = _home(plan)
    names = [name for name, _ in model.named_parameters()]
    keepers = [f"ps_{plan.keeper(i)}" if plan.servers else home for i in range(len(names))]
    return {
        "inputs_device": plan.inputs_device,
        "clones": clones,
        "parameter_device": plan.parameter_device,
        "optimizer_device": plan.optimizer_device,
        "stages": {
            "read and transform samples": plan.inputs_device,
            "forward, loss, backward": [clone["device"] for clone in clones],
            "add up gradients of clones": plan.parameter_device,
            "add up gradients of replicas, update": sorted(set(keepers)) if plan.servers else home,
            "summaries and files": "cpu",
        },
        "parameters": dict(zip(names, keepers, strict=True)),
        "buffers": {
            name: "every replica" if len(plan.replicas) > 1 else plan.parameter_device
            for name, _ in model.named_buffers()
        },
    }


def _home(plan: Plan) -> str:
    """Where a parameter is that no server keeps."""
    if len(plan.replicas) == 1:
        return plan.parameter_device
    return "every replica" if plan.strategy == "ddp" else f"1/{len(plan.replicas)} on every replica"


def roles(plan: Plan, model: nn.Module, optimizer: str) -> list[Row]:
    """The rows of the table."""
    workers = counted(plan.loader_workers, "worker")
    parts = f", in {plan.accumulation} parts" if plan.accumulation > 1 else ""
    clones = [
        (
            plan.clone_name(index) or "clone",
            f"computes forward, loss and gradients of {clone.share} of {plan.batch} samples{parts}",
            clone.device,
        )
        for index, clone in enumerate(plan.clones)
    ]
    return [
        ("inputs device", f"reads and transforms samples ({workers}), makes batches", plan.inputs_device),
        *clones,
        *_keepers(plan, list(model.parameters()), optimizer),
        ("chief", f"evaluates on {plan.clones[0].device}, writes summaries and files", "replica 0"),
    ]


def _keepers(plan: Plan, given: Sequence[nn.Parameter], optimizer: str) -> list[Row]:
    parameters = _in_words(given)
    if plan.strategy == "ddp":
        does = f"keeps {parameters}, adds up gradients with the others, applies {optimizer}"
        return [("every replica", does, "beside its clone")]
    if plan.strategy == "fsdp":
        part = f"keeps 1/{len(plan.replicas)} of {parameters}"
        return [("every replica", f"{part}, adds up its gradients, applies {optimizer}", "beside its clone")]
    if plan.strategy == "parameter_server":
        does = "sends the gradients of its clones to the servers, fetches parameters"
        kept = [[p for i, p in enumerate(given) if plan.keeper(i) == s] for s in range(plan.servers)]
        return [
            ("every replica", does, plan.parameter_device),
            *(
                (f"ps_{s}", f"keeps {_in_words(own)}, adds up gradients, applies {optimizer}", "cpu")
                for s, own in enumerate(kept)
            ),
        ]
    return [
        ("parameter device", f"keeps {parameters}, adds up gradients", plan.parameter_device),
        ("optimizer device", f"applies {optimizer}", plan.optimizer_device),
    ]


def _in_words(parameters: Sequence[nn.Parameter]) -> str:
    numbers = sum(parameter.numel() for parameter in parameters)
    held = sum(parameter.numel() * parameter.element_size() for parameter in parameters)
    return f"{format_count(numbers)} parameters ({format_bytes(held)})"
