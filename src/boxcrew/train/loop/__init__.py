"""The training loop of one replica.

`Trainer` turns batches into steps by a `TrainingSchedule`; the `Guard` decides which steps are good and when
to roll back; `hooks` do everything else after each step. A `Checkpoint` is the state of all of them.
"""
