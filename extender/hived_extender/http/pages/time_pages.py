"""The past as charts: use, waits, delays, preemptions, guarantees and free cells over hours, days and weeks.

A chart is made here and nowhere else: a script draws what it is sent, and a page without scripts has the same numbers
as a table. Every interval between the first and the last moment is there, and is null where nothing was sampled.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import zip_longest
from math import ceil
from urllib.parse import urlencode

import msgspec
from flask import Response, request

from hived.values.errors import UserError
from hived.values.specs import MAX_LEVELS, ClusterSpec
from hived_extender.api.past import History, Series
from hived_extender.http.pages.site import PREFIX, Site
from hived_extender.insight.history import MINUTE_S
from hived_extender.jobs.progress import write_time
from hived_extender.kube.clocks import wall_s

Values = list[float | None]

MOST_ROWS = 24
"""Rows of the table of a chart: each is several intervals where there are more."""

NOTHING = "\N{EN DASH}"
"""In a table, where nothing was sampled."""

MOST_LINES = 24
"""Lines of one chart; beyond that the smallest are left out, and the chart says how many."""

NO_VC = "(none)"

CAUSES = (
    "in-use", "in-pieces", "bad", "lent", "kubernetes", "incomplete", "quota", "order", "invalid", "never", "unknown",
    "preempting", "held",
)  # fmt: skip
"""In the order in which charts show them, which gives each its colour."""


class Line(msgspec.Struct, frozen=True):
    """One line: `number` chooses its colour and dashes."""

    name: str
    number: int
    values: Values


class Chart(msgspec.Struct, frozen=True, kw_only=True):
    """Lines over the same moments (seconds since 1970), `step` seconds apart; `is_stacked` ones are drawn as a sum.

    Values of a chart that `is_summed` are counts of each interval, of others means. `left_out` lines are not shown.
    """

    name: str
    title: str
    text: str
    unit: str
    step: int
    times: list[int]
    lines: list[Line]
    is_stacked: bool = False
    is_summed: bool = False
    most: float | None = None
    left_out: int = 0


class TableRow(msgspec.Struct, frozen=True):
    """Some intervals of a chart together: the beginning of the first in RFC 3339, and a text for each line."""

    since: str
    texts: list[str]


MINUTES = "minutes"


class Shown(msgspec.Struct, frozen=True):
    """The question that a chart answers: which virtual cluster, "" for all; `vcs`, cell `types` above the leaf cells,
    larger ones first, and `node_types` of the cluster.
    """

    vc: str
    vcs: tuple[str, ...]
    types: tuple[str, ...]
    node_types: frozenset[str]

    def number(self, vc: str) -> int:
        """The number of a virtual cluster, by which all pages give it its colour."""
        return self.vcs.index(vc) if vc in self.vcs else len(self.vcs)


class Kind(msgspec.Struct, frozen=True):
    """A chart before it has values: the metrics it needs, and the function that makes its lines of them."""

    name: str
    title: str
    text: str
    unit: str
    metrics: tuple[str, ...]
    lines: "Callable[[Past, Shown], list[Line]]"
    is_stacked: bool = False
    is_summed: bool = False
    most: float | None = None


class Past:
    """Series by metric and labels, on moments without gaps."""

    def __init__(self, history: History) -> None:
        first, last = (history.times[0], history.times[-1]) if history.times else (0, -1)
        self.times = list(range(first, last + 1, history.step))
        self._places = [(at - first) // history.step for at in history.times]
        self._series = history.series

    def of(self, metric: str) -> list[tuple[dict[str, str], Values]]:
        """All series of a metric."""
        return [(one.labels, self._spread(one)) for one in self._series if one.metric == metric]

    def by(self, metric: str, label: str) -> dict[str, Values]:
        """The sums of a metric's series that are equal in one label; all of them as "" for the label ""."""
        found: dict[str, Values] = {}
        for labels, values in self.of(metric):
            key = labels.get(label, "")
            found[key] = added(found[key], values) if key in found else values
        return found

    def _spread(self, series: Series) -> Values:
        values: Values = [None] * len(self.times)
        for place, value in zip(self._places, series.values, strict=True):
            values[place] = value
        return values


