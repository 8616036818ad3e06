"""Runs in object storage: `out=s3://bucket/runs/a`.

The run itself is a directory of this computer, as every run: the working copy. `lease` is the right to write
under the URL, `uploader` stores what is new in the working copy (`files`) beside the loop, and `working_copy`
makes one of what is stored, so that a run continues wherever it is started again. `records` reads a run for
other commands, and `state` says how far it is.

A checkpoint's COMMIT is uploaded after its other files: whatever is cut off, a whole checkpoint is chosen.
"""
