"""Proposals: regions of an image where objects may be, for detectors that only classify them.

`methods` proposes regions of one image, `store` computes them for a data set and keeps them between runs, and
`coverage` says how many objects they cover. Data flow: records -> `compute_proposals` -> `StoredProposals`,
which loader processes ask for the regions of a record.
"""
