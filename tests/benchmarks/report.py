"""The tables: which figures are shown, in which order and form."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tests.benchmarks.figures import Summary, growth
from tests.benchmarks.targets import TARGETS, Sizes, Target, missed, missed_ratios, unmeasured


@dataclass(frozen=True, slots=True)
class Row:
    """A line of the table; `parts` are the figures that it shows. The first decides growth and ratios."""

    key: str
    title: str
    parts: tuple[str, ...] = ("p50", "p99")


def _value(key: str, title: str) -> Row:
    return Row(key, title, ("value",))


SECTIONS: tuple[tuple[str, tuple[Row, ...]], ...] = (
    ("Start, s", (
        _value("process/total", "fresh process until it answers, all nodes added"),
        _value("process/cpu", "  of that on a processor"),
        _value("process/import", "  importing"),
        _value("process/kernels", "  loading compiled kernels"),
        _value("process/configuration", "  reading the configuration"),
        _value("process/nodes", "  noting all nodes"),
        _value("process/term", "  beginning to lead: new_state, all nodes healthy"),
        _value("process/first", "first start after an installation, embedded cluster and all, until filter answers"),
        _value("process/compile", "compiling all kernels, alone"),
        _value("start/total", "core alone: specification, new_state, all nodes"),
        _value("replay/total", "replay of all bound pods, every GPU used"),
        _value("web/recovery", "  the same in the service, from annotations"),
    )),
    ("Schedule + allocate a pod, mixed load until every GPU is used, ms p50/p99", (
        Row("load/any", "any pod"),
        Row("load/1x1", "1-GPU pod"),
        Row("load/1x2", "2-GPU pod"),
        Row("load/1x4", "4-GPU pod"),
        Row("load/1x8", "8-GPU pod"),
        Row("load/first of 8x8", "first pod of 8x8"),
        Row("load/first of 32x8", "first pod of 32x8"),
        Row("load/first of 128x8", "first pod of 128x8"),
        Row("load/later of 8x8", "later pod of 8x8"),
        Row("load/later of 128x8", "later pod of 128x8"),
    )),
    ("The same with annotations, a spec in JSON read and all annotations written, ms p50/p99", (
        Row("load/any, annotated", "any pod"),
        Row("load/1x1, annotated", "1-GPU pod"),
        Row("load/1x8, annotated", "8-GPU pod"),
        Row("load/first of 8x8, annotated", "first pod of 8x8"),
        Row("load/later of 8x8, annotated", "later pod of 8x8"),
        Row("load/read JSON", "reading a spec in JSON"),
        Row("load/read YAML", "reading a spec in YAML"),
        _value("load/YAML times JSON", "  times the one in JSON"),
    )),
    ("Without annotations, half full, one job that comes and goes, ms p50/p99", (
        Row("half/1x1", "1-GPU pod alone"),
        Row("half/1x8", "8-GPU pod alone"),
        Row("half/first of 8x8", "first pod of 8x8"),
        Row("half/first of 32x8", "first pod of 32x8"),
        Row("half/first of 128x8", "first pod of 128x8"),
        Row("half/later of 128x8", "later pod of 128x8"),
    )),
    ("Nodes, ms p50/p99", (
        Row("half/node down", "node down, half full"),
        Row("half/node up", "node up, half full"),
        Row("full/node down", "node down, full"),
        Row("full/node up", "node up, full"),
    )),
    ("Half of the nodes refused, 128x8 and 8 sizes of pods (at 128 nodes an eighth of it), ms p50/p99", (
        Row("refused/nodes, suggested", "gang of whole nodes starts, VC of nodes, suggested nodes"),
        Row("refused/nodes, offered", "  with an offer"),
        Row("refused/racks, suggested", "the same, VC of racks, suggested nodes"),
        Row("refused/racks, offered", "  with an offer"),
        Row("refused/few, suggested", "the same waits, suggested nodes"),
        Row("refused/few, offered", "  with an offer"),
        Row("refused/few, again", "  asked again, with nothing changed"),
        Row("refused/mixed fits, suggested", "gang of 8 sizes starts, suggested nodes"),
        Row("refused/mixed fits, offered", "  with an offer"),
        Row("refused/mixed waits, suggested", "gang of 8 sizes waits, suggested nodes"),
        Row("refused/mixed waits, offered", "  with an offer"),
    )),
    ("Full cluster, ms p50/p99", (
        Row("claim/preempting pod", "1- to 8-GPU pod preempts: filter, preempt, filter, bind"),
        Row("claim/preempting first of 8x8", "first pod of 8x8 preempts"),
        Row("full/victims for 1x1", "who must leave a full VC for a 1-GPU pod"),
        Row("full/victims for 128x8", "who must leave a full VC for 128x8"),
        Row("full/wait 1x1", "1-GPU pod must wait"),
        Row("full/wait 128x8", "128x8 must wait"),
        Row("full/delete", "delete a pod"),
        Row("full/delete last of 128x8", "delete the last pod of 128x8"),
    )),
    ("Explaining a wait beyond its refusal, every VC full; copies of the state; ms p50/p99", (
        Row("explain/1x1", "1-GPU pod, every node offered"),
        Row("explain/1x8", "8-GPU pod"),
        Row("explain/128x8", "128x8"),
        Row("explain/1x1, offered", "1-GPU pod, half of the nodes refused"),
        Row("explain/1x8, offered", "8-GPU pod"),
        Row("explain/128x8, offered", "128x8"),
        Row("explain/1x1, offered, bad", "1-GPU pod, and a hundredth of the nodes is bad"),
        Row("explain/1x8, offered, bad", "8-GPU pod"),
        Row("explain/128x8, offered, bad", "128x8"),
        _value("explain/first", "the first question, which builds the cluster without anybody"),
        Row("copy/new", "copy of the state, new memory"),
        Row("copy/again", "  memory of an earlier copy"),
    )),
    ("HTTP filter of a 1-GPU pod that binds, half full, ms p50/p99", (
        Row("web/filter", "node list as in the call before"),
        _value("web/filter cpu", "  of that on a processor, mean"),
        Row("web/filter other list", "another node list"),
        Row("web/empty", "the same server answering an empty 200"),
        _value("web/filter times empty", "  the first row as a multiple of that"),
        Row("web/crowded", "32 connections that open at once"),
        Row("web/crowded first", "  their first answers, with opening"),
        Row("web/filter beside status", "while all cells are read in a loop", ("max", "p99")),
        Row("web/status", "  reading all cells", ("p50", "max")),
        _value("web/statuses", "  how often they were read meanwhile"),
    )),
    ("HTTP filter while 1,000 jobs wait for a full virtual cluster, ms p50/p99", (
        Row("watched/filter alone", "nobody looks"),
        Row("watched/filter", "twenty pages are open"),
        _value("watched/filter times alone", "  p99 as a multiple of the first row's, medians of rounds"),
        Row("watched/page", "  what pages ask for again", ("p50", "p99")),
        Row("watched/why", "why a job waits, what helps, and when it starts", ("p50", "max")),
    )),
    ("Another configuration comes into force, four fifths full, ms", (
        Row("switch/8-GPU filter", "longest filter call beside it, 8-GPU pods, median/worst", ("p50", "max")),
        Row("switch/8-GPU held", "  requests held back for the switch itself", ("p50", "max")),
        Row("switch/8-GPU change", "  from the plan to the end", ("p50", "max")),
        _value("switch/8-GPU pods", "  pods"),
        Row("switch/1-GPU filter", "longest filter call beside it, 1-GPU pods, median/worst", ("p50", "max")),
        Row("switch/1-GPU held", "  requests held back for the switch itself", ("p50", "max")),
        Row("switch/1-GPU change", "  from the plan to the end", ("p50", "max")),
        _value("switch/1-GPU pods", "  pods"),
    )),
    ("Resident memory, MB", (
        _value("memory/ready", "core, ready"),
        _value("memory/full", "core, every GPU used"),
        _value("web/memory ready", "service, ready"),
        _value("web/memory full", "service, every GPU used"),
    )),
    ("Size of the load", (_value("load/pods", "pods when every GPU is used"),)),
)  # fmt: skip


ROWS = {row.key: row for _, rows in SECTIONS for row in rows}
"""Every row by its name."""


def row_names() -> str:
    """All rows: name, figures, section and title."""
    lines = [
        [row.key, "/".join(row.parts), f"{title}: {row.title.strip()}"] for title, rows in SECTIONS for row in rows
    ]
    widths = [max(len(line[i]) for line in lines) for i in range(2)]
    return "\n".join(f"{line[0]:{widths[0]}}  {line[1]:{widths[1]}}  {line[2]}" for line in lines)


def reference_table(sizes: Sizes, reference: Sizes) -> str:
    """Our figures, the reference's, and the ratio of the first of them; at the end the ratios that are too high."""
    counts = sorted(sizes.keys() & reference.keys())
    shown = [row for row in ROWS.values() if any(row.key in reference[count] for count in counts)]
    if not shown:
        return "no row that the reference has was measured\n"
    body = [["**Ours, reference**", *(f"{count:,}" for count in counts)]]
    for row in shown:
        body.append([row.title.strip(), *(_compared(row, sizes[count], reference[count]) for count in counts)])
    verdicts = [
        f"missed: {target.title.strip()}, {count:,} nodes: {ratio:.2f} times the reference, "
        f"target {target.ratios[count]:g} times"
        for target, count, ratio in missed_ratios(sizes, reference)
    ]
    return "\n".join([*_aligned(body), "", *verdicts, ""])


