"""Who does what where, in the classic words: as a table for people, and down to every tensor for programs."""

from __future__ import annotations

from typing import Any

from torch import nn

from boxcrew.core.units import counted, format_bytes, format_count
from boxcrew.plan.plan import Plan

Row = tuple[str, str, str]
"""Who, does what, where."""


def placement(plan: Plan, model: nn.Module) -> dict[str, Any]:
    """Every stage, parameter and buffer with its device. What BatchNorms learn lives with the parameters."""
    clones = [
        {"name": plan.clone_name(index), "device": clone.device, "samples": clone.share}
        for index, clone in enumerate(plan.clones)
    ]
    home = plan.parameter_device
    return {
        "inputs_device": plan.inputs_device,
        "clones": clones,
        "parameter_device": home,
        "optimizer_device": plan.optimizer_device,
        "stages": {
            "read and transform samples": plan.inputs_device,
            "forward, loss, backward": [clone["device"] for clone in clones],
            "add up gradients": home,
            "update": plan.optimizer_device,
            "summaries and files": "cpu",
        },
        "parameters": {name: home for name, _ in model.named_parameters()},
        "buffers": {name: home for name, _ in model.named_buffers()},
    }


def roles(plan: Plan, model: nn.Module, optimizer: str) -> list[Row]:
    """The rows of the table."""
    numbers = sum(parameter.numel() for parameter in model.parameters())
    held = format_bytes(sum(p.numel() * p.element_size() for p in model.parameters()))
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
    parameters = f"{format_count(numbers)} parameters ({held})"
    return [
        ("inputs device", f"reads and transforms samples ({workers}), makes batches", plan.inputs_device),
        *clones,
        *_keepers(plan, parameters, optimizer),
        ("chief", f"evaluates on {plan.clones[0].device}, writes summaries and files", "replica 0"),
    ]


def _keepers(plan: Plan, parameters: str, optimizer: str) -> list[Row]:
    if plan.strategy == "ddp":
        does = f"keeps {parameters}, adds up gradients with the others, applies {optimizer}"
        return [("every replica", does, "beside its clone")]
    if plan.strategy == "fsdp":
        part = f"keeps 1/{len(plan.replicas)} of {parameters}"
        return [("every replica", f"{part}, adds up its gradients, applies {optimizer}", "beside its clone")]
    return [
        ("parameter device", f"keeps {parameters}, adds up gradients", plan.parameter_device),
        ("optimizer device", f"applies {optimizer}", plan.optimizer_device),
    ]
