"""Queued jobs while another configuration comes into force: what its plan says of them, and what becomes of them."""

import pytest

from hived_config.loader import load_text
from hived_extender.reconfiguration.change import Change
from hived_extender.reconfiguration.judging import Verdict, news_of
from tests.extender.machine.small_cluster import CONFIG
from tests.extender.queues.by_hand import QueuesByHand

QUEUED = "rules: 2\nqueues: {enabled: true}\n" + CONFIG
SMALLER = QUEUED.replace("cellNumber: 2}]", "cellNumber: 1}]")


@pytest.mark.parametrize("text", [SMALLER, SMALLER.replace("enabled: true", "enabled: false")], ids=["queued", "off"])
def test_a_plan_names_all_pods_of_a_queued_job_that_lose_their_place(text: str) -> None:
    """Queues lend a job all of its cells or none; without queues its other pod keeps its own."""
    queues = QueuesByHand()
    queues.create("train", 2)
    queues.look()
    queues.bring_pods("train")
    queues.look()
    service = queues.cluster.service
    change = Change(load_text(QUEUED, "file"), load_text(text, "file"), None, 1)
    outcome = change.outcome(*change.catch_up_with(service))
    planned = {one.name for one in outcome.affected if one.verdict is Verdict.LAZILY_PREEMPTED}
    assert len(planned) == (2 if text == SMALLER else 1)
    change.switch(service, {one.name: one.verdict.value for one in outcome.affected})
    if text == SMALLER:
        queues.begin_anew()
    core = service.machine.cache.core
    assert core is not None
    assert {name for name in core.state.groups if core.is_lent(name)} == planned
    assert all(news_of(one) for one in outcome.affected)
    assert len({one.reason for one in outcome.affected}) == len(planned)
