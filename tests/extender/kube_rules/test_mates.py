"""The effects of the pods of one gang on each other, in the words of the core."""

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from hived.values.errors import UserError
from hived.values.events import Limit, Spread, Together
from hived_extender.kube_rules.demands import RuledPod
from hived_extender.kube_rules.mates import MOST_RULES, MOST_TERMS, Rule, Surroundings, mate_rules
from hived_extender.kube_rules.nodes import NodeRules
from hived_extender.kube_rules.residents import Residents
from tests.extender.kube_rules.objects import HOSTNAME, ZONE, host_port, make_pod, pod_affinity, spread, wire_node

NAMES = ("n0", "n1", "n2", "n3")
LABELS = {"app": "train"}


def surroundings(residents: Residents | None = None, **fields: Any) -> Surroundings:
    """Four nodes of 8 leaf cells in two zones; the last node is in none."""
    nodes = NodeRules(NAMES)
    for name, zone in zip(NAMES, ("a", "a", "b", None), strict=True):
        nodes.put(wire_node(name, {ZONE: zone} if zone else {}))
    leaf_counts = np.full(len(NAMES), 8, np.int32)
    return Surroundings(nodes, leaf_counts, residents or Residents(NAMES), devices=("nvidia.com/gpu",), **fields)


def gang(spec: dict[str, Any], count: int = 3, **limits: str) -> list[RuledPod]:
    return [make_pod(spec, labels={**LABELS, "index": str(index)}, limits=limits) for index in range(count)]


def rules_of(
    pods: list[RuledPod], leaf_count: int = 4, residents: Residents | None = None, **fields: Any
) -> tuple[Rule, ...]:
    return mate_rules(pods, [leaf_count] * len(pods), surroundings(residents, **fields))


def said(rule: Rule) -> list[list[int]]:
    return [np.asarray(getattr(rule, each)).tolist() for each in rule.__slots__]


def test_a_gang_without_rules_has_none() -> None:
    assert rules_of(gang({}, cpu="8")) == ()


def test_a_single_pod_has_no_mates() -> None:
    assert rules_of(gang({**pod_affinity("podAntiAffinity"), **spread()}, count=1)) == ()


def test_anti_affinity_between_mates_allows_one_in_a_domain() -> None:
    (rule,) = rules_of(gang(pod_affinity("podAntiAffinity")))
    assert isinstance(rule, Limit)
    assert said(rule) == [[0, 1, 2, 3], [1, 1, 1], [1, 1, 1, 1]]


def test_anti_affinity_does_not_bind_where_the_label_is_missing() -> None:
    (rule,) = rules_of(gang(pod_affinity("podAntiAffinity", key=ZONE)))
    assert said(rule) == [[0, 0, 1, 2], [1, 1, 1], [1, 1, 3]]


def test_anti_affinity_by_node_says_nothing_of_pods_that_take_whole_nodes() -> None:
    assert rules_of(gang(pod_affinity("podAntiAffinity")), leaf_count=8) == ()
    assert len(rules_of(gang(pod_affinity("podAntiAffinity", key=ZONE)), leaf_count=8)) == 1


def test_anti_affinity_against_others_says_nothing_between_mates() -> None:
    assert rules_of(gang(pod_affinity("podAntiAffinity", app="web"))) == ()


def excluding(count: int, others: Callable[[int], list[str]]) -> list[RuledPod]:
    """Pods of as many jobs, each with a term of its own against the jobs that `others` names."""
    return [
        make_pod(
            {
                "affinity": {
                    "podAntiAffinity": {
                        "requiredDuringSchedulingIgnoredDuringExecution": [
                            {
                                "topologyKey": ZONE,
                                "labelSelector": {
                                    "matchExpressions": [{"key": "job", "operator": "In", "values": others(job)}]
                                },
                            }
                        ]
                    }
                }
            },
            labels={"job": str(job)},
        )
        for job in range(count)
    ]


def test_jobs_that_all_exclude_each_other_make_one_rule() -> None:
    (rule,) = rules_of(excluding(100, lambda job: [str(other) for other in range(100) if other != job]), leaf_count=1)
    assert said(rule)[1:] == [[1] * 100, [1, 1, 100]]


def test_jobs_of_which_two_bear_each_other_make_more() -> None:
    def others(job: int) -> list[str]:
        return [str(other) for other in range(4) if other != job and {job, other} != {0, 1}]

    assert len(rules_of(excluding(4, others))) == 4


@pytest.mark.parametrize(("count", "most"), [(MOST_RULES + 1, MOST_RULES), (MOST_TERMS + 1, MOST_TERMS)])
def test_a_gang_with_too_many_different_rules_is_refused(count: int, most: int) -> None:
    def next_one(job: int) -> list[str]:
        return [str((job + 1) % count)]

    with pytest.raises(UserError) as refused:
        rules_of(excluding(count, next_one), leaf_count=1)
    assert refused.value.message.startswith(
        f"the pods of its gang have {count} different rules about each other, at most {most} are possible: "
    )


def test_workers_that_avoid_their_master_do_not_avoid_each_other() -> None:
    master = make_pod(labels={"app": "master"})
    (rule,) = rules_of([master, *gang(pod_affinity("podAntiAffinity", app="master"))])
    assert said(rule) == [[0, 1, 2, 3], [3, 1, 1, 1], [3, 3, 3, 3]]


