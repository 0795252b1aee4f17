"""The tables as text."""

from collections.abc import Callable, Sequence

from hived.values.specs import Rules
from tests.quality.plan import CRASHED, CROWDS, TABLES, TRACES, Miss, Results, Unit, added, near_by_load
from tests.quality.small import Figures

RULES_NAMES = {Rules.HIVED: "hived", Rules.BETTER: "2"}
Row = Sequence[object]


def tables(results: Results, wanted: Sequence[str]) -> str:
    """All tables of these names for which something was measured."""
    results = [(unit, figures) for unit, figures in results if figures != CRASHED]
    parts = []
    for name in TABLES:
        if name in wanted:
            parts += [text for make in _MAKERS[name] if (text := make(results))]
    return "\n\n".join(parts)


def bounds_text(found: Sequence[Miss]) -> str:
    """The bounds that rules 2 miss, and crashes."""
    if not found:
        return "no bound is missed"
    rows = [(miss.table, miss.what, miss.figure, miss.bound) for miss in found]
    return _table("Bounds that rules 2 miss", ("table", "measured", "figure", "bound"), rows)


def _guarantee(results: Results) -> str:
    rows = []
    for unit, figures in results:
        if unit.measure == "guarantee":
            cells, way, share, bad, _, seed = unit.arguments
            name = f"{_way(cells, way)}, opportunistic {share}{f', bad nodes {seed}' if bad else ''}"
        elif unit.measure in TRACES and "guarantee" in unit.tables:
            name = _trace(unit, figures)
        else:
            continue
        mean = figures["later_sum_s"] / 60 / max(1, figures["later"])
        row = (name, figures["jobs"], figures["later"], mean, figures["later_max_s"] / 60, figures["later_ends"])
        rows.append((RULES_NAMES[unit.rules], *row))
    columns = ("rules", "set-up", "jobs", "start later", "mean min", "max min", "end later")
    return _table("Guarantee: jobs later than in their private cluster", columns, rows)


def _way(cells: object, way: object) -> str:
    return f"{cells}, {way}" if way else str(cells)


def _trace(unit: Unit, figures: Figures) -> str:
    cells, topology, over_quota, checkpoint_s, *_ = unit.arguments
    name = f"{unit.measure.capitalize()} {cells}{', topology' if topology else ''}, load {figures['load']}"
    name += ", over quota" if over_quota else ""
    return name + (f", checkpoints {checkpoint_s:.0f} s" if checkpoint_s else "")


def _delays(results: Results) -> str:
    rows = []
    for unit, figures in results:
        if unit.measure in TRACES and "guarantee" in unit.tables:
            name = _trace(unit, figures)
            own = [figures[f"delay_{part}"] for part in ("mean", "p50", "p95", "max")]
            rows.append((RULES_NAMES[unit.rules], name, figures["private_delay_mean"], *own, figures["start_mean"]))
    columns = ("rules", "set-up", "private mean", "mean", "p50", "p95", "max", "mean to first start")
    return _table("Traces: delay in minutes, until the end and without the job's duration", columns, rows)


def _needless_exact(results: Results) -> str:
    rows = []
    for (rules, kind, load, spares), figures in _by(results, ("needless",), lambda unit: unit.arguments[:3]):
        count = figures.get("preemptions", 0)
        causes = [figures.get(cause, 0) for cause in ("F-1", "F-2", "F-3")]
        share = [_percent(figures.get(part, 0), count) for part in ("equal", "any")]
        evicted = 1000 * figures.get("groups_evicted", 0) / max(1, figures.get("leaves_started", 0))
        lost = [figures.get(part, 0) for part in ("too_much", "lost", "lost_at_least")]
        place = "all" if load == "plain" else "some bad or not suggested"
        rows.append(
            (
                rules,
                f"{kind}, sparing" if spares else kind,
                place,
                count,
                figures.get("equal", 0),
                *share,
                *causes,
                evicted,
                *lost,
            )
        )
    columns = (
        "rules", "VC cells", "nodes", "preemptions", "(a)", "(a) %", "(b) %", "F-1", "F-2", "F-3",
        "groups /1000 GPUs", "too much lost", "lost", "least",
    )  # fmt: skip
    title = "Needless preemptions, exact: (a) with the same future for the VC, (b) with any placement of the VC"
    return _table(title, columns, rows)


