"""Plots as PNG files, drawn with matplotlib, which is imported only when a plot is drawn.

`run.write_plots` draws the files of a run directory: `training` its metrics, `detection` and `classification`
its evaluation, both with `classes`. `labels` draws a data set, `plan` the prediction of a plan.
"""