def added(*rows: Values) -> Values:
    """The sum; null where all are."""
    return [
        sum(filter(None, each)) if any(one is not None for one in each) else None for each in zip(*rows, strict=True)
    ]


def ratio(above: Values, below: Values, factor: float) -> Values:
    """A quotient times a factor; null where there is nothing to be divided by."""
    found: Values = []
    for part, whole in zip_longest(above, below):
        found.append(None if not whole else factor * (part or 0.0) / whole)
    return found


def make_chart(kind: Kind, history: History, shown: Shown) -> Chart:
    """A chart of the past."""
    past = Past(history)
    lines = kind.lines(past, shown)
    kept = sorted(lines, key=lambda line: -max(filter(None, line.values), default=0.0))[:MOST_LINES]
    return Chart(
        name=kind.name, title=kind.title, text=kind.text, unit=kind.unit, step=history.step, times=past.times,
        lines=[line for line in lines if line in kept], is_stacked=kind.is_stacked, is_summed=kind.is_summed,
        most=kind.most, left_out=len(lines) - len(kept),
    )  # fmt: skip


def table(chart: Chart, time_of: Callable[[float], str]) -> list[TableRow]:
    """A chart as a table, newest rows first: means of its intervals, or sums."""
    together = max(1, ceil(len(chart.times) / MOST_ROWS))
    rows = []
    for first in range(0, len(chart.times), together):
        texts = []
        for line in chart.lines:
            known = [value for value in line.values[first : first + together] if value is not None]
            total = sum(known) / (1 if chart.is_summed else max(len(known), 1))
            texts.append(_text(total, chart.unit) if known else NOTHING)
        rows.append(TableRow(time_of(chart.times[first]), texts))
    return rows[::-1]


def _text(value: float, unit: str) -> str:
    """A value as people read it, as `time.js` writes it: minutes have their unit, also seconds or hours."""
    if unit != MINUTES:
        return f"{value:.4g}"
    if value < 1:
        return f"{60 * value:.2g} s"
    return f"{value:.3g} min" if value < 120 else f"{value / 60:.3g} h"


def _utilisation(past: Past, shown: Shown) -> list[Line]:
    used, borrowed = past.by("leaf_cells_used", "vc"), past.by("leaf_cells_borrowed", "vc")
    promised = past.by("leaf_cells_promised", "vc")
    nothing: Values = [None] * len(past.times)
    if shown.vc:
        own = promised.get(shown.vc, nothing)
        return [
            Line("promise in use", shown.number(shown.vc), ratio(used.get(shown.vc, nothing), own, 100)),
            Line("borrowed, of the promise", 11, ratio(borrowed.get(shown.vc, nothing), own, 100)),
        ]
    total = past.by("leaf_cells", "").get("", nothing)
    everybody = added(nothing, *used.values(), *borrowed.values())
    return [
        Line("all jobs", 0, ratio(everybody, total, 100)),
        Line("guaranteed jobs", 2, ratio(added(nothing, *used.values()), total, 100)),
    ]


def _by_vc(metric: str) -> Callable[[Past, Shown], list[Line]]:
    def lines(past: Past, shown: Shown) -> list[Line]:
        found = past.by(metric, "vc")
        return [Line(vc or NO_VC, shown.number(vc), found[vc]) for vc in _chosen(found, shown)]

    return lines


def _use(past: Past, shown: Shown) -> list[Line]:
    lines = _by_vc("leaf_cells_used")(past, shown)
    borrowed = past.by("leaf_cells_borrowed", "vc")
    own = [borrowed[vc] for vc in _chosen(borrowed, shown)]
    return [*lines, Line("opportunistic", 11, added(*own))] if own else lines


def _waiting_by_cause(past: Past, shown: Shown) -> list[Line]:
    found = past.by("waiting_pods", "cause")
    lines = [Line(cause, number, found[cause]) for number, cause in enumerate(CAUSES) if cause in found]
    queued = past.by("queued_pods", "").get("")
    return lines if queued is None else [*lines, Line("in a queue", len(CAUSES), queued)]


def _waiting_by_vc(past: Past, shown: Shown) -> list[Line]:
    found = past.by("waiting_pods", "vc")
    for vc, values in past.by("queued_pods", "vc").items():
        found[vc] = added(found[vc], values) if vc in found else values
    return [Line(vc or NO_VC, shown.number(vc), found[vc]) for vc in _chosen(found, shown)]


