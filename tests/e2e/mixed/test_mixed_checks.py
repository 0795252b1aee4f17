"""Each check of the observer's notes finds what was planted, and nothing where all is well."""

from dataclasses import replace
from typing import Any

from tests.e2e.mixed.checks import happened, violations
from tests.e2e.mixed.facts import NodeSeen, PodSeen, Seen, Taint, node_seen, pod_seen
from tests.e2e.mixed.waits import longest_unpaused_s, waits

SHARES = {"alpha": 1, "beta": 1}
TAINT = Taint("maintenance", "", "NoSchedule")


class Notes:
    """Notes in order, a second apart but for what `wait` adds."""

    def __init__(self) -> None:
        self.notes: list[Seen] = []
        self.now = 100.0
        for name in ("n0", "n1"):
            self.node(name)

    def node(self, name: str, devices: int = 8, *taints: Taint, **fields: bool) -> None:
        self._note(NodeSeen(name, len(self.notes), self.now, devices, 8, taints, **fields))

    def pod(self, name: str, node: str = "", leaves: str = "", devices: int = 4, **fields: Any) -> None:
        """A version of a pod of ours, of VC alpha unless said otherwise; `job=""` makes it a pod of others."""
        seen = PodSeen(name, name, len(self.notes), self.now, node, devices, tuple(leaves))
        self._note(replace(seen, **{"job": "job", "vc": "alpha", **fields}))

    def wait(self, seconds: float) -> None:
        self.now += seconds

    def violations(self) -> list[str]:
        return violations(self.notes, SHARES)

    def waits(self, *pauses: tuple[float, float]) -> list[str]:
        return waits([*self.notes, replace(self.notes[0], at=self.now)], SHARES, pauses)

    def _note(self, seen: Seen) -> None:
        self.notes.append(seen)
        self.now += 1.0


def test_a_cluster_that_is_used_as_it_may_be_has_no_violation() -> None:
    notes = Notes()
    notes.pod("one")
    notes.pod("one", "n0", "0123")
    notes.pod("other", "n0", "4567")
    notes.pod("one", "n0", "0123", is_completed=True)
    notes.pod("next", "n0", "0123")
    assert notes.violations() == []


def test_a_device_of_two_pods_is_found() -> None:
    notes = Notes()
    notes.pod("one", "n0", "0123")
    notes.pod("two", "n0", "3456")
    assert notes.violations() == ["two was bound to n0 at 103.0 with devices 3 that one holds"]


def test_a_pod_without_its_devices_is_found() -> None:
    notes = Notes()
    notes.pod("bare", "n0")
    assert notes.violations() == ["bare was bound to n0 at 102.0 with devices none, and asks for 4"]


def test_a_binding_to_a_tainted_node_is_found() -> None:
    notes = Notes()
    notes.node("n0", 8, TAINT)
    notes.wait(3)
    notes.pod("one", "n0", "0123")
    assert notes.violations() == ["one was bound to n0 at 106.0 with untolerated taints (maintenance:NoSchedule)"]


def test_a_taint_that_came_just_before_the_binding_or_is_tolerated_is_no_violation() -> None:
    notes = Notes()
    notes.node("n0", 8, TAINT)
    notes.pod("one", "n0", "0123")
    notes.wait(3)
    notes.pod("hardy", "n0", "4567", tolerations=({"key": "maintenance", "operator": "Exists"},))
    assert notes.violations() == []


def test_more_devices_than_a_node_offers_are_found() -> None:
    notes = Notes()
    notes.node("n0", 3)
    notes.wait(3)
    notes.pod("one", "n0", "0123")
    assert notes.violations() == [
        "one was bound to n0 at 106.0: 4 of 3 devices are in use there, by nobody else and it"
    ]


def test_devices_that_were_lost_after_the_binding_are_no_violation() -> None:
    notes = Notes()
    notes.pod("one", "n0", "0123")
    notes.wait(3)
    notes.node("n0", 3)
    assert notes.violations() == []


def test_a_binding_onto_devices_of_others_is_found() -> None:
    notes = Notes()
    notes.pod("foreign", "n0", devices=6, job="")
    notes.wait(3)
    notes.pod("one", "n0", "0123")
    [found] = notes.violations()
    assert found == "one was bound to n0 at 106.0: 10 of 8 devices are in use there, by foreign (6) and it"


def test_a_pod_of_others_that_comes_later_or_at_the_same_moment_is_no_violation() -> None:
    notes = Notes()
    notes.pod("foreign", "n0", devices=6, job="")
    notes.pod("one", "n0", "0123")
    notes.wait(3)
    notes.pod("late", "n0", devices=8, job="")
    assert notes.violations() == []


