"""Planning a run, where a task meets a machine: workload -> plan -> trial -> better plan.

`workload` counts what the task needs, `from_settings` turns settings, machine and workload into a plan (or
reads the one in `plan=`), and `trial` measures a few real steps in a separate process. The `planner.Planner`
combines them with what was observed, and compares its predictions with the first steps of the run.
`placement` explains the result: who does what where.
"""
