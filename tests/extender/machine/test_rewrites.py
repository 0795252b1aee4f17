"""Annotations of bound pods that are written anew, and what is kept of those that somebody changed."""

import pytest

from hived_extender.kube.client import KubeError
from hived_extender.machine.bound_pods import AT_ONCE, PAUSE_S, RETRY_S, WAITS_S, ChangedBindings, Rewrites
from hived_extender.machine.effects import AnnotatePod, Effect, KeepChanged, Now, Outbox
from hived_extender.machine.pods import PodName

REFUSED = KubeError(503, "ServiceUnavailable", "try again")
GONE = KubeError(404, "NotFound", "gone")


def effect(uid: str = "u", text: str = "old") -> AnnotatePod:
    return AnnotatePod(PodName(uid, "ns", "p"), {"key": text}, {}, False)


class Rewriting:
    """Rewrites under a clock."""

    def __init__(self) -> None:
        self.outbox = Outbox()
        self.rewrites = Rewrites(self.outbox)

    def ask(self, *effects: AnnotatePod) -> tuple[Effect, ...]:
        for one in effects:
            self.rewrites.ask(one)
        return self.outbox.take()

    def wait(self, seconds: float) -> tuple[Effect, ...]:
        """The writes once so much time has gone by."""
        self.outbox.now = Now(self.outbox.now.at + seconds)
        while (key := self.outbox.timers.pop_due(self.outbox.now.at)) is not None:
            self.rewrites.time_came(*key)
        return self.outbox.take()


@pytest.fixture
def rewriting() -> Rewriting:
    return Rewriting()


def test_a_pod_that_is_not_annotated_is_tried_a_few_times(rewriting: Rewriting) -> None:
    written = effect()
    assert rewriting.ask(written) == (written,)
    for wait_s in WAITS_S:
        rewriting.rewrites.wrote(written, REFUSED)
        assert rewriting.wait(wait_s) == (written,)
    rewriting.rewrites.wrote(written, REFUSED)
    assert rewriting.wait(3600) == ()


@pytest.mark.parametrize("error", [None, GONE])
def test_a_pod_that_is_annotated_or_gone_is_left_alone(rewriting: Rewriting, error: KubeError | None) -> None:
    one = effect()
    rewriting.ask(one)
    rewriting.rewrites.wrote(one, error)
    assert rewriting.wait(3600) == ()


@pytest.mark.parametrize("error", [None, REFUSED])
def test_newer_annotations_are_written_after_those_that_are_on_their_way(
    rewriting: Rewriting, error: KubeError | None
) -> None:
    old, new = effect(), effect(text="new")
    assert rewriting.ask(old, new) == (old,)
    rewriting.rewrites.wrote(old, error)
    assert rewriting.outbox.take() == (new,)


def test_some_pods_are_annotated_at_once(rewriting: Rewriting) -> None:
    effects = [effect(f"u{number}") for number in range(AT_ONCE + 1)]
    assert rewriting.ask(*effects) == tuple(effects[:-1])
    rewriting.rewrites.wrote(effects[0], None)
    assert rewriting.outbox.take() == (effects[-1],)


def test_nobody_is_annotated_after_the_end_of_a_term(rewriting: Rewriting) -> None:
    one = effect()
    rewriting.ask(one)
    rewriting.rewrites.wrote(one, REFUSED)
    rewriting.rewrites.forget_all()
    assert rewriting.wait(3600) == ()


class Keeping:
    """Changed bindings under a clock."""

    def __init__(self) -> None:
        self.outbox = Outbox()
        self.kept = ChangedBindings(self.outbox)

    def keep(self, uid: str) -> KeepChanged | None:
        """Have this pod kept; returns what is written now."""
        self.kept.keep({uid: {}})
        return self.taken()

    def wait(self, seconds: float) -> KeepChanged | None:
        self.outbox.now = Now(self.outbox.now.at + seconds)
        if (key := self.outbox.timers.pop_due(self.outbox.now.at)) is not None:
            self.kept.time_came(*key)
        return self.taken()

    def taken(self) -> KeepChanged | None:
        effects = self.outbox.take()
        assert len(effects) <= 1
        for one in effects:
            assert isinstance(one, KeepChanged)
            return one
        return None


@pytest.fixture
def keeping() -> Keeping:
    return Keeping()


def test_changes_that_follow_each_other_are_kept_by_one_write(keeping: Keeping) -> None:
    first = keeping.keep("a")
    assert first == KeepChanged({"a": {}})
    assert (keeping.keep("b"), keeping.keep("c")) == (None, None)
    keeping.kept.wrote(first, None, is_current=True)
    assert keeping.wait(0.9 * PAUSE_S) is None
    assert keeping.wait(PAUSE_S) == KeepChanged({"c": {}})


@pytest.mark.parametrize("is_current", [True, False])
def test_what_could_not_be_kept_is_tried_again_within_the_term(keeping: Keeping, is_current: bool) -> None:
    first = keeping.keep("a")
    assert first is not None
    keeping.kept.wrote(first, REFUSED, is_current=is_current)
    assert keeping.wait(RETRY_S) == (first if is_current else None)


def test_what_is_not_kept_yet_is_written_before_the_end(keeping: Keeping) -> None:
    first = keeping.keep("a")
    assert first is not None
    keeping.kept.wrote(first, None, is_current=True)
    assert keeping.keep("b") is None
    keeping.kept.flush()
    assert keeping.taken() == KeepChanged({"b": {}})


def test_what_is_on_its_way_at_the_end_is_kept_first(keeping: Keeping) -> None:
    first = keeping.keep("a")
    assert first is not None
    keeping.keep("b")
    keeping.kept.flush()
    assert keeping.taken() is None
    keeping.kept.wrote(first, None, is_current=True)
    assert keeping.taken() == KeepChanged({"b": {}})


def test_what_was_not_kept_is_for_the_next_leader(keeping: Keeping) -> None:
    first = keeping.keep("a")
    assert first is not None
    keeping.keep("b")
    keeping.kept.forget_all()
    keeping.kept.wrote(first, None, is_current=False)
    assert keeping.wait(3600) is None
