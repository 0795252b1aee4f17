"""What is kept of a unit for later queues."""

from hived_extender.queues.entries import Entry, Memo
from hived_extender.queues.table import Table


def memo_of(table: Table, entry: Entry) -> Memo:
    """All that new queues have to know of a unit. Cost O(its leaves)."""
    key, run = entry.unit.key, entry.run
    own, vacates = table.own.runs.get(key), table.vacating.get(key)
    kept = table.refusals(entry.unit.vc).reservation
    if kept is not None and kept.key != key:
        kept = None
    return Memo(
        place=None if entry.place == entry.unit.created_s else entry.place,
        due_s=None if own is None else own.due_s,
        own=() if own is None else own.own,
        vacates=() if vacates is None else tuple(vacates.tolist()),
        started_s=None if run is None else run.start_s,
        is_borrowed=run is not None and run.is_borrowed,
        ran_s=entry.ran_s,
        is_held=entry.is_held,
        reserved=() if kept is None else tuple(kept.leaves.tolist()),
        reserved_s=None if kept is None else kept.start.at_s,
        certainty="" if kept is None else kept.start.certainty.value,
    )