def _delay(past: Past, shown: Shown) -> list[Line]:
    delays, starts = past.by("start_delay_seconds", "vc"), past.by("started_pods", "vc")
    return [
        Line(vc or NO_VC, shown.number(vc), ratio(delays[vc], starts[vc], 1 / 60))
        for vc in _chosen(delays, shown)
        if vc in starts
    ]


def _kept(past: Past, shown: Shown) -> list[Line]:
    promised, short = past.by("leaf_cells_promised", "vc"), past.by("leaf_cells_short", "vc")
    lines = []
    for vc in _chosen(promised, shown):
        lost = ratio(short[vc], promised[vc], 100) if vc in short else ratio([0.0] * len(past.times), promised[vc], 1)
        lines.append(Line(vc, shown.number(vc), [None if one is None else 100 - one for one in lost]))
    return lines


def _free(past: Past, shown: Shown) -> list[Line]:
    """Nodes of each virtual cluster, or all levels of one but the leaf cells, of which `_use` tells."""
    found: dict[str, tuple[int, Values]] = {}
    for labels, values in past.of("free_cells"):
        vc, level, chain = labels["vc"], labels["level"], labels["chain"]
        if shown.vc and vc == shown.vc and level in shown.types:
            found[f"{level} ({chain})" if chain != level else level] = shown.types.index(level), values
        elif not shown.vc and level in shown.node_types:
            _, before = found.get(vc, (0, values))
            found[vc] = shown.number(vc), added(before, values) if vc in found else values
    ordered = sorted(found.items(), key=lambda one: (one[1][0], one[0]))
    return [Line(name, number, values) for name, (number, values) in ordered]


def _chosen(found: Mapping[str, Values], shown: Shown) -> Sequence[str]:
    """The virtual clusters that a chart is about, in their order."""
    return [vc for vc in sorted(found, key=lambda vc: (shown.number(vc), vc)) if not shown.vc or vc == shown.vc]


KINDS = (
    Kind(
        "utilisation", "Utilisation", "GPUs in use, of all that there are or are promised.", "%",
        ("leaf_cells", "leaf_cells_used", "leaf_cells_borrowed", "leaf_cells_promised"), _utilisation,
    ),
    Kind(
        "use", "GPUs in use", "By the virtual cluster of guaranteed jobs, and by opportunistic ones.",
        "GPUs",
        ("leaf_cells_used", "leaf_cells_borrowed"), _use, is_stacked=True,
    ),
    Kind(
        "free", "Free cells by level", "Whole cells that guaranteed jobs could get at once: nodes, or for one virtual "
        "cluster each level by itself.", "cells", ("free_cells",), _free,
    ),
    Kind(
        "waiting", "Waiting pods by virtual cluster", "Pods that wait, for whatever cause, and those that jobs "
        "in queues will have.", "pods", ("waiting_pods", "queued_pods"),
        _waiting_by_vc, is_stacked=True,
    ),
    Kind(
        "causes", "Waiting pods by cause", "The cause that each pod was told last; jobs in queues have no "
        "pods yet.", "pods", ("waiting_pods", "queued_pods"),
        _waiting_by_cause, is_stacked=True,
    ),
    Kind(
        "delay", "Start delay", "Mean time from a pod's creation until it was bound.", MINUTES,
        ("start_delay_seconds", "started_pods"), _delay,
    ),
    Kind(
        "preempted", "Preempted pods", "Pods that left because others needed their cells, those of "
        "reclaimed jobs of queues too.", "pods", ("preempted_pods",),
        _by_vc("preempted_pods"), is_stacked=True, is_summed=True,
    ),
    Kind(
        "lost", "Lost GPU-hours", "Work that preempted pods lost since their start or last checkpoint.", "GPU-hours",
        ("preempted_gpu_hours",), _by_vc("preempted_gpu_hours"), is_stacked=True, is_summed=True,
    ),
    Kind(
        "kept", "Guarantee kept", "Promised GPUs that a virtual cluster uses or could have: less than all where "
        "hardware is bad.", "%", ("leaf_cells_promised", "leaf_cells_short"), _kept, most=100.0,
    ),
)  # fmt: skip
"""All charts, in the order of the page."""

