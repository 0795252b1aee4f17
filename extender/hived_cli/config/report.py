"""A report of the service as text: what is refused, whom it hits, what changes, what waiting jobs get of it."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

import click

from hived_config.changes import CellCount, Changes, NamedChanges, SettingChange, Shape
from hived_config.words import counted
from hived_extender.api.configuration import ConfigReport, ReportedJob, by_job
from hived_extender.api.waiting import rank_in_words

LINES = 10
NAMES = 8
"""Lines of a kind, and names in a line, that are shown unless all are asked for."""

CHARACTERS = 120
"""The most that is shown of a value then."""

VERDICTS = {
    "unaccounted": "no longer accounted for, running on, with no cell that is configured any more",
    "partlyUnaccounted": "partly no longer accounted for, running on, with some cells that are not configured any more",
    "lazilyPreempted": "lazily preempted, running on as opportunistic work that any guaranteed job may preempt",
    "preemptionCancelled": "without the reserved cells, asking again",
    "restored": "back in the guaranteed place in the virtual cluster",
}
WAITING_VERDICTS = {"neverStarts": "that can never start", "couldStart": "that could start", "waits": "still waiting"}
HARMLESS = ("preemptionCancelled", "restored")


def draw(report: ConfigReport, *, full: bool = False) -> str:
    """The report, most important first; with `full`, no list is shortened."""
    return "\n".join(_Drawing(report, full).lines())


class _Drawing:
    def __init__(self, report: ConfigReport, full: bool) -> None:
        self._report = report
        self._full = full

    def lines(self) -> Iterator[str]:
        report = self._report
        if report.refusals:
            yield _heading("Refused" if report.is_refused else "Needs --allow-downgrade", "red")
            yield from self._listed(report.refusals)
        if report.is_refused:
            return
        against = f" against version {report.base_version}" if report.base_version else ""  # none of a recorded run
        if report.identical and not report.groups.affected:
            yield f"identical: nothing changes{against}"
        else:
            yield from self._running()
            changes = list(self._changes(report.changes))
            yield _heading(f"Changes{against}")
            yield from changes or ["  none"]
            yield from self._bad()
            yield from self._waiting()
        if report.warnings:
            yield _heading("Warnings", "yellow")
            yield from self._listed(report.warnings)

    # ---- jobs

    def _running(self) -> Iterator[str]:
        groups, report = self._report.groups, self._report
        affected = by_job(groups.affected)
        harmed = len({job.name for job in affected if job.verdict not in HARMLESS})
        total = groups.spared_count + len({job.name for job in affected})
        if harmed:
            yield _heading(f"Running work: {harmed:,} of {counted(total, 'job')} affected", "red")
        else:
            yield _heading(f"Running work: not affected ({counted(total, 'job')})", "green")
        yield from self._by_verdict(affected, VERDICTS)
        if report.needs_allow_downgrade and not report.refusals:
            yield "  Some of these jobs are guaranteed their cells and would run on without that guarantee."
            yield "  Wait until they have ended, or leave them their cells; if it is meant, push with --allow-downgrade"

    def _waiting(self) -> Iterator[str]:
        waiting = by_job(self._report.waiting)
        if waiting:
            yield _heading(f"Waiting jobs: {len({job.name for job in waiting}):,}")
            yield from self._by_verdict(waiting, WAITING_VERDICTS, brief=() if self._full else ("waits",))

    def _by_verdict(
        self, jobs: Sequence[ReportedJob], words: Mapping[str, str], brief: Sequence[str] = ()
    ) -> Iterator[str]:
        """The jobs below their verdicts, worst first; of those in `brief` only the number."""
        order = {verdict: i for i, verdict in enumerate(words)}
        ranked = sorted(jobs, key=lambda job: (order.get(job.verdict, -1), job.verdict))
        for verdict, found in groupby(ranked, key=lambda job: job.verdict):
            named = list(found)
            is_brief = verdict in brief
            yield f"  {counted(len(named), 'job')} {words.get(verdict, verdict)}{'' if is_brief else ':'}"
            if not is_brief:
                yield from self._listed(map(_job, named), indent=4)

    # ---- changes

    def _changes(self, changes: Changes) -> Iterator[str]:
        yield from self._named("nodes", changes.nodes)
        yield from self._explained("nodes", [(each.node, each.what) for each in changes.nodes.changed])
        yield from self._named("cell types", changes.cell_types)
        yield from self._explained("cell types", [(each.cell_type, each.what) for each in changes.cell_types.changed])
        yield from self._named("pinned cells", changes.pinned_cells, changes.pinned_cells.changed)
        yield from self._named("virtual clusters", changes.virtual_clusters, changes.virtual_clusters.changed)
        if changes.cells:
            yield f"  cells: {', '.join(map(_counted, changes.cells))}"
        yield from self._shapes(changes.shapes)
        if changes.settings:
            yield "  settings:"
            yield from self._listed((_setting(each, self._full) for each in changes.settings), indent=4)

    def _named(self, what: str, named: NamedChanges[Any], changed: Sequence[str] = ()) -> Iterator[str]:
        for verb, names in (("removed", named.removed), ("added", named.added), ("changed", changed)):
            if names:
                yield f"  {what} {verb}: {self._names(names)}"

    def _explained(self, what: str, changed: Iterable[tuple[str, str]]) -> Iterator[str]:
        """Names that have changed, each with an explanation; names with the same one together."""
        by_reason: dict[str, list[str]] = {}
        for name, why in changed:
            by_reason.setdefault(why, []).append(name)
        if by_reason:
            yield f"  {what} changed: {sum(map(len, by_reason.values())):,}"
            yield from self._listed((f"{self._names(names)}: {why}" for why, names in by_reason.items()), indent=4)

    def _bad(self) -> Iterator[str]:
        """The nodes that would be bad: not in the cluster, or not healthy."""
        if self._report.bad:
            yield _heading("Nodes that would be bad now", "yellow")
            yield from self._listed(
                f"{each.cell_type}: {each.bad:,} bad of {each.total:,} ({_few(each.nodes, each.bad)})"
                for each in self._report.bad
            )

    def _shapes(self, shapes: Sequence[Shape]) -> Iterator[str]:
        """A line for each virtual cluster and chain, virtual clusters that lose something first."""
        by_vc: dict[str, dict[str, list[Shape]]] = {}
        for shape in shapes:
            chain = shape.cell_type.partition(".")[0]
            by_vc.setdefault(shape.vc, {}).setdefault(chain, []).append(shape)
        losers = dict.fromkeys(shape.vc for shape in shapes if shape.new < shape.old)
        if by_vc:
            yield "  guaranteed:"
            ordered = [(vc, chain) for vc in {**losers, **by_vc} for chain in by_vc[vc]]
            yield from self._listed((f"{vc}, {chain}: {_levels(by_vc[vc][chain])}" for vc, chain in ordered), indent=4)

    # ---- lists

    def _listed(self, lines: Iterable[str], indent: int = 2) -> Iterator[str]:
        """The lines, indented; further lines of one are below it."""
        every = list(lines)
        shown = every if self._full or len(every) <= LINES + 1 else every[:LINES]
        for line in shown:
            yield " " * indent + line.replace("\n", "\n" + " " * (indent + 2))
        if len(shown) < len(every):
            yield f"{' ' * indent}and {len(every) - len(shown):,} more"

    def _names(self, names: Sequence[str]) -> str:
        return shortened(names, full=self._full)


def shortened(names: Sequence[str], *, full: bool) -> str:
    """All names, or the first ones and how many more there are."""
    return ", ".join(names) if full or len(names) <= NAMES + 1 else _few(names[:NAMES], len(names))


def _heading(text: str, color: str | None = None) -> str:
    return click.style(text, bold=True, fg=color)


def _few(names: Sequence[str], count: int) -> str:
    """The names, and how many more there are."""
    return ", ".join(names) + (f" and {count - len(names):,} more" if count > len(names) else "")


def _job(job: ReportedJob) -> str:
    claim = f"{job.vc}, {rank_in_words(job.priority)}" if job.vc else "without virtual cluster"
    who = f"{job.name} ({claim}, {job.pods_told})"
    return f"{who}: {job.reason}" if job.reason else who


def _counted(count: CellCount) -> str:
    difference = count.new - count.old
    return f"{count.cell_type} {count.old:,} -> {count.new:,} ({difference:+,})"


def _levels(shapes: Iterable[Shape]) -> str:
    """The changes at each level of a chain, by the names of its types alone."""
    return ", ".join(f"{each.cell_type.rpartition('.')[2]} {each.old:,} -> {each.new:,}" for each in shapes)


def _setting(setting: SettingChange, full: bool) -> str:
    was, now = (_value(value, full) for value in (setting.old, setting.new))
    restart = ", once the service is started again" if setting.needs_restart else ""
    return f"{setting.key}: {was} -> {now}{restart}"


def _value(value: Any, full: bool) -> str:
    """A value as JSON, shortened unless `full`: a virtual cluster may list thousands of namespaces."""
    text = "none" if value is None else json.dumps(value)
    return text if full or len(text) <= CHARACTERS else f"{text[: CHARACTERS - 3]}..."
