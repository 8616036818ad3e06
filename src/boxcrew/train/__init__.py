"""Training: the only package that knows both the science (tasks) and the machine (plan, deploy).

config.py and init.py hold the settings of a run. The data goes downhill: `run` prepares a session from the
settings, `planning` makes its plan, `loop` does the steps with hooks beside them, and `output` writes what
they report.
"""
