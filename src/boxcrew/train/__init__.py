"""Training: the package in which the science (tasks) meets the machine (plan, deploy).

`config` and `init` hold the settings of a run, `settings_reference` lists them all, and `foreign_words`
knows what other tools call them. The data goes downhill: `run` prepares a session from the settings,
`planning` makes its plan, `loop` does the steps with hooks beside them, and `output` writes what they
report. `bucket` keeps a run in object storage.
"""
