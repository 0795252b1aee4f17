"""The admission check on an embedded cluster: what hived writes into Kueue's objects."""

import pytest

from tests.expecting import expect_soon
from tests.extender.queues.kueue.kueue_by_hand import KueueByHand
from tests.extender.queues.kueue.workload_objects import CHECK, pod_set, template

pytestmark = pytest.mark.sample(3)


def test_our_checks_become_active_and_others_do_not(kueue: KueueByHand) -> None:
    kueue.declare("theirs", controller="kueue.x-k8s.io/provisioning-request")
    kueue.declare()
    expect_soon(kueue.is_active)
    assert not kueue.is_active("theirs")


def test_a_workload_without_devices_is_ready_and_other_checks_stay(kueue: KueueByHand) -> None:
    kueue.declare()
    kueue.queue("job-cpu", pod_set(made_of=template(0)))
    kueue.reserve("job-cpu", "theirs", CHECK)
    found = kueue.expect("job-cpu", "Ready", "none of its pods asks hived for devices")
    assert "podSetUpdates" not in found
    assert kueue.check("job-cpu", "theirs")["state"] == "Pending"


def test_a_mistake_is_rejected_with_the_words_that_pods_get(kueue: KueueByHand) -> None:
    kueue.declare()
    kueue.queue("job-odd", pod_set(made_of=template(virtual_cluster="nobody")))
    kueue.reserve("job-odd")
    found = kueue.expect("job-odd", "Rejected", "set it to a virtual cluster: ")
    assert found["message"].startswith("pod set main: hivedscheduler.microsoft.com/virtual-cluster is 'nobody'")


def test_labels_that_no_node_has_are_named(kueue: KueueByHand) -> None:
    """Those of the flavor, and those of the template."""
    kueue.declare()
    kueue.add_flavor("a100", gpu="odd")
    kueue.queue("job-train", pod_set(made_of=template(4, node_selector={"disk": "fast"})))
    kueue.reserve("job-train")
    kueue.expect("job-train", "Pending", "no node has the labels that it selects: disk=fast and gpu=odd")


def test_nothing_is_written_before_there_is_quota(kueue: KueueByHand) -> None:
    kueue.declare()
    expect_soon(kueue.is_active)
    kueue.queue("job-cpu", pod_set(made_of=template(0)))
    kueue.queue("job-later", pod_set(made_of=template(0)))
    kueue.reserve("job-later")
    kueue.expect("job-later", "Ready")
    assert "status" not in kueue.get("job-cpu") or not kueue.get("job-cpu")["status"]
