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
from tests.extender.kube_rules.objects import (
    HOSTNAME,
    ZONE,
    expression,
    host_port,
    make_pod,
    pod_affinity,
    spread,
    wire_node,
)

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


def running(*names: str, **pod: Any) -> Residents:
    """A pod on each of these nodes."""
    residents = Residents(NAMES)
    for name in names:
        residents.put(name, name, make_pod(**pod))
    return residents


ANTI, ANTI_ZONE, WITH_ZONE = (
    pod_affinity("podAntiAffinity"),
    pod_affinity("podAntiAffinity", key=ZONE),
    pod_affinity("podAffinity", key=ZONE),
)
BY_NODE, BY_ZONE, IN_ZONE = [0, 1, 2, 3], [0, 0, 1, 2], [0, 0, 1, -1]
ONCE_ON_EACH = Limit, BY_NODE, [1, 1, 1], [1, 1, 1, 1]
PORTS = [gang(host_port(ip=ip), 1)[0] for ip in ("10.0.0.1", "10.0.0.2", "")]
MASTER = make_pod(labels={"app": "master"})


@pytest.mark.parametrize(
    ("pods", "more", "expected"),
    [
        (gang({}, cpu="8"), {}, []),
        # a single pod has no mates
        (gang({**ANTI, **spread()}, count=1), {}, []),
        (gang(ANTI), {}, [ONCE_ON_EACH]),
        # anti-affinity does not bind where the label is missing
        (gang(ANTI_ZONE), {}, [(Limit, BY_ZONE, [1, 1, 1], [1, 1, 3])]),
        # between pods that take whole nodes, rules by node say nothing new
        (gang(ANTI), {"leaf_count": 8}, []),
        (gang(ANTI_ZONE), {"leaf_count": 8}, [(Limit, BY_ZONE, [1, 1, 1], [1, 1, 3])]),
        (gang({}, cpu="40"), {"leaf_count": 8}, []),
        # against others only
        (gang(pod_affinity("podAntiAffinity", app="web")), {}, []),
        # workers that avoid their master do not avoid each other
        (
            [MASTER, *gang(pod_affinity("podAntiAffinity", app="master"))],
            {},
            [(Limit, BY_NODE, [3, 1, 1, 1], [3, 3, 3, 3])],
        ),
        (gang(WITH_ZONE), {}, [(Together, IN_ZONE, [True, True, True])]),
        # pods that are meant run already: it is left to the offer
        (gang(WITH_ZONE), {"residents": running("n2", labels=LABELS)}, []),
        # workers come to the master that they have affinity to
        (
            [make_pod(), MASTER, *gang(pod_affinity("podAffinity", app="master"), 2)],
            {},
            [(Together, BY_NODE, [False, True, True, True])],
        ),
        # too few domains keep the least at zero
        (gang(spread(minDomains=3)), {}, [(Spread, IN_ZONE, [True, True, True], [0, 0, 0], 1)]),
        (gang(spread(key=HOSTNAME)), {"leaf_count": 8}, [(Spread, BY_NODE, [True] * 3, [0, 0, 0, 0], 1)]),
        # spread that counts others, or everybody
        (gang(spread(app="web")), {}, []),
        (gang(spread(labelSelector={})), {}, []),
        (gang(host_port()), {}, [ONCE_ON_EACH]),
        # ports of different addresses do not conflict, and one of every address does with each
        (PORTS[:2], {}, []),
        (PORTS, {}, [(Limit, BY_NODE, [1, 0, 1], [1] * 4), (Limit, BY_NODE, [0, 1, 1], [1] * 4)]),
        # two rules that say the same are one
        (gang({**ANTI, **host_port()}), {}, [ONCE_ON_EACH]),
        # cpu that two mates do not find on a node, beside pods that run, and without those that have to leave first
        (gang({}, cpu="40", memory="8Gi"), {}, [(Limit, BY_NODE, [40_000] * 3, [64_000] * 4)]),
        (
            gang({}, cpu="20"),
            {"residents": running("n1", limits={"cpu": "40"})},
            [(Limit, BY_NODE, [20_000] * 3, [64_000, 24_000, 64_000, 64_000])],
        ),
        (gang({}, cpu="20"), {"residents": running("n1", limits={"cpu": "40"}), "emptied": np.arange(4) == 1}, []),
        # a node that has no room for any of them is no reason for a limit
        (gang({}, cpu="8"), {"residents": running("n1", limits={"cpu": "60"})}, []),
        # the core counts devices
        (gang({}, **{"nvidia.com/gpu": "4"}), {}, []),
    ],
)
def test_rules_between_mates(pods: list[RuledPod], more: dict[str, Any], expected: list[tuple[object, ...]]) -> None:
    assert [(type(rule), *said(rule)) for rule in rules_of(pods, **more)] == expected


def excluding(count: int, others: Callable[[int], list[str]]) -> list[RuledPod]:
    """Pods of as many jobs, each with a term of its own against the jobs that `others` names."""
    selectors = [{"matchExpressions": [expression("job", "In", *others(job))]} for job in range(count)]
    return [
        make_pod(pod_affinity("podAntiAffinity", key=ZONE, labelSelector=selector), labels={"job": str(job)})
        for job, selector in enumerate(selectors)
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


def test_spread_counts_mates_and_pods_that_run() -> None:
    residents = Residents(NAMES)
    residents.put("mine", "n1", make_pod(labels=LABELS))
    residents.put("leaving", "n2", make_pod(labels=LABELS), is_leaving=True)
    residents.put("elsewhere", "n2", make_pod(labels=LABELS, namespace="other"))
    residents.put("stranger", "n2", make_pod())
    (rule,) = rules_of(gang(spread(max_skew=2)), residents=residents)
    assert isinstance(rule, Spread)
    assert said(rule) == [[0, 0, 1, -1], [True, True, True], [1, 0], 2]


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
