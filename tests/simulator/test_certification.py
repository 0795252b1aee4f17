"""A certificate tells which guaranteed jobs a configuration makes wait longer."""

from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from hived.values.errors import UserError
from hived.values.specs import ClusterSpec
from hived_extender.api.certificates import Certificate, CertifiedTrace
from hived_simulator import certification
from hived_simulator.certification import ConfigText, Stopped, Wish, certify, compared, described, run
from hived_simulator.hived_cluster import HivedCluster
from hived_simulator.loop import Manner
from hived_simulator.private import PrivateClusters
from hived_simulator.traces.jobs import Trace
from tests.simulator.builders import NODE, cluster_of, job, random_jobs

EVEN = cluster_of(2, a={NODE: 2}, b={NODE: 2})
LESS_FOR_A = cluster_of(2, a={NODE: 1}, b={NODE: 3})
TRACE = Trace("t", (job("1", "a", 0, 100, (1, 4)), job("2", "a", 0, 100, (1, 4)), job("3", "b", 0, 100, (1, 4))))


def certified(old: ClusterSpec, new: ClusterSpec, trace: Trace = TRACE, days: float = 0.0, **wish: Any) -> Certificate:
    traced = described(trace, "t", days=days)
    return certify(ConfigText("old", old), ConfigText("new", new), trace, traced, Wish(**wish))


def test_the_same_configuration_breaks_no_promise() -> None:
    found = certified(EVEN, EVEN)
    assert (found.verdict, found.vc_count, found.trace.jobs) == ("kept", 2, 3)
    assert [(one.vc, one.jobs, one.later, one.lost) for one in found.vcs] == [("a", 2, 0, 0), ("b", 1, 0, 0)]


def test_fewer_cells_make_jobs_wait_and_the_figures_say_how_long() -> None:
    found = certified(EVEN, LESS_FOR_A)
    worst = found.vcs[0]
    assert (worst.vc, worst.old_delay_s, worst.new_delay_s, worst.later) == ("a", 0.0, 50.0, 0)
    assert found.verdict == "broken"
    assert certified(LESS_FOR_A, EVEN).verdict == "kept"


def test_a_gang_that_has_no_room_any_more_is_lost() -> None:
    gang = Trace("t", (job("1", "a", 0, 100, (2, 4)),))
    found = certified(EVEN, LESS_FOR_A, gang)
    assert (found.vcs[0].lost, found.verdict) == (1, "broken")


def test_a_gang_that_finds_room_only_now_may_keep_others_waiting() -> None:
    jobs = (job("1", "a", 0, 100, (2, 4)), job("2", "a", 1, 10, (1, 4)))
    found = certified(LESS_FOR_A, EVEN, Trace("t", jobs))
    assert found.verdict == "kept"
    assert found.vcs[0].old_delay_s > found.vcs[0].new_delay_s


def test_opportunistic_jobs_do_not_count() -> None:
    jobs = tuple(replace(each, priority=-1) for each in TRACE.jobs)
    assert certified(EVEN, LESS_FOR_A, Trace("t", jobs)).vcs == ()


def test_of_a_record_tenants_without_a_virtual_cluster_are_left_out() -> None:
    more = Trace("t", (*TRACE.jobs, job("4", "gone", 0, 1, (1, 1))))
    assert certified(EVEN, EVEN, more, days=14).trace.jobs == 3
    with pytest.raises(UserError, match=r"without a virtual cluster: 'gone'.*--certify-tenants TENANT=VC"):
        certified(EVEN, EVEN, more)


def test_an_empty_record_is_told_as_such() -> None:
    found = certified(EVEN, EVEN, Trace("t", ()), days=1)
    assert (found.trace.jobs, found.vcs, found.verdict) == (0, (), "kept")


def test_the_same_input_gives_the_same_bytes() -> None:
    trace = Trace("t", tuple(random_jobs(3, ["a", "b"], 20)))
    assert msgspec.json.encode(certified(EVEN, LESS_FOR_A, trace)) == msgspec.json.encode(
        certified(EVEN, LESS_FOR_A, trace)
    )


def test_figures_are_those_of_the_runs() -> None:
    jobs = [each for each in random_jobs(5, ["a", "b"], 20) if each.priority != -1]
    vc_of = {"a": "a", "b": "b"}
    runs = [
        run(cluster, jobs, vc_of, Manner()).outcomes
        for cluster in (HivedCluster(EVEN), HivedCluster(LESS_FOR_A), PrivateClusters(LESS_FOR_A))
    ]
    for one in compared(*runs):
        own = [number for number, each in enumerate(jobs) if each.tenant == one.vc]
        starts = {number: (runs[1][number].started_s, runs[2][number].started_s) for number in own}
        later = [
            number
            for number, (new, alone) in starts.items()
            if new is not None and alone is not None and new > alone + 0.001
        ]
        assert (one.jobs, one.later) == (len(own), len(later))


def test_a_certificate_of_many_virtual_clusters_stays_within_its_size(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = certified(EVEN, LESS_FOR_A)
    monkeypatch.setattr(certification, "SIZE_LIMIT", len(msgspec.json.encode(whole)) - 1)
    found = certified(EVEN, LESS_FOR_A)
    assert (found.vc_count, [one.vc for one in found.vcs]) == (2, ["a"])


def test_a_replay_can_be_stopped() -> None:
    def stop(done: int, of: int) -> None:
        raise Stopped

    traced = CertifiedTrace("t", "", 3)
    with pytest.raises(Stopped):
        certify(ConfigText("old", EVEN), ConfigText("new", EVEN), TRACE, traced, Wish(), lambda part: stop)
