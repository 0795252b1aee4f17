"""`report.html`: everything about some simulations on one page, without scripts and anything from outside."""

import base64
import hashlib
from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path
from typing import NamedTuple

from hived_simulator.report.figures import MAX_LINES, Figure, Pair, Table, figures_of, pairs_of, summary_table
from hived_simulator.report.plots import MINUTE_S, short, without
from hived_simulator.report.reading import Result, Simulation, read_simulations
from hived_simulator.report.svg import alone, swatch
from hived_simulator.writing import write

_DARK = (
    "--ground:#16181c;--ink:#e6e6e6;--soft:#a8adb5;--line:#3b4048;--box:#1e2126;"
    "--c0:#4da3ff;--c1:#ff8a4c;--c2:#3ec99b;--c3:#e58fd0;--c4:#d6b13c;--c5:#86c9ff;--c6:#a995ff;--c7:#a0a0a0"
)
STYLE = (
    ":root{color-scheme:light dark;--ground:#fff;--ink:#1c1e21;--soft:#5a6068;--line:#d8dbe0;--box:#f6f7f8;"
    "--c0:#0072b2;--c1:#d55e00;--c2:#00855f;--c3:#b5539a;--c4:#8a6d00;--c5:#3a9bd6;--c6:#6b4fbb;--c7:#707070}"
    "@media(prefers-color-scheme:dark){:root{" + _DARK + "}}"
    "body{background:var(--ground);color:var(--ink);font:16px/1.5 system-ui,sans-serif;margin:0 auto;max-width:76rem;"
    "padding:1rem}h1{font-size:1.6rem;line-height:1.25;margin:.5rem 0}h2{font-size:1.25rem;margin:2.5rem 0 .25rem}"
    "p{max-width:46rem;margin:.4rem 0}.lead{font-size:1.15rem}.soft,caption,figcaption small{color:var(--soft)}"
    "nav{font-size:.9rem;margin:1rem 0}nav a{margin-right:1rem;white-space:nowrap}a{color:var(--c0)}"
    ".plots{display:grid;gap:1rem 1.5rem;grid-template-columns:repeat(auto-fit,minmax(min(100%,23rem),1fr))}"
    "figure{margin:.5rem 0;min-width:0;max-width:36rem}figcaption{font-weight:600;font-size:.95rem;margin-bottom:.3rem}"
    "figure svg{display:block;width:100%;height:auto}.ink{fill:var(--ink)}.grid{stroke:var(--line)}"
    ".legend{list-style:none;padding:0;margin:.5rem 0;display:flex;flex-wrap:wrap;gap:.2rem 1.2rem;font-size:.9rem}"
    ".legend svg{vertical-align:-1px;margin-right:.4rem}"
    "details{margin:.6rem 0}summary{cursor:pointer;color:var(--c0);font-size:.95rem}"
    ".wide{overflow-x:auto;max-width:100%}table{border-collapse:collapse;font-size:.88rem;margin:.4rem 0}"
    "th,td{padding:.25rem .7rem .25rem 0;text-align:left;border-bottom:1px solid var(--line);vertical-align:top}"
    "th{color:var(--soft);font-weight:600}.n{text-align:right;font-variant-numeric:tabular-nums}"
    "td:first-child,td.n{white-space:nowrap}th{vertical-align:bottom}"
    "dl{display:grid;grid-template-columns:max-content 1fr;gap:.2rem 1rem;font-size:.9rem}"
    "dt{color:var(--soft)}dd{margin:0;overflow-wrap:anywhere}"
    + "".join(f".s{n}{{stroke:var(--c{n})}}.f{n}{{fill:var(--c{n})}}" for n in range(8))
    + "@media print{:root{color-scheme:light}body{font-size:10pt;max-width:none;padding:0}"
    "nav,details:not([open]){display:none}"
    ".wide{overflow:visible}table{font-size:8pt}th,td{padding-right:.5rem}"
    "figure,tr{break-inside:avoid}h2{break-after:avoid}.plots{grid-template-columns:1fr 1fr}a{color:inherit}}"
)


