"""A proposal: the text of a configuration with other virtual clusters, why, and the simulated effect."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

import msgspec

from hived.specs import OPPORTUNISTIC_PRIORITY
from hived_config.loader import load_text
from hived_config.promises import CellTypePlace
from hived_config.text.edits import set_vc
from hived_extender.api.certificates import CertifiedVc
from hived_simulator.certification import compared
from hived_simulator.hived_cluster import HivedCluster
from hived_simulator.loop import Manner
from hived_simulator.outcomes import Outcome
from hived_simulator.private import PrivateClusters
from hived_simulator.replaying import Ran, Tell, run, within_bounds
from hived_simulator.shaping import Reshape, reshaped
from hived_simulator.sizes import Sizes, Table
from hived_simulator.suggesting import Goal, Step, resized
from hived_simulator.traces.jobs import Job

Telling = Callable[[str], Tell]


class Change(msgspec.Struct, frozen=True):
    """One change, in a sentence."""

    sentence: str


class Proposal(msgspec.Struct, frozen=True):
    """See the module.

    Attributes
    ----------
    text : the configuration, the same as before if nothing better was found
    changes : sentences
    cells : by virtual cluster, cells by type before and after, where they differ
    vcs : the effect on the guaranteed jobs of each virtual cluster: old is before, new after
    never : by virtual cluster, guaranteed jobs that never start before and after, where there are some
    utilisation_before, utilisation_after : part of all leaf cells in use until the last submission
    replays : of one virtual cluster's jobs, that the search took
    is_complete : whether it came to its own end, and not to the bound of replays
    notes : sentences about promises that the figures do not show
    """

    goal: str
    text: str
    changes: list[str]
    cells: dict[str, tuple[dict[str, int], dict[str, int]]]
    vcs: list[CertifiedVc]
    never: dict[str, tuple[int, int]]
    utilisation_before: float
    utilisation_after: float
    replays: int
    is_complete: bool
    notes: list[str]


def propose(
    text: str, file: str, jobs: Sequence[Job], vc_of: Mapping[str, str], goal: Goal, most: int,
    manner: Manner = Manner(), tell: Telling = lambda part: lambda done, of: None,  # noqa: B008  # a frozen value
) -> Proposal:  # fmt: skip
    """Search, and replay the result.

    Parameters
    ----------
    text, file : a sound configuration and its name in messages
    jobs, vc_of : the trace, and the virtual cluster of each of its tenants
    most : replays of one virtual cluster's jobs

    `tell` gives a function for the progress of each part; that may raise `Stopped`. Raises UserError for a text that
    cannot be edited.
    """
    cluster = load_text(text, file, lenient=True, environ={}).cluster
    bounded = within_bounds(jobs)
    sizes = Sizes(cluster, bounded, vc_of, manner, most, lambda number: tell(f"search, replay {number}"))
    if goal is Goal.SHAPES:
        shaped = reshaped(sizes)
        table, is_complete = shaped.table, shaped.is_complete
        changes = [_told_shape(sizes, each) for each in shaped.changes]
    else:
        found = resized(sizes, goal)
        table, is_complete = found.table, found.is_complete
        changes = [_told_step(sizes, table, step) for step in found.steps]
    edited = written(text, file, sizes, table)
    after_spec = sizes.spec(table)
    runs: list[Ran] = [
        run(each, bounded, vc_of, manner, tell(part))
        for part, each in (
            ("before", HivedCluster(cluster)),
            ("after", HivedCluster(after_spec)),
            ("private", PrivateClusters(after_spec)),
        )
    ]
    return Proposal(
        goal=goal.value,
        text=edited,
        changes=changes,
        cells={vc: pair for vc in table if (pair := _cells(sizes, table, vc))[0] != pair[1]},
        vcs=compared(*(each.outcomes for each in runs)),
        never=_never(runs[0].outcomes, runs[1].outcomes),
        utilisation_before=round(runs[0].utilisation, 6),
        utilisation_after=round(runs[1].utilisation, 6),
        replays=sizes.replays,
        is_complete=is_complete,
        notes=_notes(sizes, table),
    )


def written(text: str, file: str, sizes: Sizes, table: Table) -> str:
    """The text with the cells of a table: less at first, then more, so that it is sound all the time."""
    for is_more in (False, True):
        for vc, counts in table.items():
            was = sizes.present[vc]
            changed = {
                sizes.path(place): counts.get(place, 0)
                for place in sorted({*was, *counts})
                if counts.get(place, 0) != was.get(place, 0) and (counts.get(place, 0) > was.get(place, 0)) is is_more
            }
            if changed:
                text = set_vc(text, vc, changed, file)
    return text


def _notes(sizes: Sizes, table: Table) -> list[str]:
    """The virtual clusters with cells above nodes, if there are any: these cost lent work far more than nodes."""
    found = [
        f"{vc} ({', '.join(sizes.path(place) for place in above)})"
        for vc, counts in table.items()
        if (above := sorted(place for place, count in counts.items() if count and _is_above_nodes(sizes, place)))
    ]
    if not found:
        return []
    return [
        f"Cells above nodes are promised to {', '.join(found)}. Work that borrows idle cells loses far more there "
        "than on promises of nodes: promise these cells only for jobs that have to be within one, and nodes for all "
        "others (docs/preemption.md)."
    ]


def _is_above_nodes(sizes: Sizes, place: CellTypePlace) -> bool:
    chain, depth = place
    types = sizes.cluster.cell_types
    lower = [types[name] for name in sizes.chains[chain].types[depth + 1 :] if name in types]
    return any(one.is_node_level for one in lower)


def _never(before: Sequence[Outcome], after: Sequence[Outcome]) -> dict[str, tuple[int, int]]:
    lost = [
        Counter(one.vc for one in found if one.started_s is None and one.priority != OPPORTUNISTIC_PRIORITY)
        for found in (before, after)
    ]
    return {vc: (lost[0][vc], lost[1][vc]) for vc in sorted({*lost[0], *lost[1]})}


def _cells(sizes: Sizes, table: Table, vc: str) -> tuple[dict[str, int], dict[str, int]]:
    before, after = (
        {sizes.path(place): count for place, count in sorted(counts.items()) if count}
        for counts in (sizes.present[vc], table[vc])
    )
    return before, after


def _told_step(sizes: Sizes, table: Table, step: Step) -> str:
    what = f"{step.number} {sizes.path(step.place)}"
    gains = _told_delay(sizes, table, step.target)
    if not step.source:
        return f"{step.target} gets {what} that nobody is promised: {gains}."
    return f"{step.target} gets {what} of {step.source}: {gains}, and {_told_delay(sizes, table, step.source)}."


def _told_delay(sizes: Sizes, table: Table, vc: str) -> str:
    """The delay of a virtual cluster before and after all changes; both have been replayed."""
    before, after = sizes.delay(vc, sizes.present[vc]), sizes.delay(vc, table[vc])
    if not after.jobs:
        return f"{vc} has no guaranteed jobs in the trace"
    now, then = _minutes(before.started_mean_s), _minutes(after.started_mean_s)
    never = "" if before.never == after.never else f", and {after.never:,} never start instead of {before.never:,}"
    jobs = "the only job" if after.jobs == 1 else f"the {after.jobs:,} jobs"
    waits = "waits" if after.jobs == 1 else "wait"
    return f"{jobs} of {vc} {waits} {then} on average instead of {now}{never}"


def _minutes(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:,.1f} min"


def _told_shape(sizes: Sizes, each: Reshape) -> str:
    upper, lower = sizes.path(each.upper), sizes.path(each.lower)
    need = each.need
    found = f"{_count(need.jobs)} {'fits' if need.jobs == 1 else 'fit'}"
    return (
        f"{each.parts} {lower} of {each.vc} become {each.cells} {upper}: {found} into one and into no "
        f"lower cell, with {need.share:.0%} of its GPU-hours, and at most {need.at_once:,} of them ran at once."
    )


def _count(jobs: int) -> str:
    return f"{jobs:,} job{'s' * (jobs != 1)}"
