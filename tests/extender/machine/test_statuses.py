"""Which gangs have a status to be written, and when."""

from collections.abc import Callable, Collection

import pytest

from hived_extender.jobs.kinds import coscheduling
from hived_extender.jobs.kinds.description import GangKey, ObjectRef
from hived_extender.machine import statuses
from hived_extender.machine.effects import WriteStatuses
from hived_extender.machine.gangs.plans import GangState
from hived_extender.machine.statuses import AT_ONCE, INTERVAL_S, RETRY_S
from tests.extender.machine.small_gangs import SmallGangCluster, gang_state

GROUP = "pod-group.scheduling.sigs.k8s.io/"
KEY = GangKey("ns", "g")
SOURCE = ObjectRef(coscheduling.PODGROUPS.name, "ns", "g")

Answer = tuple[Collection[GangKey], Collection[GangKey]]


class Written:
    """Takes the statuses. `answers` are those of the next calls: which gangs have changed, and which failed."""

    def __init__(self) -> None:
        self.effects: list[WriteStatuses] = []
        self.answers: list[Answer] = []

    def write(self, effect: WriteStatuses, may_write: Callable[[], bool]) -> Answer:
        self.effects.append(effect)
        return self.answers.pop(0) if self.answers else ((), ())

    def keys(self) -> list[list[str]]:
        """The gangs of each call."""
        return [[key.name for key in effect.states] for effect in self.effects]


class Telling(SmallGangCluster):
    """Gangs of one pod each; their objects are of scheduler-plugins."""

    def __init__(self, **options: object) -> None:
        self.written = Written()
        super().__init__(statuses=self.written, **options)

    def gang(self, *names: str, minimum: int = 1) -> None:
        for name in names:
            self.pod(name, labels={GROUP + "name": name, GROUP + "min-available": str(minimum)})

    def last(self) -> GangState | None:
        """The state that was written last."""
        return self.written.effects[-1].states[KEY]


@pytest.fixture
def cluster() -> Telling:
    return Telling()


def test_each_change_of_a_gang_is_written(cluster: Telling) -> None:
    labels = {GROUP + "name": "g", GROUP + "min-available": "2"}
    found: list[tuple[int, ...]] = []

    def note() -> None:
        cluster.pass_time(INTERVAL_S)
        one = cluster.last() or GangState()
        found.append((one.pod_count, one.scheduled, one.running, one.succeeded, one.failed))

    cluster.pod("a", labels=labels)
    note()
    cluster.pod("b", labels=labels)
    note()
    cluster.settle()
    note()
    cluster.become("a", "Running")
    note()
    cluster.become("a", "Succeeded")
    cluster.become("b", "Failed")
    note()
    assert found == [(1, 0, 0, 0, 0), (2, 0, 0, 0, 0), (2, 2, 0, 0, 0), (2, 2, 1, 0, 0), (2, 0, 0, 1, 1)]


def test_it_is_written_what_a_gang_lacks(cluster: Telling) -> None:
    cluster.gang("g", minimum=2)
    cluster.pass_time(INTERVAL_S)
    assert "1 of 2 pods created" in (cluster.last() or GangState()).obstacle


def test_a_gang_whose_pods_are_gone_is_said_to_have_none(cluster: Telling) -> None:
    cluster.gang("g")
    cluster.pass_time(INTERVAL_S)
    cluster.drop("g")
    cluster.pass_time(INTERVAL_S)
    assert (cluster.last(), gang_state(cluster.service, KEY)) == (None, None)


def test_where_a_gang_was_described_is_known_until_it_is_said_to_have_no_pods() -> None:
    cluster = Telling()
    cluster.pod("g", labels={"scheduling.x-k8s.io/pod-group": "g"})
    cluster.pass_time(INTERVAL_S)
    cluster.drop("g")
    cluster.pass_time(INTERVAL_S)
    cluster.service.object_seen(SOURCE)
    cluster.pass_time(INTERVAL_S)
    assert [effect.sources.get(KEY) for effect in cluster.written.effects] == [SOURCE, SOURCE, None]


def test_changes_that_follow_each_other_are_written_once(cluster: Telling) -> None:
    cluster.gang("g")
    cluster.by_hand.settle()
    cluster.settle()
    cluster.become("g", "Running")
    cluster.pass_time(INTERVAL_S / 2)
    assert len(cluster.written.effects) == 1
    cluster.pass_time(INTERVAL_S)
    assert len(cluster.written.effects) == 2
    cluster.pass_time(60)
    assert len(cluster.written.effects) == 2


def test_many_gangs_are_written_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(statuses, "AT_ONCE", 2)
    assert AT_ONCE > 2
    cluster = Telling(is_leading=False)
    cluster.gang("a", "b", "c")
    cluster.lead()
    cluster.pass_time(INTERVAL_S)
    assert cluster.written.keys() == [["a", "b"], ["c"]]


def test_what_changes_while_another_leads_is_written_afterwards() -> None:
    cluster = Telling(is_leading=False)
    cluster.gang("g")
    cluster.pass_time(60)
    assert cluster.written.effects == []
    cluster.lead()
    cluster.pass_time(60)
    assert cluster.written.keys() == [["g"]]


def test_a_follower_does_not_remember_every_gang_there_ever_was(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(statuses, "FORGET_FROM", 100)
    cluster = Telling(is_leading=False)
    cluster.gang("g")
    for number in range(100):
        cluster.service.object_seen(ObjectRef(coscheduling.PODGROUPS.name, "ns", f"gone-{number}"))
    assert len(cluster.service.machine._statuses.pending) < 100
    assert KEY in cluster.service.machine._statuses.pending


def test_a_gang_that_was_changed_by_others_meanwhile_is_looked_at_again_soon(cluster: Telling) -> None:
    cluster.written.answers = [((KEY,), ())]
    cluster.gang("g")
    cluster.pass_time(2 * INTERVAL_S)
    assert cluster.written.keys() == [["g"], ["g"]]


def test_a_gang_whose_status_is_refused_is_tried_again_later(cluster: Telling) -> None:
    cluster.written.answers = [((), (KEY,))]
    cluster.gang("g")
    cluster.pass_time(0.9 * RETRY_S)
    assert len(cluster.written.effects) == 1
    cluster.pass_time(RETRY_S)
    assert len(cluster.written.effects) == 2


def test_a_gang_whose_status_is_refused_does_not_hold_up_others(cluster: Telling) -> None:
    cluster.written.answers = [((), (KEY,))]
    cluster.gang("g")
    cluster.by_hand.settle()
    cluster.gang("other")
    cluster.become("g", "Running")
    cluster.pass_time(INTERVAL_S)
    assert cluster.written.keys() == [["g"], ["other"]]
