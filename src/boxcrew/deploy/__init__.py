"""Executing a plan: devices, threads and processes. Deployments know a task only as an `nn.Module`.

`deploy(plan)` in `deployment.py` returns the `Deployment` of the plan's strategy, one of `strategies/`. A
training loop asks it for gradients and updates; it splits the batch into clones and micro-batches, and lets
replicas exchange sums through `processes/`. `execution`, `memory` and `devices` set up the process;
`synced_norms` and `optimizer_state` serve several strategies.
"""
