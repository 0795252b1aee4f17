"""The past as charts: use, waits, delays, preemptions, guarantees and free cells over hours, days and weeks."""

from urllib.parse import urlencode

import msgspec
from flask import Response, request

from hived.values.errors import UserError
from hived.values.specs import MAX_LEVELS, ClusterSpec
from hived_extender.http.pages.charts import (
    KIND_OF,
    KINDS,
    Chart,
    Kind,
    Shown,
    TableRow,
    make_chart,
    metrics_of,
    table,
)
from hived_extender.http.pages.site import PREFIX, Site
from hived_extender.insight.history import MINUTE_S
from hived_extender.kube.clocks import wall_s
from hived_extender.pods.progress import write_time

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
