"""Budgets of an hour, with the list of costs in the Secret that replicas share (rule 28.11)."""

import pytest

from hived_config.rules import Budget
from hived_extender.insight.defrag.desk import HOUR_S, Spending
from hived_extender.insight.defrag.planner import Limits
from hived_extender.kube.client import KubeError
from hived_extender.machine.writes.binding_secret import BindingSecret
from tests.extender.machine.stored_secrets import Secrets

BUDGET = Budget(4.0, 6)


class Clock:
    """Seconds that the test sets."""

    now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def secret() -> BindingSecret:
    """A Secret with keys."""
    found = BindingSecret(Secrets(), "hived-system", "hived-bindings")
    found.keys()
    return found


def begun(ledger: BindingSecret | None, clock: Clock, term: int = 1) -> Spending:
    spending = Spending(ledger, clock)
    spending.begin_term(term)
    return spending


def test_another_leader_goes_on_with_the_budget(secret: BindingSecret) -> None:
    clock = Clock()
    begun(secret, clock).add("a", 1.5, 2)
    clock.now += 10
    later = begun(secret, clock)
    assert later.left("a", BUDGET) == Limits(2.5, 4)
    assert later.left("b", BUDGET) == Limits(4.0, 6)
    clock.now += HOUR_S
    assert later.left("a", BUDGET) == Limits(4.0, 6)


def test_another_term_reads_what_was_spent_meanwhile(secret: BindingSecret) -> None:
    clock = Clock()
    first, second = begun(secret, clock), begun(secret, clock)
    second.add("a", 1.0, 1)
    assert first.left("a", BUDGET) == Limits(4.0, 6)
    first.begin_term(3)
    assert first.left("a", BUDGET) == Limits(3.0, 5)


def test_replicas_do_not_overwrite_each_other(secret: BindingSecret) -> None:
    clock = Clock()
    first, second = begun(secret, clock), begun(secret, clock)
    first.add("a", 1.0, 1)
    second.add("a", 0.5, 1)
    assert begun(secret, clock).left("a", BUDGET) == Limits(2.5, 4)


def test_keys_and_changed_bindings_stay_beside_the_costs(secret: BindingSecret) -> None:
    keys = secret.keys()
    secret.keep({"uid": {"a": "b"}})
    begun(secret, Clock()).add("a", 1.0, 1)
    assert secret.keys() == keys
    assert secret.changed() == {"uid": {"a": "b"}}


def test_a_plan_that_did_not_begin_does_not_count(secret: BindingSecret) -> None:
    clock = Clock()
    spending = begun(secret, clock)
    spending.take_back(spending.add("a", 1.0, 1))
    assert spending.left("a", BUDGET) == begun(secret, clock).left("a", BUDGET) == Limits(4.0, 6)


def test_a_clock_that_is_ahead_delays_a_budget_by_no_more_than_an_hour(secret: BindingSecret) -> None:
    ahead, clock = Clock(), Clock()
    ahead.now += 10 * HOUR_S
    begun(secret, ahead).add("a", 1.0, 1)
    spending = begun(secret, clock)
    assert spending.left("a", BUDGET) == Limits(3.0, 5)
    clock.now += HOUR_S
    assert spending.left("a", BUDGET) == Limits(4.0, 6)


def test_costs_that_cannot_be_read_are_an_error(secret: BindingSecret) -> None:
    _, version = secret.read_moves()
    secret.write_moves(b"nothing of ours", version)
    with pytest.raises(KubeError, match="cannot be read"):
        begun(secret, Clock())


def test_without_a_secret_a_term_begins_anew() -> None:
    clock = Clock()
    spending = begun(None, clock)
    spending.add("a", 1.0, 1)
    assert spending.left("a", BUDGET) == Limits(3.0, 5)
    spending.begin_term(2)
    assert spending.left("a", BUDGET) == Limits(4.0, 6)


class Contested(BindingSecret):
    """Another replica writes between each reading and writing, for so many times."""

    rivals = 1

    def write_moves(self, text: bytes, version: str) -> None:
        if self.rivals:
            self.rivals -= 1
            self.keep({"uid": {"a": "b"}})
        super().write_moves(text, version)


def test_a_cost_is_written_again_if_the_secret_changes_meanwhile(secret: BindingSecret) -> None:
    contested = Contested(secret._kube, "hived-system", "hived-bindings")
    clock = Clock()
    begun(contested, clock).add("a", 1.0, 1)
    assert begun(secret, clock).left("a", BUDGET) == Limits(3.0, 5)
    contested.rivals = 9
    with pytest.raises(KubeError, match="has changed"):
        begun(contested, clock).add("a", 1.0, 1)
