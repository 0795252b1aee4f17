"""News of pods for people, and their moments: the machine's words go in, writes come out."""

import tracemalloc
from collections import Counter
from dataclasses import dataclass
from itertools import pairwise

import pytest
from msgspec.structs import replace

from hived_extender.jobs.wire import StatusCondition
from hived_extender.kube.metrics import Metrics
from hived_extender.machine.announcements import AT_ONCE, Announcements
from hived_extender.machine.effects import Announce, Effect, Now, Outbox
from hived_extender.machine.notices import CONDITION_TYPE, Announced, Condition, Pace, Reason
from hived_extender.machine.pods import PodName

QUICK = Pace(hold_s=0.0, change_s=0.0, repeat_s=0.1, burst=1000, refill_s=300, reserve=0)
POD = PodName("u", "default", "train")
WAITS = StatusCondition(CONDITION_TYPE, "False", "Waiting", "no room")
AWAY = Announced(0, is_away=True)


@dataclass(frozen=True)
class Ref:
    uid: str
    namespace: str
    name: str


class Telling:
    """Announcements under a clock. All that is due is written by `settle`, and `told` has it."""

    def __init__(self, pace: Pace = QUICK, **options: int) -> None:
        self.metrics = Metrics()
        self.outbox = Outbox(self.metrics)
        self.outbox.now = Now(1000.0, 1000.0)
        self.announcements = Announcements(self.outbox, pace=pace, **options)
        self.told: list[Announce] = []
        self.is_away = False
        self.attempts: list[float] = []

    def take(self) -> list[Announce]:
        """The writes that are due now, without an answer."""
        found: list[Effect] = list(self.outbox.take())
        return [effect for effect in found if isinstance(effect, Announce)]

    def answer(self, effect: Announce) -> None:
        """The API server has taken it, or is away."""
        self.attempts.append(self.outbox.now.at)
        if self.is_away:
            self.announcements.wrote(effect, AWAY)
            return
        self.told.append(effect)
        has_looked = effect.condition is not None
        self.announcements.wrote(effect, Announced(len(effect.notices), has_looked=has_looked, stored=effect.condition))

    def settle(self) -> None:
        while effects := self.take():
            for effect in effects:
                self.answer(effect)

    def pass_time(self, seconds: float) -> None:
        until = self.outbox.now.at + seconds
        self.settle()
        while (due_at := self.outbox.timers.due_at) <= until:
            self.outbox.now = Now(due_at, due_at)
            while (key := self.outbox.timers.pop_due(due_at)) is not None:
                self.announcements.time_came(*key)
            self.settle()
        self.outbox.now = Now(until, until)

    def events(self, uid: str = POD.uid) -> dict[tuple[str, str], int]:
        """How often each message about a pod was told, by reason and message."""
        found: Counter[tuple[str, str]] = Counter()
        for effect in self.told:
            if effect.pod.uid == uid:
                for notice in effect.notices:
                    found[notice.reason.value, notice.message] += notice.times
        return dict(found)

    @property
    def conditions(self) -> list[Condition]:
        """All that were written."""
        return [effect.condition for effect in self.told if effect.condition is not None]


@pytest.fixture
def telling() -> Telling:
    return Telling()


def test_a_wait_that_is_repeated_is_counted(telling: Telling) -> None:
    for _ in range(1000):
        telling.announcements.say(POD, Reason.WAITING, "no room")
    telling.pass_time(60)
    telling.announcements.say(POD, Reason.WAITING, "a bad node")
    telling.settle()
    assert telling.events() == {("Waiting", "no room"): 1000, ("Waiting", "a bad node"): 1}


def test_a_thousand_repeats_are_few_writes(telling: Telling) -> None:
    for _ in range(1000):
        telling.announcements.say(POD, Reason.WAITING, "no room")
        telling.pass_time(0.0002)
    telling.pass_time(60)
    assert telling.events() == {("Waiting", "no room"): 1000}
    assert len(telling.told) < 5


def test_what_happens_to_a_pod_is_told(telling: Telling) -> None:
    announcements = telling.announcements
    announcements.say(POD, Reason.PREEMPTING, "victims on n1 (2)")
    telling.settle()
    announcements.scheduled(POD, "n1", (0, 1), vc="research", group="default/train")
    telling.settle()
    announcements.lazily_preempted(POD, "default/urgent")
    telling.settle()
    announcements.evicting(POD, "pod u-1")
    telling.settle()
    placed = "node n1, leaf cells 0,1, virtual cluster research, affinity group default/train"
    lazily = (
        "this job gave its place in the virtual cluster up for default/urgent; it runs on, but opportunistic now: "
        "any guaranteed job may preempt it"
    )
    assert list(telling.events()) == [
        ("Preempting", "victims on n1 (2)"),
        ("Scheduled", placed),
        ("LazyPreempted", lazily),
        ("Preempted", "its cells are needed by pod u-1"),
    ]
    assert [(one.is_true, one.reason) for one in telling.conditions] == [
        (False, "Preempting"),
        (True, "Allocated"),
        (True, "LazyPreempted"),
    ]


