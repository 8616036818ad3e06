"""Benchmarks: every module with a function `rows` measures one thing and returns `row.Row`s.

`python -m bench NAME` runs one, `make bench` all; results go to results.json and docs/benchmarks.md. Timed
sides run in separate processes (`child`, or `peers` for other trainers) and take turns. `digests` is a check
of refactorings, not a benchmark: the weights that every recipe trains.
"""
