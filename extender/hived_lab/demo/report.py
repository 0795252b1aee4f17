"""An experiment on a terminal of 100 columns: as a story with pictures, or as a row for each expectation.

The picture has one row per moment that changed and one character per GPU: the letter of the job that holds it, in lower
case if it may be taken away at any time; `.` free, `x` on a bad node, `~` reserved.
"""

import re
import textwrap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import click

from hived_extender.api.cells import Cell
from hived_extender.api.pictures import BAD, FREE, RESERVED
from hived_lab.demo.experiment import Loaded
from hived_lab.demo.observer import VERBS, WAITING, Moment, Observer, PodHistory

WIDTH = 100
INDENT = 11
NEWS_WIDTH = 40
"""At least so much room for news, even if a cluster of many nodes takes more than a row."""

LEGEND = "A, B, C: the job on a GPU; lower case: may be taken away; . free   x bad node   ~ reserved"
COLORS = ("cyan", "magenta", "yellow", "blue", "green")
_COUNT_OF_NODES = re.compile(r"^\d+/\d+ nodes are available: ")

SETTLED_S = 0.25
"""A pod that waits for a shorter time is only on its way, and no news."""


@dataclass(frozen=True, slots=True)
class Check:
    """An expectation and its outcome.

    `found` lists the differences, empty if it held; `seconds` is how long that took, and `hold_s` for how long it was
    watched after that. `seen` is the state at the end.
    """

    expect: str
    found: tuple[str, ...]
    seconds: float
    hold_s: float = 0.0
    seen: str = ""


@dataclass(frozen=True, slots=True)
class Result:
    """An experiment's outcome; `error` is the failure that ended it early, if any."""

    name: str
    title: str
    checks: tuple[Check, ...]
    error: str
    seconds: float

    @property
    def is_passed(self) -> bool:
        """True if every step was done and every expectation held."""
        return not self.error and all(not check.found for check in self.checks)

    def as_json(self) -> dict[str, object]:
        """The outcome for scripts."""
        return {
            "name": self.name,
            "title": self.title,
            "passed": self.is_passed,
            "error": self.error,
            "seconds": round(self.seconds, 2),
            "expectations": [
                {
                    "expect": check.expect,
                    "passed": not check.found,
                    "found": list(check.found),
                    "seen": check.seen,
                    "seconds": round(check.seconds, 2),
                }
                for check in self.checks
            ],
        }


class Report:
    """Writes the story of each experiment line by line as it happens."""

    def __init__(self, echo: Callable[[str], object]) -> None:
        self._echo = echo
        self._shown_pods: dict[str, str] = {}
        self._shown_bad: set[str] = set()
        self._shown_picture = ""
        self._is_titled = False
        self._is_after_verdict = False

    def legend(self) -> None:
        """Explain the pictures, once."""
        self._echo(click.style(LEGEND, dim=True))

    def begin(self, loaded: Loaded, number: int, count: int) -> None:
        """Announce an experiment."""
        self._shown_pods.clear()
        self._shown_bad.clear()
        self._shown_picture = ""
        self._is_titled = False
        self._is_after_verdict = False
        heading = f"{number}/{count}  {loaded.experiment.title} "
        self._echo("\n" + click.style(heading + "─" * (WIDTH - len(heading)), bold=True))
        self._echo(textwrap.fill(" ".join(loaded.experiment.shows.split()), WIDTH))
        self._echo("")

    def act(self, word: str, text: str) -> None:
        """Say what is done to the cluster."""
        if self._is_after_verdict:
            self._echo("")
            self._is_after_verdict = False
        self._block(click.style(word, bold=True), word, text)

    def expect(self, expect: str, because: str = "") -> None:
        """Say what should happen now, and why."""
        self.act("expect", expect)
        if because:
            self._block(click.style("because", dim=True), "because", because)

    def moment(self, moment: Moment, observer: Observer) -> None:
        """Draw the cells, unless nothing changed since the last row."""
        picture = "  ".join(
            _node_picture(node, moment, observer).ljust(_node_width(node)) for node in moment.nodes
        ).rstrip()
        news = "; ".join([*self._node_news(moment), *self._pod_news(moment, observer)])
        if picture == self._shown_picture and not news:
            return
        if not self._is_titled:
            self._is_titled = True
            names = "  ".join(node.name.ljust(_node_width(node)) for node in moment.nodes)
            self._echo(click.style(" " * INDENT + names.rstrip(), dim=True))
        self._shown_picture = picture
        width = sum(_node_width(node) + 2 for node in moment.nodes)
        padding = " " * max(0, width - len(picture))
        time = click.style(f"{moment.at_s:7.1f} s  ", dim=True)
        lines = textwrap.wrap(news, max(NEWS_WIDTH, WIDTH - INDENT - width)) or [""]
        self._echo((time + _colored(picture) + padding + lines[0]).rstrip())
        for line in lines[1:]:
            self._echo(" " * (INDENT + width) + line)

    def verdict(self, check: Check) -> None:
        """Say how an expectation came out."""
        if not check.found:
            held = f", and still so {check.hold_s:.1f} s later" if check.hold_s else ""
            self._block(click.style("pass", fg="green", bold=True), "pass", f"after {check.seconds:.1f} s{held}")
        else:
            self._block(click.style("FAIL", fg="red", bold=True), "FAIL", "; ".join(check.found))
        self._is_after_verdict = True

    def error(self, text: str) -> None:
        """Say why an experiment could not go on."""
        self._block(click.style("ERROR", fg="red", bold=True), "ERROR", text)

    def summary(self, results: Sequence[Result], seconds: float) -> None:
        """List how every experiment came out."""
        self._echo("\n" + click.style("─" * WIDTH, bold=True))
        width = max(len(result.title) for result in results)
        for result in results:
            word = click.style("pass", fg="green") if result.is_passed else click.style("FAIL", fg="red", bold=True)
            held = sum(not check.found for check in result.checks)
            checks = f"{held} of {len(result.checks)} expectations held"
            self._echo(f"  {word}   {result.title:<{width}}   {checks}   {result.seconds:4.1f} s")
        self._echo("\n" + verdict_of(results, seconds, "experiments"))

    def _block(self, styled: str, word: str, text: str) -> None:
        lines = textwrap.wrap(text, WIDTH - INDENT) or [""]
        padding = " " * (INDENT - 2 - len(word))
        self._echo(f"  {styled}{padding}{lines[0]}")
        for line in lines[1:]:
            self._echo(" " * INDENT + line)

    def _node_news(self, moment: Moment) -> Iterator[str]:
        """Yield a line for each node that turned bad or healthy since the last row."""
        bad = {node.name for node in moment.nodes if node.is_bad}
        for name in sorted(bad ^ self._shown_bad):
            yield f"{name} is {'bad' if name in bad else 'healthy again'}"
        self._shown_bad = bad

    def _pod_news(self, moment: Moment, observer: Observer) -> Iterator[str]:
        """The changes of pods since the last row: `A runs`, `B0 B1 are done`, `B2 waits: insufficient capacity ...`."""
        news: dict[tuple[str, str, str], list[str]] = {}
        for pod in observer.pods:
            is_settled = pod.state != WAITING or (pod.reason and moment.at_s - pod.reason_since_s >= SETTLED_S)
            if pod.state in VERBS and is_settled and self._shown_pods.get(pod.uid) != pod.state:
                self._shown_pods[pod.uid] = pod.state
                reason = _COUNT_OF_NODES.sub("", pod.reason).rstrip(".") if pod.state == WAITING else ""
                news.setdefault((pod.job, pod.state, reason), []).append(pod.name)
        for (job, state, reason), names in news.items():
            yield self._sentence(job, state, names, observer) + (f": {reason}" if reason else "")

    @staticmethod
    def _sentence(job: str, state: str, names: list[str], observer: Observer) -> str:
        one, several = VERBS[state]
        all_names = [pod.name for pod in observer.job_pods(job)]
        if len(names) == len(all_names):
            return f"{job} {one}"
        pods = " ".join(f"{job}{all_names.index(name)}" for name in names)
        return f"{pods} {one if len(names) == 1 else several}"


