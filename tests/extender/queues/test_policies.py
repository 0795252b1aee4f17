"""Kube Queue's policies, case by case: order, backfill, and when a head is tried again (rules 29.2, 29.4)."""

from typing import Any

import pytest
import yaml

from hived.values.errors import UserError
from hived_config.rules import QueuePolicy
from hived_extender.queues.policies import POLICIES, Blocks, Policy, policy_named
from tests.extender.queues.small import Desk, unit
from tests.places import ROOT

FILE = yaml.safe_load((ROOT / "tests" / "extender" / "queues" / "kube_queue_policies.yaml").read_text())
QUOTAS = yaml.safe_load((ROOT / "tests" / "extender" / "jobs" / "quotas" / "kube_queue_cases.yaml").read_text())


def desk_of(case: dict[str, Any], runs: int) -> Desk:
    """Queues of the policy of a case, with a job that runs."""
    desk = Desk(policy_named(case["policy"]), max_depth=case.get("depth", 0))
    assert desk.come(unit("runs", gpus=runs, priority=50)) == ["runs"]
    return desk


@pytest.mark.parametrize("case", FILE["order"], ids=lambda case: case["says"])
def test_the_order_of_jobs(case: dict[str, Any]) -> None:
    desk, started = desk_of(case, 4), ["runs"]
    assert desk.come(*(unit(name, gpus=gpus, **words) for name, gpus, words in case["jobs"])) == []
    while started[-1] != case["starts"][-1]:
        started += desk.end(started[-1], desk.now + 10.0)
    assert started[1:] == case["starts"]


@pytest.mark.parametrize("case", FILE["passes"], ids=lambda case: case["says"])
def test_who_goes_past_a_head(case: dict[str, Any]) -> None:
    jobs = [unit(name, gpus=gpus, **{"at": at, **words}) for at, (name, gpus, words) in enumerate(case["jobs"], 2)]
    assert desk_of(case, 2).come(*jobs) == case["starts"]


@pytest.mark.parametrize("case", FILE["blocks"], ids=lambda case: case["says"])
def test_when_a_head_is_tried_again(case: dict[str, Any]) -> None:
    blocks = Blocks()
    for tried in case["tried"]:
        blocks.refused("queue", "head", tried, 1)
    if case.get("started"):
        blocks.started("queue")
    assert blocks.may_try("queue", case.get("head", "head"), case["now"], 1 + case["changed"]) is case["may"]


@pytest.mark.parametrize("case", FILE["names"], ids=lambda case: case["says"] or "no name")
def test_the_names_of_policies(case: dict[str, Any]) -> None:
    assert policy_named(case["says"]).value == case["policy"]


def test_another_name_is_a_mistake() -> None:
    with pytest.raises(
        UserError, match="queue policy 'Fair' is unknown, expected one of hived, Priority, Block and Round"
    ):
        policy_named("Fair")


def test_filter_order_and_policies_have_sixty_cases_and_each_says_something_else() -> None:
    cases = [case["says"] for file in (FILE, QUOTAS) for part in file if part != "trees" for case in file[part]]
    assert len(cases) >= 60
    assert len(set(cases)) == len(cases)


@pytest.mark.parametrize("policy", QueuePolicy)
def test_each_policy_that_a_configuration_names_has_a_row(policy: QueuePolicy) -> None:
    assert policy_named(policy.value).row in POLICIES.values()


@pytest.mark.parametrize("policy", Policy)
def test_each_policy_goes_by_its_own_name(policy: Policy) -> None:
    assert policy_named(policy.value) is policy
