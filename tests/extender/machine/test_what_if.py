"""The outcomes of pods that do not exist yet."""

from collections import Counter
from typing import Any
from unittest.mock import patch

import pytest

from hived.scenario import Scenario
from hived_config.loader import load_text
from hived_extender.api.waiting import Victim, WhatIfArgs
from hived_extender.jobs.wire import decode_args, encode
from hived_extender.machine import questions
from hived_extender.machine.what_if import BESIDE
from tests.extender.machine.gangs.test_parts import CONFIG as PARTS
from tests.extender.machine.gangs.test_parts import LEAF_TYPE
from tests.extender.machine.small_cluster import spec_text
from tests.extender.machine.small_gangs import SmallGangCluster, koordinator

pytestmark = pytest.mark.sample(6)


def manifest(name: str, gpus: int, annotations: dict[str, str] | None = None, **spec: Any) -> dict[str, Any]:
    limits = {"nvidia.com/gpu": gpus} if gpus else {"cpu": 1}
    spec = {"schedulerName": "hived", "containers": [{"name": "main", "resources": {"limits": limits}}], **spec}
    return {"metadata": {"name": name, "namespace": "ns", "annotations": annotations or {}}, "spec": spec}


def outcomes(small: SmallGangCluster, *manifests: dict[str, Any]) -> list[tuple[str, str, str]]:
    """(outcome, node, reason) of each."""
    before = small.snapshot()
    found = small.service.what_if(decode_args(encode({"pods": list(manifests)}), WhatIfArgs).pods)
    assert small.snapshot() == before
    assert [one.name for one in found] == [one["metadata"]["name"] for one in manifests]
    return [(one.outcome, one.node, one.reason) for one in found]


def test_pods_of_a_gang_are_placed_together() -> None:
    small = SmallGangCluster()
    gang = koordinator("train", 3)
    found = outcomes(small, manifest("ps", 0, gang), manifest("w-0", 4, gang), manifest("w-1", 4, gang))
    assert found[0] == ("bind", "", "takes no cells: kube-scheduler chooses its node")
    assert [one[0] for one in found[1:]] == ["bind", "bind"]
    assert len({one[1] for one in found[1:]}) == 2


def test_a_gang_waits_as_a_whole() -> None:
    gang = koordinator("train", 3)
    found = outcomes(SmallGangCluster(), *(manifest(f"w-{number}", 4, gang) for number in range(3)))
    assert {one[0] for one in found} == {"never"}
    assert found[0][2] == "needs 3 nodes of 4 GPUs each at once; it can never run: a has 2 in all"


def test_pods_beyond_the_minimum_come_after_the_others() -> None:
    gang = koordinator("train", 2)
    found = outcomes(SmallGangCluster(), *(manifest(f"w-{number}", 4, gang) for number in range(3)))
    assert [one[0] for one in found] == ["bind", "bind", "wait"]


def test_a_pod_beyond_the_minimum_that_can_never_run_is_told_so() -> None:
    gang, small = koordinator("train", 2), SmallGangCluster()
    found = outcomes(small, *(manifest(f"w-{number}", size, gang) for number, size in enumerate((4, 4, 8))))
    assert [one[0] for one in found] == ["bind", "bind", "never"]
    assert "it can never run: " in found[2][2]


def test_a_pod_that_waits_beside_others_of_the_question_is_told_whether_it_is_for_these() -> None:
    small = SmallGangCluster()
    found = outcomes(small, *(manifest(name, 4) for name in ("one", "two", "three")), manifest("large", 8))
    assert found[2] == ("wait", "", f"{BESIDE}: insufficient capacity when scheduling in VC a")
    assert found[3] == outcomes(small, manifest("large", 8))[0]
    assert found[3][0] == "never"