def _needless_dozen(results: Results) -> str:
    names = ("questions", "mixed", "preemptions", "mixed_preemptions", "equal", "mixed_equal", "too_much", "unknown")
    rows = [
        (*key, *(figures.get(name, 0) for name in names))
        for key, figures in _by(results, ("evictions",), lambda unit: unit.arguments[:2])
    ]
    columns = (
        "rules", "VC cells", "nodes", "questions", "of several sizes", "preemptions", "of several sizes", "(a)",
        "of several sizes", "too much lost", "least not known",
    )  # fmt: skip
    return _table("Needless preemptions on 12 nodes of 8, all hardware behind the VC's choice", columns, rows)


def _needless_large(results: Results) -> str:
    rows = []
    plain = [(unit, figures) for unit, figures in results if unit.measure in CROWDS and "needless" in unit.tables]
    for (rules, cells, way, load, share), figures in _by(plain, CROWDS, lambda unit: unit.arguments[:4]):
        count = figures.get("preemptions", 0)
        started = max(1, figures.get("leaves_started", 0))
        part = [_percent(figures.get(name, 0), count) for name in ("equal", "any")]
        per = [1000 * figures.get(name, 0) / started for name in ("leaves_evicted", "groups_evicted")]
        rows.append(
            (rules, _way(cells, way), load, share, count, figures.get("equal", 0), *part, *per, figures["lost"])
        )
    columns = (
        "rules", "VC cells", "load", "opportunistic", "preemptions", "(a)", "(a) %", "(b) %", "GPUs evicted /1000",
        "groups /1000", "GPU-h lost",
    )  # fmt: skip
    return _table("Needless preemptions on 312 nodes, as far as proofs go", columns, rows)


def _locality(results: Results) -> str:
    rows = []

    both = [(rules, *own) for rules in Rules for own in near_by_load(results, rules).items()]
    for rules, (name, load), figures in both:
        row: list[object] = []
        for kind in ("", "lent_"):
            gangs = figures.get(f"{kind}gangs", 0)
            row += [gangs, _percent(figures.get(f"{kind}near", 0), gangs)]
        rows.append((RULES_NAMES[rules], name, load, *row))
    columns = ("rules", "VC cells", "load", "guaranteed gangs", "near %", "opportunistic gangs", "near %")
    return _table("Locality: gangs at the lowest common level possible", columns, rows)


def _fragmentation(results: Results) -> str:
    rows = []
    for unit, figures in results:
        if "fragmented" in figures:
            share = _percent(figures["fragmented_hours"], figures["heads_hours"])
            helped = _percent(figures["one_move_helps"], figures["fragmented"])
            row = [figures[name] for name in ("heads", "heads_hours", "fragmented", "fragmented_hours")]
            rows.append((RULES_NAMES[unit.rules], *row, share, helped))
    columns = ("rules", "heads that waited", "GPU-h", "fragmented", "GPU-h", "%", "one move helps %")
    return _table("Fragmentation inside VCs: traces, nodes, guaranteed only", columns, rows)


def _drawn(results: Results) -> str:
    names = ("draws", "mean", "error", "least", "most")
    measured = [(unit, figures) for unit, figures in results if unit.measure == "private_delays"]
    rows = [(RULES_NAMES[unit.rules], *(figures[name] for name in names)) for unit, figures in measured]
    columns = ("rules", "draws", "mean min", "standard error", "least", "most")
    return _table("Philly: mean delay in private clusters, nodes, over draws of other durations", columns, rows)


