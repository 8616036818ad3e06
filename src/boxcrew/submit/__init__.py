"""Writes a training as a job for a scheduler: SLURM, JobSet, KubeRay or SkyPilot.

`settings` are those of a submission; `resources` says what the training takes of each node, from its plan;
`job` joins both with the words of the command. `schedulers` has one module for each kind of file, and `write`
puts it to the disk and says how it is submitted.
Data flow: words -> settings and plan -> job -> file -> the scheduler's own command.
"""