def test_pods_beyond_the_minimum_stay_below_the_cell_of_the_others() -> None:
    gang = koordinator("train", 2) | {"hivedscheduler.microsoft.com/within-cell": "kubernetes.io/hostname"}
    found = outcomes(SmallGangCluster(), *(manifest(f"w-{number}", 1, gang) for number in range(5)))
    assert [one[0] for one in found] == ["bind", "bind", "bind", "bind", "wait"]
    assert len({one[1] for one in found[:4]}) == 1
    assert "beside affinity group podgroup/ns/train" in found[4][2]


def test_a_gang_that_lacks_pods_is_told_so() -> None:
    found = outcomes(SmallGangCluster(), manifest("w-0", 4, koordinator("train", 2)))
    assert found == [("wait", "", "rejected by podgroup/ns/train: 1 of 2 pods created (missing w-1)")]


def test_a_pod_without_a_namespace_is_asked_about_in_the_default_one() -> None:
    gang = koordinator("train", 2) | {"hivedscheduler.microsoft.com/virtual-cluster": "a"}
    pods = [manifest("w-0", 4, gang), manifest("w-1", 4, gang)]
    for pod in pods:
        del pod["metadata"]["namespace"]
    found = outcomes(SmallGangCluster(), *pods[:1])
    assert found == [("wait", "", "rejected by podgroup/default/train: 1 of 2 pods created (missing w-1)")]
    assert {one[0] for one in outcomes(SmallGangCluster(), *pods)} == {"bind"}


def test_what_is_placed_before_is_not_placed_again() -> None:
    found = outcomes(SmallGangCluster(), *(manifest(f"p-{number}", 4) for number in range(3)))
    assert [one[0] for one in found] == ["bind", "bind", "wait"]
    assert found[0][1] != found[1][1]


def test_a_quantity_of_thousands_of_digits_does_not_stop_the_service() -> None:
    small, spec = SmallGangCluster(), manifest("long", 4)
    spec["spec"]["containers"][0]["resources"]["requests"] = {"cpu": "1." + "0" * 5000 + "1"}
    assert outcomes(small, spec)[0][0] == "bind"
    assert small.service.fault == ""


def test_victims_are_counted() -> None:
    small = SmallGangCluster()
    for number in range(2):
        small.pod(f"w-{number}", 4)
    assert len(small.settle()) == 2
    found = outcomes(small, manifest("high", 4, priorityClassName="high", priority=1000))
    assert found[0][0] == "preempt"
    assert found[0][2].startswith("1 pod has to leave first, on n")


def test_victims_are_named_with_the_first_pod_that_needs_their_cells() -> None:
    small = SmallGangCluster()
    gang = koordinator("low", 2)
    for number in range(2):
        small.pod(f"w-{number}", 4, gang)
    assert len(small.settle()) == 2
    high = [manifest(f"h-{number}", 4, koordinator("high", 2), priorityClassName="high", priority=1000)
            for number in range(2)]  # fmt: skip
    found = small.service.what_if(decode_args(encode({"pods": high}), WhatIfArgs).pods)
    assert [one.outcome for one in found] == ["preempt", "preempt"]
    assert found[0].victims == [Victim("podgroup/ns/low", "ns", 2)]
    assert found[1].victims == []


def test_pods_of_one_question_have_victims_of_their_own() -> None:
    small = SmallGangCluster()
    for number in range(2):
        small.pod(f"w-{number}", 4)
    assert len(small.settle()) == 2
    high = [manifest(f"h-{number}", 4, priorityClassName="high", priority=1000) for number in range(3)]
    found = small.service.what_if(decode_args(encode({"pods": high}), WhatIfArgs).pods)
    assert [one.outcome for one in found] == ["preempt", "preempt", "wait"]
    assert sorted(one.name for each in found for one in each.victims) == ["ns/w-0", "ns/w-1"]