def verdict_of(results: Sequence[Result], seconds: float, what: str) -> str:
    """The last line of a report."""
    passed = sum(result.is_passed for result in results)
    text = f"{passed} of {len(results)} {what} passed in {seconds:.0f} s, the start of all services included"
    return click.style(text, bold=True, fg="green" if passed == len(results) else "red")


def _node_width(node: Cell) -> int:
    return max(len(node.name), len(node.leaves()))


def _node_picture(node: Cell, moment: Moment, observer: Observer) -> str:
    return "".join(_leaf_sign(node, leaf, moment, observer.pods) for leaf in node.leaves())


def _leaf_sign(node: Cell, leaf: Cell, moment: Moment, pods: Sequence[PodHistory]) -> str:
    if leaf.cell_state in ("Reserving", "Reserved"):
        return RESERVED
    for name, group in moment.groups.items():
        if int(leaf.name) in (group.status.physical_placement or {}).get(node.name, ()):
            job = next((pod.job for pod in pods if pod.group == name), "?")
            return job if group.status.virtual_placement else job.lower()
    return BAD if leaf.is_bad else FREE


def _colored(picture: str) -> str:
    return "".join(_colored_sign(sign) for sign in picture)


def _colored_sign(sign: str) -> str:
    if sign.isalpha() and sign != BAD:
        return click.style(sign, fg=COLORS[(ord(sign.upper()) - ord("A")) % len(COLORS)], bold=sign.isupper())
    return click.style(sign, fg="red") if sign == BAD else sign


GAP = "  "
WIDTHS = (18, 33, 39, 4)


class TableReport(Report):
    """One row per expectation: example, expected, seen, ok. Nothing else is printed."""

    def __init__(self, echo: Callable[[str], object]) -> None:
        super().__init__(lambda _: None)
        self._write = echo
        self._name = ""

    def legend(self) -> None:
        """The headers."""
        self._row("EXAMPLE", "EXPECTED", "SEEN", "OK", bold=True)

    def begin(self, loaded: Loaded, number: int, count: int) -> None:
        """Name an experiment in its first row."""
        self._name = loaded.name

    def verdict(self, check: Check) -> None:
        """A row."""
        seen = "; ".join(check.found) if check.found else check.seen
        self._row(self._name, check.expect, seen, "FAIL" if check.found else "ok", fg="red" if check.found else "green")
        self._name = ""

    def error(self, text: str) -> None:
        """A row for what kept an experiment from going on."""
        self._row(self._name, "every step can be done", text, "FAIL", fg="red")
        self._name = ""

    def summary(self, results: Sequence[Result], seconds: float) -> None:
        """Print how many passed."""
        self._write("\n" + verdict_of(results, seconds, "examples"))

    def _row(self, name: str, expect: str, seen: str, word: str, fg: str | None = None, bold: bool = False) -> None:
        wrapped = [textwrap.wrap(text, width) for text, width in zip((name, expect, seen, word), WIDTHS, strict=True)]
        for line in range(max(map(len, wrapped))):
            *cells, last = [cell[line] if line < len(cell) else "" for cell in wrapped]
            padded = [cell.ljust(width) for cell, width in zip(cells, WIDTHS, strict=False)]
            text = GAP.join([*padded, click.style(last, fg=fg)] if last else padded).rstrip()
            self._write(click.style(text, bold=True) if bold else text)