KIND_OF: Mapping[str, Kind] = {kind.name: kind for kind in KINDS}


def metrics_of(kinds: Collection[Kind]) -> tuple[str, ...]:
    """The metrics that some charts need, each once."""
    return tuple(dict.fromkeys(metric for kind in kinds for metric in kind.metrics))


HOUR_S = 3600


class Span(msgspec.Struct, frozen=True):
    """A span until now, and the step in which it is shown; `text` follows "the last"."""

    name: str
    text: str
    seconds: int
    step: int


SPANS = (
    Span("hours", "3 hours", 3 * HOUR_S, MINUTE_S),
    Span("day", "day", 24 * HOUR_S, 300),
    Span("week", "week", 7 * 24 * HOUR_S, HOUR_S),
    Span("month", "30 days", 30 * 24 * HOUR_S, HOUR_S),
    Span("quarter", "90 days", 90 * 24 * HOUR_S, HOUR_S),
)
DAY = SPANS[1]


class Figure(msgspec.Struct, frozen=True):
    """A chart with its table, and the address of its values."""

    chart: Chart
    rows: list[TableRow]
    source: str


def add_pages(site: Site) -> None:
    """The page, and the values of one chart."""

    def past() -> Response:
        return time_page(site)

    def series() -> Response:
        return site.json(chart_of(site, request.args.get("chart", "")))

    site.blueprint.add_url_rule(f"{PREFIX}/time", "time", past)
    site.blueprint.add_url_rule(f"{PREFIX}/time/series", "time_series", series)


def time_page(site: Site) -> Response:
    """All charts. Raises UserError (404) if there is no history, or no such virtual cluster or span."""
    span, shown = _span(), _shown(site)
    charts = _charts(site, KINDS, span, shown)
    figures = [Figure(chart, table(chart, write_time), _source(chart.name, span, shown)) for chart in charts]
    has_any = any(chart.times for chart in charts)
    return site.page("time.html", "Time", figures=figures, span=span, spans=SPANS, shown=shown, has_any=has_any)


def chart_of(site: Site, name: str) -> Chart:
    """One chart by its name. Raises UserError (404)."""
    if name not in KIND_OF:
        raise UserError(f"there is no chart {name[:40]!r}; there are: {', '.join(KIND_OF)}", 404)
    (chart,) = _charts(site, (KIND_OF[name],), _span(), _shown(site))
    return chart


def _charts(site: Site, kinds: tuple[Kind, ...], span: Span, shown: Shown) -> list[Chart]:
    now_s = wall_s()
    history = site.backend.history
    found = history.query(now_s - span.seconds, now_s, span.step, metrics_of(kinds), shown.vc or None)
    return [make_chart(kind, found, shown) for kind in kinds]


def _source(chart: str, span: Span, shown: Shown) -> str:
    query = {"chart": chart, "span": span.name} | ({"vc": shown.vc} if shown.vc else {})
    return f"{PREFIX}/time/series?{urlencode(query)}"


def _span() -> Span:
    name = request.args.get("span", DAY.name)
    found = next((span for span in SPANS if span.name == name), None)
    if found is None:
        raise UserError(f"there is no span {name[:40]!r}; there are: {', '.join(span.name for span in SPANS)}", 404)
    return found


def _shown(site: Site) -> Shown:
    spec = site.backend.service.machine.terms.spec
    vcs, vc = tuple(sorted(spec.virtual_clusters)), request.args.get("vc", "")
    if vc and vc not in vcs:
        raise UserError(f"there is no virtual cluster {vc[:80]!r}; there are: {', '.join(vcs)}", 404)
    nodes = frozenset(each.name for each in spec.cell_types.values() if each.is_node_level)
    return Shown(vc, vcs, _larger_first(spec), nodes)


def _larger_first(spec: ClusterSpec) -> tuple[str, ...]:
    """The cell types above leaf cells: those with most levels below first, else by name."""

    def height(name: str, depth: int = 0) -> int:
        below = spec.cell_types.get(name)
        return depth if below is None or depth > MAX_LEVELS else height(below.child_type, depth + 1)

    return tuple(sorted(spec.cell_types, key=lambda name: (-height(name), name)))
