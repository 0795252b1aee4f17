"""The runs of which forecasts are judged: traces of Philly where the shared folder has them, and random jobs."""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import NamedTuple

from hived.specs import ClusterSpec, Rules
from hived_simulator.traces.jobs import Job, Pods
from tests.forecasts.cases import Case, run
from tests.quality import jobs as made
from tests.quality.large import GPUS, NODES, PROMISES, as_racks, large_cluster, node_quotas

EVERY_S = 600.0
"""Between two looks at the jobs; a service looks every minute."""

FORTNIGHT = 14.0
SMALLER = 96
"""Nodes for two weeks of Philly with the arrivals as they were: a load of 0.24 to 0.89."""

PRESSED = 4.0
"""Days into which two weeks are pressed for a load near 1 of 312 nodes."""

OPPORTUNISTIC = 0.2


class Run(NamedTuple):
    """One row of the table.

    first, last : days of Philly, both included; `days` that its arrivals are pressed into; on `nodes` nodes
    cells : or N, R, P, what random jobs of a cluster of 312 nodes are promised, at a `load`
    limited : share of the jobs that declare how long they run at the most
    """

    name: str
    rules: Rules = Rules.BETTER
    first: str = ""
    last: str = ""
    days: float = FORTNIGHT
    nodes: int = SMALLER
    cells: str = ""
    load: float = 1.0
    count: int = 2500
    limited: float = 0.0

    @property
    def needs_philly(self) -> bool:
        """Does it read the trace of Philly?"""
        return not self.cells

    def play(self, tell: Callable[[float], None]) -> tuple[int, list[Case]]:
        """The number of its jobs, and its cases; see `cases.run`."""
        spec, jobs = _philly(self) if self.needs_philly else _random(self)
        return len(jobs), run(spec, jobs, self.limited, EVERY_S, tell)


RUNS = (
    Run("philly-september", first="2017-09-18", last="2017-10-01"),
    Run("philly-october", first="2017-10-16", last="2017-10-29"),
    Run("philly-november", first="2017-11-13", last="2017-11-26"),
    Run("philly-november-hived", Rules.HIVED, first="2017-11-13", last="2017-11-26"),
    Run("philly-december-limits", first="2017-12-04", last="2017-12-17", limited=0.5),
    Run("philly-pressed", first="2017-10-16", last="2017-10-29", days=PRESSED, nodes=NODES),
    Run("N", cells="N"),
    Run("R-limits", cells="R", limited=0.5),
    Run("P-all-limits", cells="P", limited=1.0),
)
QUICK = (Run("R-quick", cells="R", load=1.5, count=400, limited=0.5),)


def _philly(asked: Run) -> tuple[ClusterSpec, list[Job]]:
    jobs = made.philly_jobs(asked.days, asked.first, asked.last)
    quotas = made.quotas_by_work(jobs, asked.nodes)
    return large_cluster(as_racks(quotas), asked.rules), _jobs(made.that_fit(jobs, quotas))


def _random(asked: Run) -> tuple[ClusterSpec, list[Job]]:
    promises = PROMISES[asked.cells]
    quotas = {vc: nodes * GPUS for vc, nodes in node_quotas(promises).items()}
    jobs = made.random_jobs(quotas, asked.load, OPPORTUNISTIC, asked.count, seed=1)
    return large_cluster(promises, asked.rules), _jobs(jobs)


def _jobs(jobs: Sequence[made.Job]) -> list[Job]:
    return [
        Job(
            job.name, job.vc, job.submitted, job.duration,
            tuple(Pods(count, leaves) for leaves, count in sorted(Counter(job.sizes).items())), priority=job.priority,
        )
        for job in jobs
    ]  # fmt: skip