def test_pods_beside_each_other_that_have_to_be_apart_are_found() -> None:
    notes = Notes()
    notes.pod("one", "n0", "0123", is_apart=True)
    notes.pod("two", "n0", "4567", is_apart=True)
    assert notes.violations() == ["two was bound to n0 at 103.0 beside one, from which it has to be apart"]


def test_a_virtual_cluster_beyond_its_share_is_found() -> None:
    notes = Notes()
    notes.pod("one", "n0", "0123")
    notes.pod("two", "n1", "0123")
    assert notes.violations() == ["two was bound to n1 at 103.0: alpha has 1 nodes and uses n0, n1"]


def test_a_pod_that_waits_beside_an_empty_node_is_found() -> None:
    notes = Notes()
    notes.pod("one")
    notes.wait(9.5)
    [found] = notes.waits()
    assert found == "one (4 devices, guaranteed in alpha) waited beside n0 from 102.0 to 112.5"


def test_a_pod_that_is_bound_in_time_has_not_waited() -> None:
    notes = Notes()
    notes.pod("one")
    notes.wait(8)
    notes.pod("one", "n0", "0123")
    notes.wait(20)
    assert notes.waits() == []


def test_no_pod_waits_beside_a_node_that_it_may_not_have() -> None:
    notes = Notes()
    notes.node("n0", 8, TAINT)
    notes.node("n1", 7)
    notes.pod("one")
    notes.wait(20)
    assert notes.waits() == []


def test_no_pod_waits_whose_virtual_cluster_has_used_its_share() -> None:
    notes = Notes()
    notes.pod("one", "n0", "0123")
    notes.pod("two")
    notes.wait(20)
    assert notes.waits() == []


def test_no_pod_has_a_claim_to_the_node_that_others_are_promised() -> None:
    notes = Notes()
    notes.node("n0", is_ready=False)
    notes.pod("one", vc="beta")
    notes.wait(20)
    assert notes.waits() == []


def test_opportunistic_pods_may_have_any_empty_node() -> None:
    notes = Notes()
    notes.node("n0", is_ready=False)
    notes.pod("one", vc="beta", priority=-1)
    notes.wait(20)
    [found] = notes.waits()
    assert found.startswith("one (4 devices, opportunistic in beta) waited beside n1")


def test_waits_do_not_count_while_something_is_broken() -> None:
    notes = Notes()
    notes.pod("one")
    notes.wait(20)
    assert notes.waits((105.0, 115.0)) == []
    assert len(notes.waits((99.0, 103.0))) == 1


def test_pauses_cut_an_interval_into_pieces() -> None:
    assert longest_unpaused_s(0, 30, []) == 30
    assert longest_unpaused_s(0, 30, [(4, 10), (8, 12), (15, 16)]) == 14
    assert longest_unpaused_s(0, 30, [(-5, 50)]) == 0
    assert longest_unpaused_s(0, 30, [(-9, -5), (40, 50)]) == 30


def test_versions_are_read_from_objects_of_the_api() -> None:
    node = {
        "metadata": {"name": "n0", "resourceVersion": "7"},
        "spec": {"taints": [{"key": "a", "effect": "NoExecute"}, {"key": "b", "effect": "PreferNoSchedule"}]},
        "status": {
            "allocatable": {"nvidia.com/gpu": "6"}, "capacity": {"nvidia.com/gpu": "8"},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }  # fmt: skip
    assert node_seen(node, 1.0) == NodeSeen("n0", 7, 1.0, 6, 8, (Taint("a", "", "NoExecute"),))
    pod = {
        "metadata": {
            "uid": "u", "name": "p", "resourceVersion": "8", "labels": {"mixed/job": "j"},
            "annotations": {"hivedscheduler.microsoft.com/pod-leaf-cell-isolation": "0,1", "mixed/vc": "alpha"},
        },
        "spec": {"nodeName": "n0", "containers": [{"resources": {"limits": {"nvidia.com/gpu": "2"}}}]},
    }  # fmt: skip
    assert pod_seen(pod, 2.0) == PodSeen("u", "p", 8, 2.0, "n0", 2, ("0", "1"), "j", "alpha")


def test_there_is_a_count_of_all_that_happened() -> None:
    notes = Notes()
    notes.node("n0", 8, TAINT)
    notes.node("n0", 5)
    notes.pod("foreign", "n1", job="")
    notes.pod("one", "n0", "0123", is_apart=True, mates=2)
    notes.pod("one", "n0", "0123", is_gone=True)
    found = happened(notes.notes)
    assert found["taints"] == found["devices lost"] == found["bound of others"] == found["bound apart"] == 1
    assert found["pods evicted or deleted"] == 1
