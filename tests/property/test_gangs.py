"""Gangs of all dialects keep what their authors asked for, whatever happens to pods, nodes and scheduler.

`gang_rules` says what that is. `make soak` has longer runs.
"""

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st
from hypothesis.strategies import DataObject

from hived_extender.machine.effects import EvictPod
from tests.extender.machine.small_gangs import koordinator
from tests.property.choices import Choices, Drawn, Seeded
from tests.property.examples import examples
from tests.property.gang_jobs import NAMESPACES, NODE_SIZE, Gang, Job, Template, make_job
from tests.property.gang_rules import VC_SIZES
from tests.property.gang_run import FICKLE, GangRun, make_run
from tests.property.soak import STEPS_PER_GANG_RUN, run_gangs

ORDERS = 4
ARRIVAL = {"create": 9, "describe": 5, "ungate": 3, "ask": 5, "turn": 5, "bind": 5, "hear": 5, "work": 3, "nudge": 3}


@pytest.mark.sample(1)
@pytest.mark.parametrize("seed", range(examples(6)))
def test_a_long_random_run_breaks_no_rule(seed: int, tmp_path: Path) -> None:
    told = run_gangs(seed, STEPS_PER_GANG_RUN, tmp_path)
    assert told.count("\n") > STEPS_PER_GANG_RUN


@pytest.mark.long
@pytest.mark.parametrize("seed", range(examples(8)))
def test_nor_does_one_in_which_kube_scheduler_changes_its_mind(seed: int, tmp_path: Path) -> None:
    told = run_gangs(seed, STEPS_PER_GANG_RUN, tmp_path, FICKLE)
    assert told.count("\n") > STEPS_PER_GANG_RUN


@pytest.mark.long
def test_a_run_is_the_same_every_time(tmp_path: Path) -> None:
    first, second = (run_gangs(5, STEPS_PER_GANG_RUN, tmp_path) for _ in range(2))
    assert first == second


@settings(max_examples=examples(20), suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_no_short_run_breaks_a_rule(data: DataObject) -> None:
    run = make_run(Choices(Drawn(data)), 1, 2)
    try:
        for _ in range(30):
            run.step()
        run.settle()
    finally:
        note(str(run))
    assert not run.leader.service.fault


@pytest.mark.long
@pytest.mark.parametrize("seed", range(examples(8)))
def test_with_room_for_all_any_order_of_arrival_ends_alike(seed: int) -> None:
    size = Choices(Seeded(seed)).pick((4, 2, 1))
    ends = [arrive(seed, size, order) for order in range(ORDERS)]
    assert ends == [ends[0]] * ORDERS


def arrive(seed: int, size: int, order: int) -> tuple[set[str], list[int]]:
    """Which pods run after they came in this order, and, if each fills its node, how full the nodes are."""
    run = GangRun(Choices(Seeded(order)), fitting_jobs(Choices(Seeded(seed)), size))
    while run.is_expecting:
        run.step(ARRIVAL)
    run.settle()
    names = {name for name, pod in run.api.pods.items() if pod["spec"]["nodeName"]}
    assert names == {template.name for job in run.jobs for template in job.templates}
    used = Counter(
        pod["spec"]["nodeName"] for pod in run.api.pods.values() if run.templates[pod["metadata"]["uid"]].gpus
    )
    return names, sorted(used.values()) if size == 4 else []


def fitting_jobs(choices: Choices, size: int) -> list[Job]:
    """Jobs whose pods have devices of this number each, or none, and all find room in their virtual clusters."""
    jobs: list[Job] = []
    left = dict(VC_SIZES)
    for number in range(8):
        job = make_job(choices, f"j{number}", sizes=(size, size, 0), guaranteed=True)
        needed = sum(template.gpus for template in job.templates)
        if needed <= left[NAMESPACES[job.namespace]]:
            left[NAMESPACES[job.namespace]] -= needed
            jobs.append(job)
    return jobs


def test_no_run_is_at_rest_while_a_victim_is_still_to_leave() -> None:
    """The pod was spared while it was to be evicted, and has to leave again."""
    victim, gang = whole_vc("victim", ""), whole_vc("gang", "high")
    run = GangRun(Choices(Seeded(0)), [victim, gang])
    run._create(victim.templates[0])
    run.rest(run.scheduler.is_due)
    (node,) = (pod["spec"]["nodeName"] for pod in run.api.pods.values())
    run._create(gang.templates[0])
    for is_healthy in (True, False):
        run._set_node([node], is_healthy)
        run.leader.hear()
        run.ask(run.api.pods["gang-w-0"])
    assert [effect.pod.name for effect, _ in run.leader.runner.jobs if isinstance(effect, EvictPod)] == ["victim-w-0"]
    run.settle()
    assert {name: pod["spec"]["nodeName"] for name, pod in run.api.pods.items()} == {"gang-w-0": node}


def whole_vc(name: str, priority_class: str) -> Job:
    """A gang of one pod that takes all of VC b, in words of koordinator."""
    job = Job(name, "other", priority_class, {name: Gang(name, 1)})
    template = Template(f"{name}-w-0", job, NODE_SIZE, name, annotations=koordinator(name, 1))
    job.templates = [replace(template, spec={"priorityClassName": priority_class} if priority_class else {})]
    return job
