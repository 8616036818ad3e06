"""The processes of one run and how they work together.

`launch` starts them on this host; in each, `environments` reads its rank, `rendezvous` connects it to the
others, `collectives` exchanges values with them (all_reduce, broadcast), `heartbeat` notices when another has
died or hangs, and `messages` carries tensors between replicas and parameter servers.

With our own launcher, `supervisor` starts `worker` processes and announces who belongs to a run in a store
(`membership`), and an `elastic_group` continues without a lost replica or with a new one. `on_ray` starts
the processes on a cluster of Ray.
"""