def test_that_an_eviction_is_refused_is_not_told_of_a_pod_that_has_its_node_by_then(telling: Telling) -> None:
    telling.is_away = True
    telling.announcements.say(POD, Reason.PREEMPTION_BLOCKED, "disruption budget default/quorum")
    telling.settle()
    telling.is_away = False
    telling.announcements.scheduled(POD, "n1", (0,))
    telling.pass_time(60)
    assert list(telling.events()) == [("Scheduled", "node n1, leaf cells 0")]


def test_an_invalid_annotation_is_told_at_once() -> None:
    telling = Telling(Pace())
    telling.announcements.say(POD, Reason.INVALID_SPEC, "leafCellNumber is missing")
    telling.settle()
    assert telling.conditions == [Condition(False, "InvalidSpec", "leafCellNumber is missing")]


def test_a_pod_that_is_scheduled_at_once_costs_one_write(telling: Telling) -> None:
    telling.announcements.scheduled(POD, "n1", (0,))
    telling.pass_time(60)
    assert telling.events() == {("Scheduled", "node n1, leaf cells 0"): 1}
    assert (len(telling.told), telling.conditions) == (1, [])


def test_a_scheduler_that_retries_on_every_change_of_a_pod_finds_an_end(telling: Telling) -> None:
    """As kube-scheduler with queueing hints: any change of the pod, its status included, is another attempt."""
    telling.announcements.say(POD, Reason.WAITING, "no room")
    attempts = 0
    while len(telling.conditions) > attempts or not attempts:
        attempts += 1
        telling.announcements.say(POD, Reason.WAITING, "no room")
        telling.pass_time(5 * QUICK.repeat_s)
    assert len(telling.conditions) == 1


def test_a_condition_that_another_process_wrote_is_not_written_again(telling: Telling) -> None:
    telling.announcements.observe(POD, WAITS)
    telling.announcements.say(POD, Reason.WAITING, "no room")
    telling.pass_time(60)
    assert telling.events() == {("Waiting", "no room"): 1}
    assert telling.conditions == []


def test_a_wait_that_another_process_wrote_is_taken_back(telling: Telling) -> None:
    telling.announcements.observe(POD, WAITS)
    telling.announcements.scheduled(POD, "n1", (0,))
    telling.settle()
    assert telling.conditions == [Condition(True, "Allocated", "node n1, leaf cells 0")]


def test_a_wait_is_taken_back_of_a_pod_that_a_dead_process_bound(telling: Telling) -> None:
    telling.announcements.replayed(POD, "n1", (0,))
    telling.announcements.observe(POD, WAITS)
    telling.pass_time(60)
    assert telling.conditions == []
    telling.announcements.replayed(POD, "n1", (0,))
    telling.settle()
    assert telling.conditions == [Condition(True, "Allocated", "node n1, leaf cells 0")]
    assert telling.events() == {}


def test_replaying_a_pod_does_not_hide_that_it_was_preempted_lazily(telling: Telling) -> None:
    telling.announcements.lazily_preempted(POD, "h")
    telling.settle()
    telling.announcements.replayed(POD, "n1", (0,))
    telling.pass_time(60)
    assert [one.reason for one in telling.conditions] == ["LazyPreempted"]


def test_what_befell_a_pod_is_told_after_it_is_gone(telling: Telling) -> None:
    telling.is_away = True
    telling.announcements.evicting(POD, "pod u-1")
    telling.settle()
    telling.announcements.forget(POD.uid)
    telling.is_away = False
    telling.pass_time(60)
    assert telling.events() == {("Preempted", "its cells are needed by pod u-1"): 1}


def test_what_was_said_while_the_api_server_was_away_is_told_when_it_is_back(telling: Telling) -> None:
    telling.is_away = True
    for number in range(20):
        telling.announcements.scheduled(Ref(f"u-{number}", "default", f"away-{number}"), "n1", (number,))
    telling.pass_time(20)
    telling.is_away = False
    telling.pass_time(60)
    assert len({effect.pod.uid for effect in telling.told}) == len(telling.told) == 20


