"""Opportunistic pods without devices leave where they have what an owner's pod needs (rule 27.6)."""

from pathlib import Path
from typing import Any

import pytest

from tests.cases.played import Played, played_on, pod
from tests.cases.test_never_preempts import CLASSES, job, pods_of
from tests.cases.test_victims_that_help import CONFIG
from tests.expecting import expect_soon

pytestmark = pytest.mark.sample(3)

GANG = {"gang.scheduling.koordinator.sh/name": "g", "gang.scheduling.koordinator.sh/min-available": "2"}


def has_left(played: Played, *names: str) -> bool:
    return not set(names) & set(played.pods())


@pytest.mark.parametrize("much", [{"cpu": 7}, {"memory": "120Gi"}], ids=["cpu", "memory"])
def test_one_leaves_that_has_what_the_pod_of_the_owner_needs(tmp_path: Path, much: dict[str, Any]) -> None:
    with played_on(tmp_path, CONFIG) as played:
        for name in ("lent-0", "lent-1"):
            played.create(pod(name, 0, priority=-1, requests=much))
            played.expect_running(name)
        played.create(pod("owner", priority=1, requests=much))
        played.expect_running("owner")
        assert len(played.running_pods()) == 2


def test_pods_of_guaranteed_work_stay_beside_it(tmp_path: Path) -> None:
    with played_on(tmp_path, CONFIG) as played:
        for name, priority in (("lent", -1), ("own", 1)):
            played.create(pod(name, 0, priority=priority, requests={"cpu": 5}))
            played.expect_running(name)
        played.create(pod("owner", priority=9, requests={"cpu": 5}))
        played.expect_running("owner", "own")
        assert has_left(played, "lent")


def test_a_gang_leaves_as_a_whole_that_has_the_cpu(tmp_path: Path) -> None:
    with played_on(tmp_path, CONFIG) as played:
        played.create(*(pod(f"g-{n}", 0, priority=-1, requests={"cpu": 6}, annotations=GANG) for n in range(2)))
        played.expect_running("g-0", "g-1")
        played.create(pod("owner", priority=1, requests={"cpu": 6}))
        played.expect_running("owner")
        expect_soon(lambda: has_left(played, "g-0", "g-1"))
        assert set(played.running_pods()) == {"owner"}, "no pod of a gang stays that has lost another one"


def test_lent_cpu_is_taken_back_whatever_the_policy_of_the_owner(tmp_path: Path) -> None:
    with played_on(tmp_path, CONFIG) as played:
        played.create(CLASSES)
        for name, priority in (("lent", -1), ("low", 1)):
            played.create(pod(name, 0, priority=priority, requests={"cpu": 7}))
            played.expect_running(name)
        played.create(pod("owner", priority=900, requests={"cpu": 7}, priorityClassName="never"))
        played.expect_running("owner", "low")
        assert has_left(played, "lent")


def test_a_dry_run_names_it(tmp_path: Path) -> None:
    with played_on(tmp_path, CONFIG) as played:
        for name, priority in (("lent", -1), ("own", 1)):
            played.create(pod(name, 0, priority=priority, requests={"cpu": 7}))
            played.expect_running(name)
        owner = pod("owner", priority=1, requests={"cpu": 7})
        (told,) = played.inspector.what_if([{**owner, "metadata": {"namespace": "default", **owner["metadata"]}}])
        assert told.outcome == "preempt"
        assert [one.name for one in told.victims] == ["default/lent"]


QUEUES = CONFIG.replace("rules: 2", "rules: 2\nqueues: {enabled: true}")


def test_it_leaves_for_a_job_whose_turn_it_is(tmp_path: Path) -> None:
    with played_on(
        tmp_path, CONFIG.replace("rules: 2", "rules: 2\nqueues: {enabled: true}"), has_webhook=True
    ) as played:
        for name, priority in (("lent", -1), ("own", 1)):
            played.create(pod(name, 0, priority=priority, requests={"cpu": 7}))
            played.expect_running(name)
        queued = job("queued", 1)
        resources = queued["spec"]["template"]["spec"]["containers"][0]["resources"]
        resources["limits"]["cpu"] = 4
        played.create(queued)
        expect_soon(lambda: pods_of(played, "queued"))
        assert has_left(played, "lent")
        assert "own" in played.running_pods()
