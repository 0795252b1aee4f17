"""After each failure: no GPU was given twice, no pod is stuck, and the state is what a rebuild makes of annotations."""

import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.e2e.failures import kinds
from tests.e2e.failures.conftest import Results
from tests.e2e.failures.working_cluster import BIND_BOUND_S, OVER_S, WorkingCluster
from tests.e2e.plane import ControlPlane


@dataclass(frozen=True, slots=True)
class Kind:
    """A failure: what happens, and for how long new work comes meanwhile.

    Where it does not take several replicas, every other seed has a single one, which keeps its state all the time.
    """

    name: str
    happen: Callable[[WorkingCluster], None]
    over_s: float = OVER_S
    takes_several: bool = False
    has_own_clock: bool = False


KINDS = (
    Kind("leader killed at every step", kinds.leader_killed_at_every_step, 60.0, takes_several=True),
    Kind("leader frozen while it binds", kinds.leader_frozen, 20.0, takes_several=True),
    Kind("leader stopped politely", kinds.leader_stopped, takes_several=True),
    Kind("kube-scheduler killed", kinds.scheduler_killed),
    Kind("API server away", kinds.api_server_away),
    Kind("etcd compacted", kinds.history_compacted),
    Kind("watches cut every second", kinds.watches_cut, 12.0),
    Kind("events doubled and disordered", kinds.events_in_disorder),
    Kind("clock jumps", kinds.clock_jumps, has_own_clock=True),
)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name.replace(" ", "-"))
def test_guarantees_hold_through_a_failure(
    plane: ControlPlane, kind: Kind, seed: int, tmp_path: Path, results: Results
) -> None:
    began = time.monotonic()
    chance = random.Random(f"{kind.name} {seed}")
    replica_count = 2 if kind.takes_several or seed % 2 == 0 else 1
    with WorkingCluster(
        plane, tmp_path, chance, replica_count=replica_count, over_s=kind.over_s, has_own_clock=kind.has_own_clock
    ) as working:
        kind.happen(working)
        is_quiet = working.await_quiet()
        assert is_quiet, working.jobs.unfinished()
        assert working.running(), "nothing runs: there is nothing to compare"
        found, could_run = working.compare()
        assert not found, "\n".join(found)
        assert not could_run, "\n".join(could_run)
        is_done = working.await_done()
        assert is_done, working.jobs.unfinished()
        assert working.jobs.evicted_unduly() == []
        assert working.observer.violations == []
        assert max(working.measured.bound_s) < BIND_BOUND_S
        results.add(plane.tools.version, kind.name, working.measured, time.monotonic() - began)
