"""Checks of a data set before training. Nothing on disk is ever changed.

`problem` is the vocabulary: every defect is a `Problem` with a kind, a file and an action. Readers of
annotations mend boxes with `box_repair` while a set is opened; `format_mismatch` finds out why many fail
alike, by reading their numbers in other units and orders (`box_reading`). `scan` then opens every image
file once (`scan_cache` keeps the results between runs, `stamps` tell whether a file has changed), and
drops what cannot be read and what leaks between splits. `near_duplicates` finds altered copies across
splits for `boxcrew doctor`. `threads` runs both in parallel.
"""
