"""`report.html`: everything about some simulations on one page, without scripts and anything from outside."""

import base64
import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from jinja2 import Environment

from hived_config.words import counted
from hived_simulator.report.figures import MAX_LINES, Figure, Pair, Table, figures_of, pairs_of, summary_table
from hived_simulator.report.plots import MINUTE_S, short, without
from hived_simulator.report.reading import Result, Simulation, read_simulations
from hived_simulator.report.svg import alone, swatch
from hived_simulator.writing import write


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
    folder = Path(__file__).parent
    style = (folder / "style.css").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    template = Environment(autoescape=True).from_string((folder / "page.html").read_text(encoding="utf-8"))
    names = [figure.heading for figure in page.figures] + ["Differences"] * bool(page.pairs) + ["Inputs"]
    return template.render(page=page, names=names, style=style, digest=digest, anchor=anchor, swatch=swatch)


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
        f"{counted(run.trace.jobs, 'job')} of {counted(len(first.rows) - 1, 'virtual cluster')} on "
        f"{counted(leaves, 'GPU')},"
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
    told = [words.format(_value(value)) for key, words in _WORDS.items() if (value := getattr(run.options, key))]
    found.append(("options", "; ".join(told) or "none"))
    return [*found, ("made by", f"hived {run.version}")]


def _value(value: object) -> str:
    if isinstance(value, bool):
        return "yes"
    if isinstance(value, tuple):
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