def test_pods_of_one_question_share_the_cells_of_a_victim() -> None:
    small = SmallGangCluster()
    small.pod("w-0", 4)
    small.pod("w-1", 4)
    assert len(small.settle()) == 2
    high = [manifest(f"h-{number}", 2, priorityClassName="high", priority=1000) for number in range(2)]
    found = small.service.what_if(decode_args(encode({"pods": high}), WhatIfArgs).pods)
    assert [(one.outcome, len(one.victims)) for one in found] == [("preempt", 1), ("bind", 0)]


def test_a_pod_that_waits_for_others_of_the_question_is_told_so_also_if_they_preempt() -> None:
    small = SmallGangCluster()
    small.pod("w-0", 4)
    assert len(small.settle()) == 1
    high = [manifest(f"h-{number}", 4, priorityClassName="high", priority=1000) for number in range(4)]
    found = outcomes(small, *high)
    assert [one[0] for one in found] == ["bind", "preempt", "wait", "wait"]
    assert {one[2] for one in found[2:]} == {f"{BESIDE}: insufficient capacity when scheduling in VC a"}


def test_victims_are_named_by_their_job() -> None:
    small = SmallGangCluster()
    for number in range(2):
        pod = small.pod(f"train-{number}", 4)
        owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": "u-train", "controller": True}
        pod["metadata"]["ownerReferences"] = [owner]
        small.kube.touch(pod)
        small.see(pod)
    assert len(small.settle()) == 2
    found = small.service.what_if(
        decode_args(encode({"pods": [manifest("h", 4, priorityClassName="high", priority=1000)]}), WhatIfArgs).pods
    )
    assert found[0].victims == [Victim("Job/ns/train", "ns", 1)]


def test_our_own_annotation_is_read_and_mistakes_are_told() -> None:
    key = "hivedscheduler.microsoft.com/pod-scheduling-spec"
    group = {key: spec_text(group="g", pods=2)}
    found = outcomes(
        SmallGangCluster(),
        manifest("a", 4, group),
        manifest("b", 4, group),
        manifest("c", 4, {key: "{}"}),
        manifest("d", 4, schedulerName="other"),
    )
    assert [one[0] for one in found] == ["bind", "bind", "refused", "not-ours"]
    assert found[0][1] != found[1][1]
    assert "VirtualCluster is empty" in found[2][2]


@pytest.mark.parametrize(
    ("name", "what"), [("nowhere", "there is no node nowhere"), ("n0", "hived chooses the node of this pod")]
)
def test_a_pod_that_names_its_node_is_refused(name: str, what: str) -> None:
    small = SmallGangCluster()
    found = outcomes(small, manifest("w-0", 4, nodeName=name))
    assert found == [("refused", "", f"spec.nodeName: {what}; leave the field out")]


def test_a_gang_of_two_kinds_that_fits_in_part_leaves_its_cells_to_others() -> None:
    small = SmallGangCluster(spec=load_text(PARTS, "parts.yaml", environ={}).cluster)
    gang = koordinator("train", 3)
    found = outcomes(
        small,
        manifest("a-0", 4, gang | {LEAF_TYPE: "FAST"}),
        manifest("b-0", 4, gang | {LEAF_TYPE: "SLOW"}),
        manifest("b-1", 4, gang | {LEAF_TYPE: "SLOW"}),
        *(manifest(f"fast-{number}", 4, {LEAF_TYPE: "FAST"}) for number in range(2)),
    )
    assert [one[0] for one in found] == ["never", "never", "never", "bind", "bind"]


def test_what_many_pods_cost_grows_with_their_number_alone() -> None:
    small = SmallGangCluster()
    here = patch.object(questions, "compute_apart", lambda compute, lock, longest_s: compute())
    with here, patch.object(Scenario, "_plan_one", autospec=True, side_effect=Scenario._plan_one) as plan_one:
        found = outcomes(small, *(manifest(f"p-{number}", 1) for number in range(60)))
    assert Counter(one[0] for one in found) == {"bind": 8, "wait": 52}
    assert plan_one.call_count == 61, "each once, and those that wait once without the others"
