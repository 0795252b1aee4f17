"""Better virtual clusters for a trace: other sizes or shapes, and their simulated effect.

Guaranteed jobs start as in a private cluster of their virtual cluster's cells. So the delay of one depends on its own
cells alone, and is found by a replay of its own jobs. No replay is made twice.

Sizes: cells move from one virtual cluster to another, or come from cells that are not promised. The search goes from
large steps to small ones, and takes the best step each time. It is deterministic: its bound is a number of replays, and
of equal steps the first in the order of the file is taken.

Shapes: the same leaf cells, in cells that hold the gangs that occur. A gang is of the lowest level of which one cell
has as many leaf cells as the gang. A virtual cluster gets as many cells of that level as gangs of it ran at once in a
replay. They are made of lower cells that it has; other lower ones stay. A shape stays as it is if another one would
make the jobs of its virtual cluster wait longer.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from enum import StrEnum
from typing import NamedTuple

import msgspec

from hived.cells.layout import build_topology
from hived.values.errors import UserError
from hived.values.specs import OPPORTUNISTIC_PRIORITY, ClusterSpec, VirtualCellSpec
from hived_config.chains import Chain
from hived_config.division import CellTypePlace, chains_of, counts_of
from hived_config.loader import load_text
from hived_config.text.edits import set_vc
from hived_config.words import counted
from hived_extender.api.certificates import CertifiedVc
from hived_simulator.certification import Ran, Tell, compared, run
from hived_simulator.hived_cluster import HivedCluster
from hived_simulator.loop import Manner
from hived_simulator.private import PrivateClusters, divide
from hived_simulator.results import Outcome
from hived_simulator.tasks import within_bounds
from hived_simulator.traces.jobs import Job, most_at_once

NEVER_FACTOR = 10
"""A job that never starts counts as waiting so many times as long as the trace with its longest job takes."""

Counts = Mapping[CellTypePlace, int]
Table = Mapping[str, Counts]
"""By virtual cluster, the number of cells of each type; pinned cells are not in it."""


class BudgetError(Exception):
    """No replay is left."""


class Delay(NamedTuple):
    """The guaranteed jobs of one virtual cluster: seconds from submission to start, of all together."""

    total_s: float
    jobs: int
    outcomes: Sequence[Outcome] = ()

    @property
    def mean_s(self) -> float:
        """Of one job."""
        return self.total_s / self.jobs if self.jobs else 0.0

    @property
    def never(self) -> int:
        """Jobs that never start."""
        return sum(one.delay_s is None for one in self.outcomes)

    @property
    def started_mean_s(self) -> float:
        """Of one job that starts."""
        found = [one.delay_s for one in self.outcomes if one.delay_s is not None]
        return sum(found) / len(found) if found else 0.0


class Sizes:
    """Cells of virtual clusters that a search may change, with delays; at most `most` replays of one of them."""

    def __init__(
        self, cluster: ClusterSpec, jobs: Sequence[Job], vc_of: Mapping[str, str], manner: Manner, most: int,
        tell: Callable[[int], Tell] = lambda number: lambda done, of: None,
    ) -> None:  # fmt: skip
        self.cluster = cluster
        self.chains: dict[str, Chain] = chains_of(cluster)
        self.present: Table = {vc: counts_of(cluster, vc) for vc in cluster.virtual_clusters}
        self.replays = 0
        self.most = most
        self._jobs: dict[str, list[Job]] = {vc: [] for vc in cluster.virtual_clusters}
        for job in jobs:
            if job.priority != OPPORTUNISTIC_PRIORITY:
                self._jobs[vc_of[job.tenant]].append(job)
        last_s = max((job.submitted_s for job in jobs), default=0.0)
        self._never_s = NEVER_FACTOR * (last_s + max((job.duration_s for job in jobs), default=0.0))
        self._manner = manner
        self._tell = tell
        self._delays: dict[tuple[str, tuple[tuple[CellTypePlace, int], ...]], Delay] = {}
        self._fits: dict[tuple[tuple[CellTypePlace, int], ...], bool] = {}

    def path(self, place: CellTypePlace) -> str:
        """The cell type of a place as a file spells it."""
        chain, depth = place
        return ".".join(self.chains[chain].types[: depth + 1])

    def leaves(self, place: CellTypePlace) -> int:
        """Leaf cells of one cell."""
        chain, depth = place
        return self.chains[chain].leaf_counts[depth]

    def has_jobs(self, vc: str) -> bool:
        """True if a virtual cluster has guaranteed jobs."""
        return bool(self._jobs[vc])

    def delay(self, vc: str, counts: Counts) -> Delay:
        """The delay of a virtual cluster with these cells. Raises BudgetError if that takes one replay too many."""
        jobs = self._jobs[vc]
        if not jobs:
            return Delay(0.0, 0)
        key = (vc, _key(counts))
        if key not in self._delays:
            if self.replays >= self.most:
                raise BudgetError
            self.replays += 1
            alone = self.spec({vc: counts})
            vc_of, tell = {job.tenant: vc for job in jobs}, self._tell(self.replays)
            found = run(PrivateClusters(alone), jobs, vc_of, self._manner, tell)
            total_s = sum(self._never_s if one.delay_s is None else one.delay_s for one in found.outcomes)
            self._delays[key] = Delay(total_s, len(jobs), found.outcomes)
        return self._delays[key]

    def fits(self, table: Table) -> bool:
        """True if the hardware suffices for all together. Cost O(cells), once for each sum of cells."""
        sums: dict[CellTypePlace, int] = {}
        for counts in table.values():
            for place, count in counts.items():
                sums[place] = sums.get(place, 0) + count
        key = _key(sums)
        if key not in self._fits:
            try:
                divide(build_topology(self.spec(table)))
                self._fits[key] = True
            except UserError:
                self._fits[key] = False
        return self._fits[key]

    def spec(self, table: Table) -> ClusterSpec:
        """The configuration with these virtual clusters alone."""
        virtual = {
            vc: replace(
                self.cluster.virtual_clusters[vc],
                virtual_cells=tuple(
                    VirtualCellSpec(self.path(place), count) for place, count in sorted(counts.items()) if count
                ),
            )
            for vc, counts in table.items()
        }
        return replace(self.cluster, virtual_clusters=virtual)


def _key(counts: Counts) -> tuple[tuple[CellTypePlace, int], ...]:
    return tuple(sorted((place, count) for place, count in counts.items() if count))


SMOOTHING_S = 60.0
"""Added to both delays of a ratio: a delay of a second instead of none is no tenfold."""

FIRST_STEP = 8
"""The first step is this part of all cells of a type."""

SLIGHT = 1e-9


class Goal(StrEnum):
    """The goal of a search."""

    DELAY = "delay"
    FAIR = "fair"
    SHAPES = "shapes"


class Step(NamedTuple):
    """`number` cells of a type go from one virtual cluster, or from free hardware (""), to another one."""

    number: int
    place: CellTypePlace
    source: str
    target: str


class Found(NamedTuple):
    """A better table, the steps to it, and whether the search came to its own end."""

    table: Table
    steps: tuple[Step, ...]
    is_complete: bool


def resized(sizes: Sizes, goal: Goal) -> Found:
    """The best table that steps lead to. Cost: at most `sizes.most` replays of one virtual cluster's jobs."""
    table, steps = sizes.present, list[Step]()
    try:
        score = _score(sizes, table, goal)
        for size in _sizes(sizes):
            while True:
                better = _best(sizes, table, goal, size)
                if better is None or not better[0] < score:
                    break
                score, step = better
                table = applied(table, step)
                steps.append(step)
    except BudgetError:
        return Found(table, tuple(_joined(steps)), False)
    return Found(table, tuple(_joined(steps)), True)


