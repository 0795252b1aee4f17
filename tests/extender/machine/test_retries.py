"""Which pods are tried again after a change that made room: those that cannot have seen it."""

import pytest

from hived_extender.machine.effects import Now, Outbox
from hived_extender.machine.retries import OVERTAKEN_S, RETRY_S, SLICE, SWEEP, Retries

DELAY_S = 0.5


class Trying:
    """Retries whose pods are tried when they are due: `tried` has them in turn, and those of `fitting` could run."""

    def __init__(self) -> None:
        self.outbox = Outbox()
        self.retries = Retries(self.outbox, DELAY_S)
        self.slices: list[list[str]] = []
        self.fitting: set[str] = set()

    @property
    def tried(self) -> list[str]:
        return [uid for uids in self.slices for uid in uids]

    def pass_time(self, seconds: float) -> None:
        until = self.outbox.now.at + seconds
        timers = self.outbox.timers
        while (due_at := timers.due_at) <= until:
            self.outbox.now = Now(due_at)
            while (key := timers.pop_due(due_at)) is not None:
                self.retries.time_came(*key)
            while self.retries.has_backlog:
                self.begin()
                self.end()
        self.outbox.now = Now(until)

    def begin(self) -> None:
        """Take those that are to be tried next."""
        self.slices.append(self.retries.take_slice())

    def end(self) -> None:
        """They have been tried."""
        self.retries.tried(self.fitting)


@pytest.fixture
def trying() -> Trying:
    return Trying()


def refused_before_a_change(trying: Trying, *uids: str) -> None:
    for uid in uids:
        trying.retries.refused(uid)
    trying.retries.room_made()


def test_a_pod_refused_just_before_is_tried_once(trying: Trying) -> None:
    refused_before_a_change(trying, "p")
    trying.retries.room_made()
    trying.pass_time(60)
    assert trying.tried == ["p"]


def test_kube_scheduler_has_a_moment_to_ask_by_itself(trying: Trying) -> None:
    refused_before_a_change(trying, "p")
    trying.pass_time(0.9 * DELAY_S)
    assert trying.tried == []


def test_a_pod_asked_about_since_then_has_seen_the_change(trying: Trying) -> None:
    refused_before_a_change(trying, "p", "q")
    trying.retries.refused("p")
    trying.pass_time(60)
    assert trying.tried == ["q"]


def test_a_pod_that_has_its_node_is_left_alone(trying: Trying) -> None:
    trying.retries.refused("p")
    trying.retries.settled("p")
    trying.retries.room_made()
    trying.pass_time(60)
    assert trying.tried == []


@pytest.mark.parametrize("is_refused_again", [False, True])
def test_a_pod_is_tried_again_after_the_next_change_only(trying: Trying, is_refused_again: bool) -> None:
    """Rule 5.13."""
    refused_before_a_change(trying, "p")
    trying.pass_time(60)
    assert trying.tried == ["p"]
    if is_refused_again:
        trying.retries.refused("p")
    trying.retries.room_made()
    trying.pass_time(60)
    assert trying.tried == ["p", "p"]


def test_a_pod_that_could_run_is_tried_again_after_others_have_their_nodes(trying: Trying) -> None:
    """Rule 5.14."""
    trying.fitting = {"fits"}
    trying.retries.appeared("fits")
    trying.retries.appeared("too big")
    trying.pass_time(60)
    assert trying.tried == ["fits", "too big"]
    trying.retries.settled("another")
    trying.pass_time(OVERTAKEN_S)
    assert trying.tried == ["fits", "too big", "fits"]


def test_a_pod_that_could_not_be_woken_is_tried_again(trying: Trying) -> None:
    refused_before_a_change(trying, "p")
    trying.pass_time(DELAY_S)
    trying.retries.not_woken("p")
    trying.pass_time(RETRY_S)
    assert trying.tried == ["p", "p"]


def test_a_pod_that_could_not_be_woken_while_it_was_tried_is_tried_again(trying: Trying) -> None:
    refused_before_a_change(trying, "p")
    trying.outbox.timers.pop_due(DELAY_S)
    trying.retries.time_came(*SWEEP)
    trying.begin()
    trying.retries.not_woken("p")
    trying.end()
    trying.pass_time(RETRY_S)
    assert trying.tried == ["p", "p"]


def test_a_change_is_not_held_up_by_a_pod_that_could_not_be_woken(trying: Trying) -> None:
    trying.retries.not_woken("p")
    refused_before_a_change(trying, "q")
    trying.pass_time(DELAY_S)
    assert trying.tried == ["p", "q"]


def test_a_pod_that_appears_while_others_are_tried_is_tried_too(trying: Trying) -> None:
    trying.retries.appeared("early")
    trying.outbox.timers.pop_due(DELAY_S)
    trying.retries.time_came(*SWEEP)
    trying.begin()
    trying.retries.appeared("late")
    trying.end()
    trying.pass_time(60)
    assert trying.tried == ["early", "late"]


def test_a_pod_that_is_refused_while_it_is_tried_stays_known(trying: Trying) -> None:
    refused_before_a_change(trying, "p")
    trying.outbox.timers.pop_due(DELAY_S)
    trying.retries.time_came(*SWEEP)
    trying.begin()
    trying.retries.refused("p")
    trying.end()
    trying.retries.room_made()
    trying.pass_time(60)
    assert trying.tried == ["p", "p"]


def test_a_pod_tried_with_another_is_not_tried_by_itself(trying: Trying) -> None:
    refused_before_a_change(trying, *(f"p{number}" for number in range(2 * SLICE)))
    trying.outbox.timers.pop_due(DELAY_S)
    trying.retries.time_came(*SWEEP)
    trying.begin()
    trying.retries.add_alike(["p6", "p7"])
    trying.end()
    trying.begin()
    assert trying.tried == ["p0", "p1", "p2", "p3", "p4", "p5"]


def test_a_pod_tried_with_another_is_tried_again_after_the_next_change(trying: Trying) -> None:
    refused_before_a_change(trying, *(f"p{number}" for number in range(SLICE + 1)))
    trying.outbox.timers.pop_due(DELAY_S)
    trying.retries.time_came(*SWEEP)
    trying.begin()
    trying.retries.add_alike(["p4"])
    trying.end()
    trying.retries.room_made()
    trying.pass_time(60)
    assert trying.tried.count("p4") == 1


def test_many_pods_are_tried_a_few_at_a_time(trying: Trying) -> None:
    refused_before_a_change(trying, *(f"p{number}" for number in range(150)))
    trying.pass_time(60)
    assert [len(uids) for uids in trying.slices] == [SLICE] * 37 + [2]


def test_nobody_is_tried_after_the_end_of_a_term(trying: Trying) -> None:
    refused_before_a_change(trying, "p")
    trying.retries.forget_all()
    trying.retries.room_made()
    trying.pass_time(60)
    assert trying.tried == []
