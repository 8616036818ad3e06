"""The state of a run in object storage."""

from __future__ import annotations

from collections.abc import Callable

from boxcrew.core.storage.address import Url
from boxcrew.core.storage.store import Store, require_reachable
from boxcrew.train.bucket.lease import is_closed, is_renewed, read_holder
from boxcrew.train.bucket.records import copy_of_run, local_run, records
from boxcrew.train.run.state import RunState, state_of


def stored_state(url: Url, info: Callable[[str], None]) -> RunState:
    """Return the state of a run under a URL. If another host has it, its lease is watched, for seconds."""
    store = Store(url)
    holder = read_holder(store, require_reachable(url))
    folder = local_run(url, records) if holder is None else copy_of_run(url, records)
    is_held = False
    if holder is not None and not holder.owner.is_dead() and not is_closed(store, holder):
        is_held = holder.owner.is_here()
        if not is_held:
            info(f"process {holder.owner.pid} on {holder.owner.host} has the run: waiting for a sign of life")
            is_held = is_renewed(store, holder)
    return state_of(
        folder,
        owner=None if holder is None or is_closed(store, holder) else holder.owner,
        is_held=is_held,
        takeovers=0 if holder is None else holder.takeovers,
    )