def applied(table: Table, step: Step) -> Table:
    """The table after a step."""
    after = {vc: dict(counts) for vc, counts in table.items()}
    if step.source:
        after[step.source][step.place] -= step.number
    after[step.target][step.place] = after[step.target].get(step.place, 0) + step.number
    return after


def _sizes(sizes: Sizes) -> list[int]:
    """Steps in cells, falling to 1."""
    most = max((count for counts in sizes.present.values() for count in counts.values()), default=1)
    step, found = max(1, most // FIRST_STEP), []
    while step:
        found.append(step)
        step //= 2
    return found


def _best(sizes: Sizes, table: Table, goal: Goal, size: int) -> tuple[tuple[float, ...], Step] | None:
    best: tuple[tuple[float, ...], Step] | None = None
    for step in _steps(sizes, table, size):
        after = applied(table, step)
        if not step.source and not sizes.fits(after):
            continue
        score = _score(sizes, after, goal)
        if best is None or score < best[0]:
            best = score, step
    return best


def _steps(sizes: Sizes, table: Table, size: int) -> Iterator[Step]:
    """Steps that may help: to virtual clusters whose jobs wait, from those that keep a cell."""
    targets = [vc for vc in table if sizes.delay(vc, table[vc]).total_s > SLIGHT]
    places = sorted({place for counts in table.values() for place, count in counts.items() if count})
    for place in places:
        sources = [vc for vc, counts in table.items() if counts.get(place, 0) >= size and sum(counts.values()) > size]
        for target in targets:
            if not any(table[target].get(each, 0) for each in places if each[0] == place[0]):
                continue  # it has no cell of this chain, and so no jobs that would run there
            for source in ("", *sources):
                if source != target:
                    yield Step(size, place, source, target)


def _score(sizes: Sizes, table: Table, goal: Goal) -> tuple[float, ...]:
    """The lower the better, rounded so that sums of seconds compare alike everywhere."""
    delays = {vc: sizes.delay(vc, counts) for vc, counts in table.items()}
    if goal is Goal.DELAY:
        return (round(sum(each.total_s for each in delays.values()), 3),)
    ratios = [
        (each.mean_s + SMOOTHING_S) / (sizes.delay(vc, sizes.present[vc]).mean_s + SMOOTHING_S)
        for vc, each in delays.items()
        if each.jobs
    ]
    never = sum(each.never for each in delays.values())
    return (never, *sorted((round(ratio, 6) for ratio in ratios), reverse=True))


def _joined(steps: list[Step]) -> Iterator[Step]:
    """Steps between the same two of the same type as one, in the order of their first; opposite ones cancel out."""
    sums: dict[tuple[CellTypePlace, str, str], int] = {}
    for step in steps:
        back = (step.place, step.target, step.source)
        if back in sums:
            sums[back] -= step.number
        else:
            key = (step.place, step.source, step.target)
            sums[key] = sums.get(key, 0) + step.number
    for (place, source, target), count in sums.items():
        if count > 0:
            yield Step(count, place, source, target)
        elif count < 0:
            yield Step(-count, place, target, source)


SAME_DELAY_S = 1.0
"""A mean delay that grows by less has not grown."""


class Need(NamedTuple):
    """The jobs of one level: how many, how many of them ran at once, and their part of all leaf-seconds."""

    jobs: int
    at_once: int
    share: float


class Reshape(NamedTuple):
    """`parts` cells of one type become `cells` of a higher one, because of `need`."""

    vc: str
    lower: CellTypePlace
    parts: int
    upper: CellTypePlace
    cells: int
    need: Need


class Shaped(NamedTuple):
    """Another table, the changes that lead to it, and whether all virtual clusters were looked at."""

    table: Table
    changes: tuple[Reshape, ...]
    is_complete: bool


def reshaped(sizes: Sizes) -> Shaped:
    """The shapes that hold the gangs that occur. Cost: replays of each virtual cluster's jobs, `sizes.most` at most."""
    table: Table = sizes.present
    changes: list[Reshape] = []
    try:
        for vc in sizes.present:
            if not sizes.has_jobs(vc):
                continue
            outcomes = sizes.delay(vc, sizes.present[vc]).outcomes
            for chain in sizes.chains:
                for depth in range(sizes.chains[chain].leaf_depth):
                    table, change = _raised(sizes, table, vc, (chain, depth), outcomes)
                    if change is not None:
                        changes.append(change)
    except BudgetError:
        return Shaped(table, tuple(changes), False)
    return Shaped(table, tuple(changes), True)


def needs(sizes: Sizes, place: CellTypePlace, outcomes: Sequence[Outcome]) -> Need:
    """The jobs whose level this is, by their runs. Cost O(jobs log jobs)."""
    chain, depth = place
    leaf_counts = sizes.chains[chain].leaf_counts
    below, own = leaf_counts[depth + 1], leaf_counts[depth]
    found = [one for one in outcomes if below < one.leaf_count <= own and one.started_s is not None]
    ran = [(one.started_s, one.ended_s, 1) for one in found if one.started_s is not None and one.ended_s is not None]
    most = most_at_once(ran)
    used = sum(map(_leaf_seconds, outcomes))
    return Need(len(found), most, sum(map(_leaf_seconds, found)) / used if used else 0.0)


def _leaf_seconds(one: Outcome) -> float:
    return 0.0 if one.started_s is None or one.ended_s is None else one.leaf_count * (one.ended_s - one.started_s)


def _raised(
    sizes: Sizes, table: Table, vc: str, upper: CellTypePlace, outcomes: Sequence[Outcome]
) -> tuple[Table, Reshape | None]:
    """The table with more cells of a type for a virtual cluster, if it lacks them and has lower ones for them."""
    need = needs(sizes, upper, outcomes)
    counts = table[vc]
    chain, depth = upper
    below = ((chain, each) for each in range(depth + 1, sizes.chains[chain].leaf_depth + 1))
    lower = next((place for place in below if counts.get(place, 0)), None)
    if lower is None or not need.jobs:
        return table, None
    ratio = sizes.leaves(upper) // sizes.leaves(lower)
    most = min(need.at_once - counts.get(upper, 0), counts[lower] // ratio)
    now_s = sizes.delay(vc, counts).mean_s
    for cells in range(most, 0, -1):
        after = {**counts, lower: counts[lower] - cells * ratio, upper: counts.get(upper, 0) + cells}
        other = {**table, vc: after}
        if sizes.fits(other) and sizes.delay(vc, after).mean_s < now_s + SAME_DELAY_S:
            return other, Reshape(vc, lower, cells * ratio, upper, cells, need)
    return table, None


Telling = Callable[[str], Tell]


class Proposal(msgspec.Struct, frozen=True):
    """A configuration with better virtual clusters, and its simulated effect.

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
        return f"{step.target} gets {what} that is promised to none: {gains}."
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
    found = f"{counted(need.jobs, 'job')} {'fits' if need.jobs == 1 else 'fit'}"
    return (
        f"{each.parts} {lower} of {each.vc} become {each.cells} {upper}: {found} into one and into no "
        f"lower cell, with {need.share:.0%} of its GPU-hours, and at most {need.at_once:,} of them ran at once."
    )
