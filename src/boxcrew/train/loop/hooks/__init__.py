"""The hooks of the training loop, one in each file.

The trainer calls each with a `StepReport` after every step. A hook owns its state in a checkpoint: others
read it only through what its module offers.
"""