def test_an_api_server_that_is_away_is_tried_less_and_less(telling: Telling) -> None:
    telling.is_away = True
    telling.announcements.scheduled(POD, "n1", (0,))
    telling.pass_time(200)
    waits = [later - earlier for earlier, later in pairwise(telling.attempts)]
    assert waits[:7] == pytest.approx([0.5, 1, 2, 4, 8, 16, 30])


def test_few_pods_are_written_about_at_once(telling: Telling) -> None:
    for number in range(20):
        telling.announcements.scheduled(Ref(f"u-{number}", "default", "p"), "n1", (0,))
    assert len(telling.take()) == AT_ONCE


def test_a_pod_that_is_being_written_about_has_its_turn_afterwards() -> None:
    telling = Telling(replace(QUICK, hold_s=1.5))
    telling.announcements.say(POD, Reason.WAITING, "no room")
    telling.announcements.say(POD, Reason.INVALID_SPEC, "not a number")
    (slow,) = telling.take()
    telling.announcements.say(POD, Reason.WAITING, "no room")
    telling.pass_time(10)
    assert telling.told == []
    telling.answer(slow)
    telling.settle()
    assert [effect.condition and effect.condition.reason for effect in telling.told] == ["InvalidSpec", "Waiting"]
    others = [PodName(str(number), "default", "other") for number in range(2 * AT_ONCE)]
    for other in others:
        telling.announcements.say(other, Reason.INVALID_SPEC, "not a number")
    assert len(telling.take()) == AT_ONCE


def test_of_thousands_of_pods_each_is_told_of_once(telling: Telling) -> None:
    for number in range(2000):
        telling.announcements.scheduled(Ref(f"u-{number}", "default", "p"), "n1", (number,))
    telling.settle()
    assert len({effect.pod.uid for effect in telling.told}) == len(telling.told) == 2000


def test_only_the_last_pods_are_remembered_while_the_api_server_does_not_answer() -> None:
    telling = Telling(pod_limit=500)
    refs = [Ref(f"u-{number}", "default", f"p-{number}") for number in range(5000)]
    tracemalloc.start()
    for ref in refs:
        telling.announcements.say(ref, Reason.WAITING, f"no room for {ref.name}")
    grown = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    for ref in refs:
        telling.announcements.say(ref, Reason.WAITING, "no room")
    assert grown < 500 * 4000
    dropped = telling.metrics.registry.get_sample_value("hived_events_total", {"outcome": "dropped"}) or 0
    assert dropped >= 9000
    assert len(telling.take()) == AT_ONCE


def test_a_leader_that_has_resigned_tells_nothing_of_before(telling: Telling) -> None:
    telling.is_away = True
    telling.announcements.evicting(Ref("before", "default", "p"), POD)
    telling.settle()
    telling.announcements.resign()
    telling.is_away = False
    telling.announcements.evicting(Ref("after", "default", "p"), POD)
    telling.pass_time(60)
    assert [effect.pod.uid for effect in telling.told] == ["after"]


def test_who_leads_again_knows_which_waits_stand(telling: Telling) -> None:
    telling.announcements.say(POD, Reason.WAITING, "no room")
    telling.settle()
    telling.announcements.resign()
    telling.announcements.scheduled(POD, "n1", (0,))
    telling.settle()
    assert [one.is_true for one in telling.conditions] == [False, True]


@pytest.mark.parametrize("is_answered_first", [False, True])
def test_who_leads_again_doubts_what_was_being_written(telling: Telling, is_answered_first: bool) -> None:
    telling.announcements.say(POD, Reason.WAITING, "no room")
    (written,) = telling.take()
    telling.announcements.resign()
    if is_answered_first:
        telling.answer(written)
    telling.announcements.scheduled(POD, "n1", (0,))
    (anew,) = telling.take()
    assert anew.condition is not None
    assert (anew.condition.is_true, anew.is_stored_known) == (True, False)


def test_a_write_of_an_earlier_term_leaves_room_for_others_when_it_is_answered(telling: Telling) -> None:
    for number in range(AT_ONCE):
        telling.announcements.scheduled(replace(POD, uid=f"before-{number}"), "n1", (0,))
    written = telling.take()
    telling.announcements.resign()
    telling.announcements.scheduled(POD, "n1", (0,))
    assert telling.take() == []
    telling.answer(written[0])
    assert [effect.pod for effect in telling.take()] == [POD]


def test_who_resigns_forgets_a_pod_that_was_gone_while_it_was_written_about(telling: Telling) -> None:
    telling.announcements.say(POD, Reason.INVALID_SPEC, "not a number")
    (slow,) = telling.take()
    telling.announcements.forget(POD.uid)
    telling.announcements.resign()
    telling.answer(slow)
    telling.pass_time(60)
    assert not telling.announcements._notices