class Page(NamedTuple):
    """Everything on a page, in order. `inputs` are (name, words)."""

    title: str
    leads: Sequence[str]
    summary: Table
    figures: Sequence[Figure]
    pairs: Sequence[Pair]
    inputs: Sequence[tuple[str, str]]
    notes: Sequence[str]


def html(page: Page) -> str:
    """The page as one file."""
    digest = base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    return "".join(
        (
            '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{escape(page.title)}</title><style>{STYLE}</style></head>\n<body>\n",
            *_body(page),
            "</body></html>\n",
        )
    )


def _body(page: Page) -> Iterator[str]:
    yield f"<header><h1>{escape(page.title)}</h1>\n"
    for lead in page.leads:
        yield f'<p class="lead">{escape(lead)}</p>\n'
    names = [figure.heading for figure in page.figures] + ["Differences"] * bool(page.pairs) + ["Inputs"]
    yield "</header>\n<nav>" + "".join(f'<a href="#{anchor(name)}">{escape(name)}</a> ' for name in names) + "</nav>\n"
    yield "<main>\n" + _table(page.summary)
    for figure in page.figures:
        yield from _figure(figure)
    if page.pairs:
        yield '<section id="differences"><h2>Differences</h2>\n'
        yield "<p>Figures of two policies. The interval is that of the mean over draws of durations.</p>\n"
        for number, pair in enumerate(page.pairs):
            yield _details(pair.heading, pair.table, is_open=not number)
        yield "</section>\n"
    yield '<section id="inputs"><h2>Inputs</h2>\n<dl>'
    yield "".join(f"<dt>{escape(name)}</dt><dd>{escape(words)}</dd>" for name, words in page.inputs)
    yield "</dl>\n" + "".join(f'<p class="soft">{escape(note)}</p>\n' for note in page.notes) + "</section>\n</main>\n"


def _figure(figure: Figure) -> Iterator[str]:
    yield f'<section id="{anchor(figure.heading)}"><h2>{escape(figure.heading)}</h2>\n<p>{escape(figure.words)}</p>\n'
    if figure.legend:
        signs = "".join(f"<li>{swatch(stroke, figure.is_area)}{escape(words)}</li>" for words, stroke in figure.legend)
        yield f'<ul class="legend">{signs}</ul>\n'
    yield '<div class="plots">\n'
    for picture in figure.pictures:
        yield f"<figure><figcaption>{escape(picture.caption)}</figcaption>{picture.svg}</figure>\n"
    yield "</div>\n" + _details(f"{figure.heading} as a table", figure.table) + "</section>\n"


def _details(heading: str, table: Table, *, is_open: bool = False) -> str:
    opened = " open" if is_open else ""
    return f"<details{opened}><summary>{escape(heading)}</summary>{_table(table)}</details>\n"


def _table(table: Table) -> str:
    is_number = [name.startswith(">") for name in table.headers]
    heads = "".join(
        f'<th scope="col"{_aligned(right)}>{escape(name.removeprefix(">"))}</th>'
        for name, right in zip(table.headers, is_number, strict=True)
    )
    rows = "".join(
        "<tr>"
        + "".join(f"<td{_aligned(right)}>{escape(cell)}</td>" for cell, right in zip(row, is_number, strict=True))
        + "</tr>\n"
        for row in table.rows
    )
    note = f'<p class="soft">{escape(table.note)}</p>' if table.note else ""
    return f'<div class="wide"><table><thead><tr>{heads}</tr></thead>\n<tbody>{rows}</tbody></table></div>{note}\n'


def _aligned(is_right: bool) -> str:
    return ' class="n"' if is_right else ""


def anchor(heading: str) -> str:
    """The name of a figure in links and files."""
    return heading.lower().replace(" ", "-")


NAME = "report.html"
_WORDS = {
    "tenants": "tenants {}", "over_quota": "over quota {}", "checkpoint_s": "checkpoints each {} s",
    "grace_s": "grace of {} s", "has_backfill": "backfill", "is_lazy": "lazy preemption",
    "opportunistic_share": "opportunistic share {}", "seed": "seed {}", "draws": "{} draws of durations",
    "every_s": "a row of series each {} s", "what": "changes {}",
}  # fmt: skip


