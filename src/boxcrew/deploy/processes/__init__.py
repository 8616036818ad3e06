"""The processes of one run and how they work together.

`launch` starts them on this host; in each, `environments` reads its rank, `rendezvous` connects it to the
others, `collectives` exchanges values with them (all_reduce, broadcast), `heartbeat` notices when another has
died or hangs, and `messages` carries tensors between replicas and parameter servers.
"""