def _completeness(results: Results) -> str:
    rows = []
    causes = ("mixed", "within", "not_suggested", "bad", "combine", "plain")
    for (rules, kind), figures in _by(results, ("false_waits",), lambda unit: unit.arguments[:1]):
        parts = [figures.get(f"false_{cause}", 0) for cause in causes]
        counts = [figures.get(name, 0) for name in ("questions", "waits", "false", "false_opportunistic")]
        rows.append((rules, kind, *counts, *parts, figures.get("combine", 0)))
    columns = (
        "rules", "VC cells", "asked", "waits", "false", "opportunistic", "mixed sizes", "within", "not suggested",
        "bad", "combine", "other", "would fit combined",
    )  # fmt: skip
    return _table("Completeness: waits of groups that have a place", columns, rows)


def _saturation(results: Results) -> str:
    rows = []
    for unit, figures in results:
        if unit.measure in TRACES and "saturation" in unit.tables:
            cells, _, _, checkpoint_s, *_ = unit.arguments
            kept = f"checkpoints {checkpoint_s:.0f} s" if checkpoint_s else "restart from 0"
            row = [figures[part] for part in ("evicted", "lost", "delay_mean", "private_delay_mean")]
            rows.append((RULES_NAMES[unit.rules], cells, figures["load"], kept, *row))
    columns = (
        "rules",
        "VC cells",
        "load",
        "evicted jobs",
        "groups evicted",
        "GPU-h lost",
        "mean delay min",
        "private mean",
    )
    return _table("Saturation: traces, over-quota jobs opportunistic", columns, rows)


def _lending(results: Results) -> str:
    rows = []
    for unit, figures in results:
        if unit.measure == "lending":
            cells, load, *_ = unit.arguments
            shown = [figures[part] for part in ("useful", "lost", "evictions", "most_evictions", "delay")]
            share = f"{100 * figures['lost'] / max(1, figures['useful']):.2g}"
            rows.append((RULES_NAMES[unit.rules], cells, load, *shown[:2], share, *shown[2:]))
    columns = ("rules", "VC cells", "load", "GPU-h useful", "lost", "%", "evictions", "most of a job", "mean delay h")
    return _table("Lending: gangs of 16 to 128 GPUs and bursts on 136 nodes, over quota", columns, rows)


_MAKERS: dict[str, tuple[Callable[[Results], str], ...]] = {
    "guarantee": (_guarantee, _delays),
    "needless": (_needless_exact, _needless_dozen, _needless_large),
    "locality": (_locality,),
    "fragmentation": (_fragmentation, _drawn),
    "completeness": (_completeness,),
    "saturation": (_saturation,),
    "lending": (_lending,),
}


def _by(
    results: Results, measures: Sequence[str], key: Callable[[Unit], Sequence[object]]
) -> list[tuple[tuple[object, ...], Figures]]:
    """Figures of measures added up by rules and key, in the order in which they first come."""
    grouped: dict[tuple[object, ...], list[Figures]] = {}
    for unit, figures in results:
        if unit.measure in measures:
            grouped.setdefault((RULES_NAMES[unit.rules], *key(unit)), []).append(figures)
    return [(key, added(some)) for key, some in grouped.items()]


def _percent(part: float, whole: float) -> str:
    return f"{100 * part / whole:.0f}" if whole else "-"


def _table(title: str, columns: Row, rows: Sequence[Row]) -> str:
    if not rows:
        return ""
    cells = [[_text(value) for value in row] for row in (columns, *rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    texts = [[cell.ljust(width) for cell, width in zip(row, widths, strict=True)] for row in cells]
    lines = ["| " + " | ".join(row) + " |" for row in texts]
    return "\n".join([title, "", lines[0], "|" + "|".join("-" * (width + 2) for width in widths) + "|", *lines[1:]])


def _text(value: object) -> str:
    if not isinstance(value, float):
        return str(value)
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"