def test_affinity_to_mates_brings_them_together() -> None:
    (rule,) = rules_of(gang(pod_affinity("podAffinity", key=ZONE)))
    assert isinstance(rule, Together)
    assert said(rule) == [[0, 0, 1, -1], [True, True, True]]


def test_affinity_is_left_to_the_offer_where_pods_that_are_meant_run_already() -> None:
    residents = Residents(NAMES)
    residents.put("u", "n2", make_pod(labels=LABELS))
    assert rules_of(gang(pod_affinity("podAffinity", key=ZONE)), residents=residents) == ()


def test_workers_come_to_the_master_that_they_have_affinity_to() -> None:
    stranger, master = make_pod(), make_pod(labels={"app": "master"})
    (rule,) = rules_of([stranger, master, *gang(pod_affinity("podAffinity", app="master"), 2)])
    assert said(rule)[1] == [False, True, True, True]


def test_spread_counts_mates_and_pods_that_run() -> None:
    residents = Residents(NAMES)
    residents.put("mine", "n1", make_pod(labels=LABELS))
    residents.put("leaving", "n2", make_pod(labels=LABELS), is_leaving=True)
    residents.put("elsewhere", "n2", make_pod(labels=LABELS, namespace="other"))
    residents.put("stranger", "n2", make_pod())
    (rule,) = rules_of(gang(spread(max_skew=2)), residents=residents)
    assert isinstance(rule, Spread)
    assert said(rule) == [[0, 0, 1, -1], [True, True, True], [1, 0], 2]


def test_too_few_domains_keep_the_least_at_zero() -> None:
    (rule,) = rules_of(gang(spread(minDomains=3)))
    assert said(rule)[2] == [0, 0, 0]


def test_spread_between_whole_nodes_holds_too() -> None:
    (rule,) = rules_of(gang(spread(key=HOSTNAME)), leaf_count=8)
    assert said(rule)[0] == [0, 1, 2, 3]


def test_spread_that_counts_others_or_everybody_says_nothing_between_mates() -> None:
    assert rules_of(gang(spread(app="web"))) == ()
    assert rules_of(gang(spread(labelSelector={}))) == ()


def test_a_host_port_is_there_once_on_each_node() -> None:
    (rule,) = rules_of(gang(host_port()))
    assert said(rule) == [[0, 1, 2, 3], [1, 1, 1], [1, 1, 1, 1]]


def test_host_ports_of_different_addresses_do_not_conflict() -> None:
    assert rules_of([*gang(host_port(ip="10.0.0.1"), 1), *gang(host_port(ip="10.0.0.2"), 1)]) == ()
    anywhere = [*gang(host_port(ip="10.0.0.1"), 1), *gang(host_port(ip="10.0.0.2"), 1), *gang(host_port(), 1)]
    assert [said(rule)[1] for rule in rules_of(anywhere)] == [[1, 0, 1], [0, 1, 1]]


def test_two_rules_that_say_the_same_are_one() -> None:
    assert len(rules_of(gang({**pod_affinity("podAntiAffinity"), **host_port()}))) == 1


def test_cpu_that_two_mates_do_not_find_on_a_node_is_limited() -> None:
    (rule,) = rules_of(gang({}, cpu="40", memory="8Gi"))
    assert said(rule) == [[0, 1, 2, 3], [40_000] * 3, [64_000] * 4]


def test_pods_that_run_take_from_the_room() -> None:
    residents = Residents(NAMES)
    residents.put("u", "n1", make_pod(limits={"cpu": "40"}))
    (rule,) = rules_of(gang({}, cpu="20"), residents=residents)
    assert said(rule)[2] == [64_000, 24_000, 64_000, 64_000]


def test_pods_that_have_to_leave_first_take_nothing_from_the_room() -> None:
    residents = Residents(NAMES)
    residents.put("u", "n1", make_pod(limits={"cpu": "40"}))
    emptied = np.array([False, True, False, False])
    assert rules_of(gang({}, cpu="20"), residents=residents, emptied=emptied) == ()


def test_a_node_that_has_no_room_for_any_of_them_is_no_reason_for_a_limit() -> None:
    residents = Residents(NAMES)
    residents.put("u", "n1", make_pod(limits={"cpu": "60"}))
    assert rules_of(gang({}, cpu="8"), residents=residents) == ()


def test_nothing_is_found_out_of_resources_that_no_node_has() -> None:
    asked: list[str] = []

    class Watched(Residents):
        def requested(self, resource: str, node_count: int) -> npt.NDArray[np.int64]:
            asked.append(resource)
            return super().requested(resource, node_count)

    residents = Watched(NAMES)
    residents.put("u", "n3", make_pod())
    made_up = {f"made.up/{number}": "1" for number in range(100)}
    (rule,) = rules_of(gang({}, cpu="40", **made_up), residents=residents)
    assert said(rule)[1] == [40_000] * 3
    assert asked == ["cpu"]


def test_devices_and_pods_that_take_whole_nodes_need_no_limit() -> None:
    assert rules_of(gang({}, **{"nvidia.com/gpu": "4"})) == ()
    assert rules_of(gang({}, cpu="40"), leaf_count=8) == ()
