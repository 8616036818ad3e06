"""Tools on top of torch that know nothing of detectors, plans or files.

Every use of a private torch name is in this package, so that a new torch can break only these files (a test
holds that): `foreach` computes on many tensors at once, `dispatch` observes operators, `fake` has
tensors without data, `batch_norm` has what networks call and how to recognize such layers, `loader_workers`
ends a DataLoader's processes. `recompute` trades time for memory, and `tracked_weights` keeps what is known
of weights up to date.
"""
