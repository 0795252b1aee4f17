"""`hived why JOB --if CHANGE`: changes of the user's own, tried together on the state of a snapshot."""

from collections.abc import Callable, Sequence

from msgspec.structs import replace

from hived.values.errors import UserError
from hived_extender.api.waiting import TAKEN_BACK, Certificate, IfResult
from hived_extender.insight.changes import (
    ACCEPTED,
    Change,
    ConfigurationChange,
    Known,
    OtherCluster,
    Pods,
    Priority,
    read_change,
    words,
)
from hived_extender.insight.judge import Judge
from hived_extender.insight.resized import state_after, type_names
from hived_extender.insight.snapshot import Snapshot, WaitingEntry
from hived_extender.insight.trials import Trials, refusal

MOST_CHANGES = 16
"""Changes that are tried together."""

_HAS_ROOM = frozenset({"order", *TAKEN_BACK})
"""Causes of a job that would start itself: others keep it from that, who have to start anew."""


def read_changes(
    snapshot: Snapshot, entry: WaitingEntry, changes: Sequence[str], is_shown: Callable[[str], bool] = lambda name: True
) -> tuple[Change, ...]:
    """The changes that these words mean; `is_shown` tells which jobs and groups the caller may name.

    Raises UserError for changes that cannot be tried, with the words that would do.
    """
    if not entry.requests:
        raise UserError(f"{entry.name} cannot be tried: {entry.refusal or 'nothing is known of its pods'}")
    if not 1 <= len(changes) <= MOST_CHANGES:
        raise UserError(f"{len(changes)} changes; name 1 to {MOST_CHANGES} of {', '.join(ACCEPTED)}")
    topology = snapshot.state.topology
    known = Known(
        holders={
            job: [name for name in groups if is_shown(name)] for job, groups in snapshot.jobs.items() if is_shown(job)
        },
        nodes=frozenset(topology.node_names),
        virtual_clusters=frozenset(topology.vc_names),
        leaf_types=frozenset(topology.leaf_type_chains),
        cell_types=type_names(snapshot.state.spec).keys(),
    )
    return tuple(read_change(text, known) for text in changes)


def try_changes(
    snapshot: Snapshot, entry: WaitingEntry, changes: Sequence[Change], judge_of: Callable[[Snapshot], Judge],
    before: Sequence[WaitingEntry] = (),
) -> IfResult:  # fmt: skip
    """Would the job start at once with all of these changes, and else why not? Takes `snapshot.lock`; nothing changes.

    Jobs `before` it have the cells that they get. `judge_of` makes the judge of a snapshot in which the changes are
    made. Raises UserError for changes that cannot be tried together. Cost: a few searches, and O(cells + pods) if the
    configuration is to be changed.
    """
    with snapshot.lock:
        trials = Trials(snapshot, entry, before)
        _check(trials, changes)
        configured = [one for one in changes if isinstance(one, ConfigurationChange)]
        if configured:
            trials = Trials(replace(snapshot, state=state_after(snapshot.state, configured)), entry, before)
        others = [one for one in changes if not isinstance(one, ConfigurationChange)]
        found = trials.change(others)
        if found.starts:
            return IfResult(starts=True, nodes=list(found.nodes), victims=list(found.victims))
        changed, asked = trials.changed(others)
        certificate = judge_of(changed).certificate(asked)
    if certificate.cause in _HAS_ROOM:
        certificate = Certificate(sentence=found.reason, cause="unknown", vc=entry.vc, reason=found.reason)
    return IfResult(starts=False, certificate=certificate)


def _check(trials: Trials, changes: Sequence[Change]) -> None:
    """Raise UserError for changes that contradict each other, or that the job may not have."""
    kinds: dict[type[Change], Change] = {}
    for one in changes:
        other = kinds.setdefault(type(one), one)
        if other is not one and isinstance(one, Priority | Pods | OtherCluster):
            raise UserError(f"{words(other)!r} and {words(one)!r} cannot both be; keep only one")
    if Pods in kinds and len(trials.wanted) > 1:
        raise UserError(
            f"{words(kinds[Pods])!r}: {trials.entry.name} has pods of {len(trials.wanted)} kinds, which are not tried "
            "with other numbers"
        )
    vc, priority = kinds.get(OtherCluster), kinds.get(Priority)
    why = refusal(
        trials.snapshot,
        trials.entry,
        vc.name if isinstance(vc, OtherCluster) else trials.entry.vc,
        priority.value if isinstance(priority, Priority) else trials.entry.priority,
    )
    if why and (vc or priority):
        raise UserError(why)