def _compared(row: Row, ours: Mapping[str, Summary], theirs: Mapping[str, Summary]) -> str:
    here, there = (
        tuple(rows[row.key][part] for part in row.parts if part in rows[row.key]) if row.key in rows else ()
        for rows in (ours, theirs)
    )
    ratio = f" (x{here[0] / there[0]:.2f})" if here and there else ""
    return f"{_numbers(here)}, {_numbers(there)}{ratio}"


def target_table(sizes: Sizes) -> str:
    """Each figure that has a target, with the target below; at the end what is missed or unknown."""
    counts = sorted(sizes)
    body = [["**Figure, target**", *(f"{count:,}" for count in counts), "growth"]]
    for target in TARGETS:
        measured = {count: target.figures(sizes, count) for count in counts}
        limits = {count: target.limits.get(count, ()) for count in counts}
        if not any(measured.values()):
            continue
        body.append([target.title, *map(_numbers, measured.values()), _exponent(_firsts(measured))])
        if any(limits.values()):
            body.append(["    target", *map(_numbers, limits.values()), ""])
    verdicts = [f"missed: {_verdict(target, sizes, count)}" for target, count in missed(sizes)]
    unknown = [f"not measured: {target.title.strip()}, {count:,} nodes" for target, count in unmeasured(sizes)]
    return "\n".join([*_aligned(body), "", *(verdicts or ["no target is missed"]), *unknown, ""])