def write_report(folders: Sequence[Path], target: Path) -> None:
    """Write the page of these folders' results. The same files give the same bytes.

    UserError names a file that is missing or damaged; nothing is written then. Cost O(jobs).
    """
    write(target, report(folders))


def write_pictures(folders: Sequence[Path], target: Path) -> list[Path]:
    """Write each plot as a file of its own, with its legend, for other pages; returns their paths.

    UserError names a file that is missing or damaged; nothing is written then. Cost O(jobs).
    """
    results = [result for each in read_simulations(folders) for result in each.results]
    written = []
    for figure in figures_of(results):
        for number, picture in enumerate(figure.pictures, 1):
            more = f"-{number}" if len(figure.pictures) > 1 else ""
            written.append(target / f"{anchor(figure.heading)}{more}.svg")
            write(written[-1], alone(picture.svg, figure.legend, figure.is_area))
    return written


def report(folders: Sequence[Path]) -> str:
    """The page as text; see `write_report`."""
    simulations = read_simulations(folders)
    results = [result for each in simulations for result in each.results]
    names = list(dict.fromkeys(each.run.trace.name or each.run.trace.file.file for each in simulations))
    return html(
        Page(
            title=f"Simulation of {', '.join(names)}",
            leads=[_lead(simulations, results), *_guarantees(results)],
            summary=summary_table(results),
            figures=figures_of(results),
            pairs=pairs_of(simulations),
            inputs=[line for each in simulations for line in _inputs(each, len(simulations) > 1)],
            notes=_notes(simulations, results),
        )
    )


def _lead(simulations: Sequence[Simulation], results: Sequence[Result]) -> str:
    run, first = simulations[0].run, results[0]
    leaves = max(result.total.leaf_cells for result in results)
    return (
        f"{short(run.trace.jobs)} jobs of {len(first.rows) - 1} virtual clusters on {short(leaves)} GPUs,"
        f" under {len(results)} {'policy' if len(results) == 1 else 'policies'}."
    )


def _guarantees(results: Sequence[Result]) -> list[str]:
    """One sentence for each kind of answer to the question whether sharing made jobs later."""
    never = [each.label for each in results if each.total.later is not None and not _hurt(each)]
    some = [each for each in results if each.total.later is not None and _hurt(each)]
    found = []
    if never:
        found.append(f"No guaranteed job starts later than in its private cluster: {', '.join(never)}.")
    if some:
        told = ", ".join(f"{each.label} {short(_hurt(each))}" for each in some)
        found.append(f"Guaranteed jobs that start later than in their private cluster, or not at all: {told}.")
    means = ", ".join(map(_mean, results))
    return [*found, f"Mean delay in minutes: {means}."]


def _mean(result: Result) -> str:
    delay = result.total.delay
    return f"{result.label} {short(round(delay.mean / MINUTE_S, 1))}{without(delay.never)}"


def _hurt(result: Result) -> int:
    later = result.total.later
    return 0 if later is None else later.count


def _inputs(simulation: Simulation, has_several: bool) -> list[tuple[str, str]]:
    run = simulation.run
    files = dict.fromkeys(
        (each.policy.configuration.file, each.policy.configuration.sha256) for each in simulation.results
    )
    found = [("results", simulation.folder.resolve().name)] if has_several else []
    found += [("configuration", f"{file}, SHA-256 {digest}") for file, digest in files]
    found.append(("trace", f"{run.trace.file.file}, SHA-256 {run.trace.file.sha256}"))
    found += [("", note) for note in run.trace.notes]
    told = [words.format(_value(run.options[key])) for key, words in _WORDS.items() if run.options.get(key)]
    found.append(("options", "; ".join(told) or "none"))
    return [*found, ("made by", f"hived {run.version}")]


def _value(value: object) -> str:
    if isinstance(value, bool):
        return "yes"
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return short(float(value)) if isinstance(value, int | float) else str(value)


def _notes(simulations: Sequence[Simulation], results: Sequence[Result]) -> list[str]:
    notes = []
    if len({each.run.trace.file.sha256 for each in simulations}) > 1:
        notes.append(
            "These simulations ran different traces: their figures stand beside each other, and do not compare."
        )
    if len(results) > MAX_LINES:
        notes.append(f"Lines are of the first {MAX_LINES} policies; tables have all.")
    return notes
