"""Made-up workloads for tests of plans."""

from __future__ import annotations

from boxcrew.core.workload import InputCost, LinearBytes, PassCost, Peak, Workload

MIB = 1 << 20


def a_workload(*, activations: int = 100 * MIB, **changes: object) -> Workload:
    """Return the workload of a 20 MiB network with Adam; `activations` are bytes per sample."""
    kept = LinearBytes(fixed=MIB, each=activations)
    most = LinearBytes(fixed=30 * MIB, each=activations + activations // 10)
    less = LinearBytes(fixed=30 * MIB, each=activations // 3)
    whole = PassCost(
        activations=kept, peak=Peak(moments=(most,)), operations=6 * 10**9, traffic=5 * activations
    )
    again = PassCost(
        activations=less, peak=Peak(moments=(less,)), operations=8 * 10**9, traffic=7 * activations
    )
    usual = {
        "parameters": 20 * MIB,
        "gradients": 20 * MIB,
        "buffers": 0,
        "largest_layer": 4 * MIB,
        "slots": 2,
        "averages": 0,
        "batch": LinearBytes(fixed=0, each=300_000).tree(),
        "without_recompute": whole.tree(),
        "with_recompute": again.tree(),
        "forward_operations": 2 * 10**9,
        "min_samples": 2,
        "inputs": InputCost(seconds=0.01, cached_seconds=0.002, image_bytes=MIB).tree(),
    }
    return Workload.of(usual | changes)
