"""Writes a training as a job for a scheduler: SLURM, JobSet, KubeRay or SkyPilot.

`settings` are those of a submission, and `resources` says what the training takes of each node, from its
plan. `schedulers` has one module for each kind of file; its `PlannedJob` joins both with the words of the
command, and `write` stores the file and says how it is submitted.
Data flow: words -> settings and plan -> job -> file -> the scheduler's own command.
"""