def _verdict(target: Target, sizes: Sizes, count: int) -> str:
    reached, limit = _numbers(target.figures(sizes, count)), _numbers(target.limits[count])
    return f"{target.title.strip()}, {count:,} nodes: {reached}, target {limit}"


def _numbers(figures: tuple[float, ...]) -> str:
    return "/".join(map(_number, figures)) or "-"


def _firsts(rows: dict[int, tuple[float, ...]]) -> dict[int, float]:
    return {count: figures[0] for count, figures in rows.items() if figures}


def _exponent(figures: dict[int, float]) -> str:
    exponent = growth(figures)
    return "" if exponent is None else f"{exponent:.2f}"


def table(sizes: Sizes, old: Sizes | None = None) -> str:
    """The figures in Markdown, one column for each size; with `old`, the ratio new / old behind each figure."""
    counts = sorted(sizes)
    lines = []
    for title, rows in SECTIONS:
        shown = [row for row in rows if any(row.key in sizes[count] for count in counts)]
        if not shown:
            continue
        body = [[f"**{title}**", *(f"{count:,}" for count in counts), "growth"]]
        for row in shown:
            cells = [_cell(row, count, sizes, old) for count in counts]
            firsts = {count: sizes[count][row.key][row.parts[0]] for count in counts if row.key in sizes[count]}
            body.append([row.title, *cells, _exponent(firsts)])
        lines += [*_aligned(body), ""]
    return "\n".join(lines)


def _cell(row: Row, count: int, sizes: Sizes, old: Sizes | None) -> str:
    summary = sizes[count].get(row.key)
    if summary is None:
        return "-"
    text = _numbers(tuple(summary[part] for part in row.parts))
    before = (old or {}).get(count, {}).get(row.key)
    if before is None or not before[row.parts[0]]:
        return text
    return f"{text} (x{summary[row.parts[0]] / before[row.parts[0]]:.2f})"


def _number(figure: float) -> str:
    """Three digits that count."""
    if figure >= 100:
        return f"{figure:,.0f}"
    return f"{figure:.3f}" if figure < 1 else f"{figure:.3g}"


def _aligned(body: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(len(line[i]) for line in body) for i in range(len(body[0]))]
    rule = ["-" * widths[0]] + ["-" * (width - 1) + ":" for width in widths[1:]]
    return [
        "| " + " | ".join([line[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in
        zip(line[1:], widths[1:], strict=True))]) + " |" for line in [body[0], rule, *body[1:]]
    ]  # fmt: skip
