"""The figures of a run: the rows of the table with their limits, percentiles, and ratios to figures of another run.

Timings decide no test: a limit that is missed is named, nothing fails.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

Summary = dict[str, float]
"""Of samples: p50, p99, max in ms, and their count. Of a single figure: value, in the unit of its row."""

Sizes = Mapping[int, Mapping[str, Summary]]
"""Node count -> key of a row -> figures."""

Limits = dict[int, tuple[float, ...]]
"""Node count -> one number for each part of a row."""

ALL_SIZES = (128, 1024, 4096, 16384)
MACHINE_KEYS = ("cpu", "cores")
"""Of what `describe_machine` says: what both runs have to have in common."""


class FileError(Exception):
    """A file that cannot be compared with."""


@dataclass(slots=True)
class Figures:
    """Samples in nanoseconds by row, and single values in the unit of their row."""

    samples: dict[str, list[int]] = field(default_factory=dict)
    values: dict[str, float] = field(default_factory=dict)

    def add(self, other: "Figures") -> None:
        """Take over the rows of another measurement."""
        self.samples |= other.samples
        self.values |= other.values

    def summaries(self) -> dict[str, Summary]:
        """By row."""
        singles = {key: {"value": value} for key, value in self.values.items()}
        return singles | {key: summarise(samples) for key, samples in self.samples.items()}


def summarise(samples: Sequence[int]) -> Summary:
    """Nearest-rank percentiles of at least one sample, in ms."""
    ordered = sorted(samples)
    ranks = {"p50": 0.50, "p99": 0.99, "max": 1.0}
    found = {name: ordered[math.ceil(rank * len(ordered)) - 1] / 1e6 for name, rank in ranks.items()}
    return found | {"count": len(ordered)}


def growth(figures: Mapping[int, float]) -> float | None:
    """The exponent e in figure ~ nodes ** e, least squares on logarithms; None for less than two sizes."""
    points = [(math.log(nodes), math.log(figure)) for nodes, figure in figures.items() if figure > 0]
    if len(points) < 2:
        return None
    mean_x, mean_y = (sum(values) / len(points) for values in zip(*points, strict=True))
    spread = sum((x - mean_x) ** 2 for x, _ in points)
    return float(sum((x - mean_x) * (y - mean_y) for x, y in points) / spread)


@dataclass(frozen=True, slots=True)
class Row:
    """A line of the table; `parts` are the figures that it shows. The first decides growth and ratios."""

    key: str
    title: str
    parts: tuple[str, ...] = ("p50", "p99")
    limits: Limits = field(default_factory=dict)

    def figures(self, sizes: Sizes, count: int) -> tuple[float, ...]:
        """One for each part; empty if this size has none."""
        summary = sizes.get(count, {}).get(self.key)
        return () if summary is None else tuple(summary[part] for part in self.parts)


def _row(key: str, title: str, *limits: float | tuple[float, ...] | None, parts: str = "p50 p99") -> Row:
    """A row, with a limit for each of the four sizes, None for none; a single number is of the first part."""
    known = {count: limit for count, limit in zip(ALL_SIZES, limits, strict=False) if limit is not None}
    tuples = {count: limit if isinstance(limit, tuple) else (limit,) for count, limit in known.items()}
    return Row(key, title, tuple(parts.split()), tuples)


def _value(key: str, title: str, *limits: float | None) -> Row:
    return _row(key, title, *limits, parts="value")


SECTIONS: tuple[tuple[str, tuple[Row, ...]], ...] = (
    ("Start, s", (
        _value("process/total", "fresh process until it answers, all nodes added", 1.0, 1.2, 1.6, 3),
        _value("process/cpu", "  of that on a processor", 0.6, None, None, 1.2),
        _value("process/first", "first start after an installation, embedded cluster and all, until filter answers", 3),
        _value("process/compile", "compiling all kernels, alone"),
        _value("start/total", "core alone: specification, new_state, all nodes"),
        _value("replay/total", "replay of all bound pods, every GPU used"),
        _value("web/recovery", "  the same in the service, from annotations", None, None, None, 3),
    )),
    ("Schedule + allocate a pod, mixed load until every GPU is used, ms p50/p99", (
        _row("load/any", "any pod", (0.10, 0.5), (0.10, 0.7), (0.12, 1), (0.15, 1.0)),
        _row("load/any, annotated", "  with a spec in JSON read and all annotations written", 0.10),
        _value("load/YAML times JSON", "  reading a spec in YAML, times one in JSON", 2, 2, 2, 2),
        _row("load/1x1", "1-GPU pod", 0.08, 0.08, 0.09, 0.10),
        _row("load/1x8", "8-GPU pod"),
        _row("load/first of 8x8", "first pod of 8x8"),
        _row("load/first of 32x8", "first pod of 32x8"),
        _row("load/first of 128x8", "first pod of 128x8"),
    )),
    ("Half full, one job that comes and goes, ms p50/p99", (
        _row("half/1x1", "1-GPU pod alone", 0.08, 0.08, 0.09, 0.10),
        _row("half/1x8", "8-GPU pod alone"),
        _row("half/first of 8x8", "first pod of 8x8"),
        _row("half/first of 32x8", "first pod of 32x8"),
        _row("half/first of 128x8", "first pod of 128x8", None, 8, 12, 20),
        _row("half/later of 128x8", "later pod of 128x8", None, 0.1, 0.1, 0.1),
    )),
    ("Nodes, ms p50/p99", tuple(
        _row(f"{moment}/node {way}", f"node {way}, {moment} {'full' if moment == 'half' else ''}", *[0.02] * 4)
        for moment in ("half", "full") for way in ("down", "up")
    )),
    ("Half of the nodes refused, 128x8 and 8 sizes of pods (at 128 nodes an eighth of it), ms p50/p99", (
        _row("refused/nodes, suggested", "gang of whole nodes starts, VC of nodes, suggested nodes"),
        _row("refused/nodes, offered", "  with an offer"),
        _row("refused/racks, suggested", "the same, VC of racks, suggested nodes"),
        _row("refused/racks, offered", "  with an offer"),
        _row("refused/few, suggested", "the same waits, suggested nodes"),
        _row("refused/few, offered", "  with an offer"),
        _row("refused/few, again", "  asked again, with nothing changed"),
        _row("refused/mixed fits, suggested", "gang of 8 sizes starts, suggested nodes"),
        _row("refused/mixed fits, offered", "  with an offer"),
        _row("refused/mixed waits, suggested", "gang of 8 sizes waits, suggested nodes"),
        _row("refused/mixed waits, offered", "  with an offer"),
    )),
    ("Full cluster, ms p50/p99", (
        _row("claim/preempting pod", "1- to 8-GPU pod preempts: filter, preempt, filter, bind"),
        _row("claim/preempting first of 8x8", "first pod of 8x8 preempts"),
        _row("full/victims for 1x1", "who must leave a full VC for a 1-GPU pod"),
        _row("full/victims for 128x8", "who must leave a full VC for 128x8"),
        _row("full/wait 1x1", "1-GPU pod must wait"),
        _row("full/wait 128x8", "128x8 must wait"),
        _row("full/delete", "delete a pod"),
        _row("full/delete last of 128x8", "delete the last pod of 128x8"),
    )),
    ("Explaining a wait beyond its refusal, every VC full; copies of the state; ms p50/p99", (
        *(_row(f"explain/{kind}{way}", f"{kind}{title}", *[5] * 4)
          for way, title in (("", ", every node offered"), (", offered", ", half of the nodes refused"),
                             (", offered, bad", ", half refused, a hundredth of the nodes is bad"))
          for kind in ("1x1", "1x8", "128x8")),
        _value("explain/first", "the first question, which builds the cluster without anybody"),
        _row("copy/new", "copy of the state, new memory", *[10] * 4),
        _row("copy/again", "  memory of an earlier copy", *[10] * 4),
    )),
    ("HTTP filter of a 1-GPU pod that binds, half full, ms p50/p99", (
        _row("web/filter", "node list as in the call before", (0.30, 1), (0.32, 1), (0.36, 1.5), (0.50, 2)),
        _value("web/filter cpu", "  of that on a processor, mean"),
        _row("web/filter other list", "another node list", None, None, None, 1.0),
        _row("web/empty", "the same server answering an empty 200"),
        _value("web/filter times empty", "  the first row as a multiple of that", 3),
        _row("web/crowded", "32 connections that open at once", None, 25, parts="p99 p50"),
        _row("web/crowded first", "  their first answers, with opening"),
        _row("web/filter beside status", "while all cells are read in a loop", 5, 8, 12, (15, 8), parts="max p99"),
        _row("web/status", "  reading all cells", None, None, None, 1500, parts="p50 max"),
        _value("web/statuses", "  how often they were read meanwhile"),
    )),
    ("HTTP filter while 1,000 jobs wait for a full virtual cluster, ms p50/p99", (
        _row("watched/filter alone", "nobody looks"),
        _row("watched/filter", "twenty pages are open"),
        _value("watched/filter times alone", "  p99 times the first row's, medians of rounds", None, None, None, 1.1),
        _row("watched/page", "  what pages ask for again"),
        _row("watched/why", "why a job waits, what helps, and when it starts", None, None, None, 300, parts="p50 max"),
    )),
    ("Another configuration comes into force, four fifths full, ms", tuple(
        row for gpus in ("8-GPU", "1-GPU") for row in (
            _row(f"switch/{gpus} filter", f"longest filter call beside it, {gpus} pods", 50, 50, parts="max p50"),
            _row(f"switch/{gpus} held", "  requests held back for the switch itself", parts="p50 max"),
            _row(f"switch/{gpus} change", "  from the plan to the end", parts="p50 max"),
            _value(f"switch/{gpus} pods", "  pods"),
        )
    )),
    ("Resident memory, MB", (
        _value("memory/ready", "core, ready"),
        _value("memory/full", "core, every GPU used"),
        _value("web/memory ready", "service, ready", 85),
        _value("web/memory full", "service, every GPU used", 200, 220, 280, 280),
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


def missed(sizes: Sizes) -> Iterator[tuple[Row, int]]:
    """The rows of which a figure is above its limit, with the size."""
    for row in ROWS.values():
        for count in sorted(row.limits.keys() & sizes.keys()):
            if any(a > b for a, b in zip(row.figures(sizes, count), row.limits[count], strict=False)):
                yield row, count


def unmeasured(sizes: Sizes) -> Iterator[tuple[Row, int]]:
    """The rows that have a limit and no figure, with the size."""
    for row in ROWS.values():
        for count in sorted(row.limits.keys() & sizes.keys()):
            if not row.figures(sizes, count):
                yield row, count


def table(sizes: Sizes, other: Sizes | None = None) -> str:
    """The figures in Markdown, a column for each size: limits in brackets, ratios to another run's behind an x.

    Under the tables: the limits that are missed, and those without a figure.
    """
    counts, lines = sorted(sizes), list[str]()
    for title, rows in SECTIONS:
        shown = [row for row in rows if any(row.key in sizes[count] for count in counts)]
        if shown:
            body = [[f"**{title}**", *(f"{count:,}" for count in counts), "growth"]]
            body += [[row.title, *(_cell(row, count, sizes, other) for count in counts), _exponent(row, sizes)]
                     for row in shown]  # fmt: skip
            lines += [*_aligned(body), ""]
    for row, count in missed(sizes):
        reached, limit = _numbers(row.figures(sizes, count)), _numbers(row.limits[count])
        lines.append(f"missed: {row.title.strip()}, {count:,} nodes: {reached}, limit {limit}")
    lines += [f"not measured: {row.title.strip()}, {count:,} nodes" for row, count in unmeasured(sizes)]
    return "\n".join(lines)


def _cell(row: Row, count: int, sizes: Sizes, other: Sizes | None) -> str:
    figures = row.figures(sizes, count)
    if not figures:
        return "-"
    limit = f" ({_numbers(row.limits[count])})" if count in row.limits else ""
    before = row.figures(other or {}, count)
    ratio = f" x{figures[0] / before[0]:.2f}" if before and before[0] else ""
    return f"{_numbers(figures)}{limit}{ratio}"


def _exponent(row: Row, sizes: Sizes) -> str:
    found = {count: row.figures(sizes, count) for count in sizes}
    exponent = growth({count: figures[0] for count, figures in found.items() if figures})
    return "" if exponent is None else f"{exponent:.2f}"


def _numbers(figures: tuple[float, ...]) -> str:
    return "/".join(map(_number, figures))


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


class Other(msgspec.Struct):
    """Figures of another run or scheduler: by size and row. `machine` has its commit too, if hived wrote the file."""

    machine: dict[str, Any]
    nodes: dict[int, dict[str, Summary]]
    name: str = ""
    clock: str = "wall"


def read_other(path: Path, machine: Mapping[str, Any]) -> Other:
    """A file that `--json` wrote, or one by hand, of figures measured on `machine`. Raises FileError."""
    try:
        found = msgspec.json.decode(path.read_bytes(), type=Other)
    except (OSError, msgspec.DecodeError) as error:
        raise FileError(f"{path}: {error}") from None
    for key in MACHINE_KEYS:
        if found.machine.get(key) != machine[key]:
            there = found.machine.get(key)
            raise FileError(f"{path}: measured on another machine: its {key} is {there!r}, here it is {machine[key]!r}")
    for count, rows in found.nodes.items():
        for key, summary in rows.items():
            if key in ROWS and not {*ROWS[key].parts} <= summary.keys():
                expected, given = " and ".join(ROWS[key].parts), ", ".join(summary) or "nothing"
                raise FileError(f"{path}: nodes[{count}][{key!r}]: expected {expected}, given {given}")
    return found
