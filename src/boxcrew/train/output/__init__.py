"""The output of a run: the screen and its log, metrics files, TensorBoard, and weights.

Hooks bring the numbers; nothing here computes any. A file that cannot be written never ends a run.
"""
