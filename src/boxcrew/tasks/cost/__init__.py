"""The cost of a training step, computed on torch's meta device without data or hardware.

`estimate` traces a step and returns a `Workload` (bytes and operations) for the planner; `flops` counts the
operations of single torch operators, and `meta_results` knows the results of those that torch is slow at.
"""
