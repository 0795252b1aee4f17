"""Which seeds run, and the table at the end."""

import os
import statistics
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from tests.e2e.failures.working_cluster import Measured

SEED_COUNT = int(os.environ.get("HIVED_E2E_SEEDS", "1"))
"""How often each failure is repeated."""


@dataclass
class Results:
    """The measurements of runs that went well, by version and failure, and how long each took."""

    rows: dict[tuple[str, str], list[tuple[Measured, float]]] = field(default_factory=dict)

    def add(self, version: str, kind: str, measured: Measured, duration_s: float) -> None:
        """Another run has gone well."""
        self.rows.setdefault((version, kind), []).append((measured, duration_s))

    def table(self) -> Iterator[str]:
        """Lines for people: seconds from a failure until a replica leads, and until a pod that could run is bound."""
        yield f"{'version':<9}{'failure':<31}{'runs':>4}  {'leads after':>18}  {'binds after':>18}  {'took in all':>11}"
        for (version, kind), runs in self.rows.items():
            led = _range([seconds for measured, _ in runs for seconds in measured.led_s])
            bound = _range([seconds for measured, _ in runs for seconds in measured.bound_s])
            took = sum(duration for _, duration in runs)
            yield f"{version:<9}{kind:<31}{len(runs):>4}  {led:>18}  {bound:>18}  {took:>9.0f} s"


def _range(seconds: list[float]) -> str:
    return f"{statistics.median(seconds):.1f} s, <= {max(seconds):.1f} s" if seconds else ""


_results = Results()


@pytest.fixture(scope="session")
def results() -> Results:
    """Where runs put what they measured."""
    return _results


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Every failure with each seed."""
    if "seed" in metafunc.fixturenames:
        metafunc.parametrize("seed", range(SEED_COUNT))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the table."""
    if _results.rows:
        terminalreporter.section("failures")
        for line in _results.table():
            terminalreporter.line(line)
