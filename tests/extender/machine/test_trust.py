"""Words of tenants about bound pods and groups of others count for nothing: hived believes its own signature."""

import base64
import json
import random
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import pytest

from hived.values.errors import UserError
from hived_extender.jobs.annotations import BIND_INFO, LEAF_CELL_ISOLATION, SCHEDULING_SPEC
from hived_extender.jobs.bind_info import POD_GANG, PROOF, Prover, parse_keys
from hived_extender.jobs.interpreter import AccessRefused
from hived_extender.jobs.quotas.tree import LABELS
from hived_extender.kube.client import KubeError
from hived_extender.machine.stimuli import QuotasFollowed
from hived_extender.machine.writes.binding_secret import BindingSecret
from tests.extender.jobs.quotas.trees import quota, tree
from tests.extender.machine.small_cluster import SmallCluster, pod_json, preempt_args, spec_text, to_pod
from tests.extender.machine.stored_secrets import Secrets

KEYS = [b"k" * 32]
PATH = "/api/v1/namespaces/hived-system/secrets/hived-bindings"

Json = dict[str, Any]


class Guarded(SmallCluster):
    """A cluster whose bindings are proved, and which can be restarted."""

    def __init__(self, secrets: Secrets | None = None, *, trusts_before: str = "", **options: Any) -> None:
        self.secrets = secrets or Secrets()
        secret = BindingSecret(self.secrets, "hived-system", "hived-bindings")
        prover = Prover(secret.keys(), trusts_before=trusts_before)
        super().__init__(prover=prover, secret=secret, **options)

    def restarted(self, **options: Any) -> "Guarded":
        self.service.close()
        again = Guarded(self.secrets, is_leading=False, **options)
        again.kube.pods = self.kube.pods
        again.service.sync_pods([to_pod(pod) for pod in self.kube.pods.values()])
        again.lead()
        return again

    def restart_with(self, pod: Json, **notes: str) -> "Guarded":
        """Restart after the owner of a pod has changed its annotations, which hived saw."""
        pod["metadata"]["annotations"].update(notes)
        self.kube.touch(pod)
        self.see(pod)
        return self.restarted()


def unaccounted(cluster: SmallCluster) -> int:
    return int(cluster.service.metrics.registry.get_sample_value("hived_recovery_failures_total") or 0)


def test_what_hived_has_bound_is_there_after_a_restart() -> None:
    cluster = Guarded()
    for name in ("p", "q"):
        cluster.place(name, spec_text(group="g", pods=2))
    before = cluster.snapshot()
    again = cluster.restarted()
    assert again.snapshot() == before
    assert unaccounted(again) == 0


def test_forged_bindings_take_no_cells() -> None:
    """Three such pods pushed two guaranteed groups out of their VC."""
    cluster = Guarded()
    pod, node = cluster.place("honest")
    notes = dict(pod["metadata"]["annotations"])
    before = cluster.snapshot()
    for number, forged in enumerate(
        (
            notes,  # those of another pod, with its proof
            {**notes, PROOF: "{}"},
            {key: text for key, text in notes.items() if key != PROOF},
            {**notes, PROOF: json.dumps({"digest": "x"})},
            {**notes, PROOF: '{"digest": "\\ud800"}'},
            {**notes, SCHEDULING_SPEC: spec_text(priority=1000)},
        )
    ):
        pod = pod_json(f"evil-{number}", annotations=forged, node=node)
        cluster.kube.add(pod)
        cluster.service.pod_seen(to_pod(pod))
    assert cluster.snapshot() == before
    assert cluster.restarted().snapshot() == before


def test_forged_bindings_keep_nobody_waiting() -> None:
    cluster = Guarded()
    pod, node = cluster.place("honest")
    notes = dict(pod["metadata"]["annotations"])
    cluster.delete(pod)
    cluster.kube.add(pod_json("evil", annotations=notes, node=node))
    cluster.see(cluster.kube.pods["evil"])
    again = cluster.restarted()
    assert [again.place(f"p{number}")[0]["spec"]["nodeName"] for number in range(2)]


@pytest.mark.parametrize(
    "changes",
    [
        {BIND_INFO: "garbage"},
        {BIND_INFO: ""},
        {SCHEDULING_SPEC: "{"},
        {SCHEDULING_SPEC: spec_text(vc="b", priority=1000)},
        {LEAF_CELL_ISOLATION: "9"},
        {PROOF: ""},
    ],
    ids=["garbage", "no place", "no spec", "another VC", "other devices", "no proof"],
)
def test_a_bound_pod_that_is_changed_keeps_what_hived_gave_it(changes: dict[str, str]) -> None:
    cluster = Guarded()
    pod, _ = cluster.place("p")
    before = cluster.snapshot()
    again = cluster.restart_with(pod, **changes)
    assert again.snapshot() == before
    again.delete(pod)
    again.until(lambda: "changed" not in again.secrets.objects[PATH]["data"])
    again.service.close()


def test_what_was_changed_while_nobody_looked_takes_no_cells() -> None:
    cluster = Guarded()
    pod, _ = cluster.place("p")
    cluster.service.close()
    pod["metadata"]["annotations"][BIND_INFO] = "garbage"
    again = cluster.restarted()
    assert again.groups() == {}
    assert unaccounted(again) == 1


def test_a_pod_that_is_as_it_was_again_is_not_kept_in_the_secret() -> None:
    cluster = Guarded()
    pod, _ = cluster.place("p")
    right = dict(pod["metadata"]["annotations"])
    pod["metadata"]["annotations"][BIND_INFO] = "garbage"
    cluster.see(pod)
    cluster.until(lambda: "changed" in cluster.secrets.objects[PATH]["data"])
    pod["metadata"]["annotations"] = right
    cluster.see(pod)
    cluster.until(lambda: "changed" not in cluster.secrets.objects[PATH]["data"])
    cluster.service.close()


def test_a_spec_that_is_changed_amid_binding_does_not_change_what_was_decided() -> None:
    cluster = Guarded()
    pod = cluster.create("p", spec_text(leaf_cells=4))
    (node,) = cluster.filter(pod)["NodeNames"]
    pod["metadata"]["annotations"][SCHEDULING_SPEC] = spec_text(vc="b", leaf_cells=1)
    cluster.bind(pod, node)
    cluster.see(pod)
    again = cluster.restarted()
    assert again.groups()["ns/p"]["physicalPlacement"] == {node: [0, 1, 2, 3]}


@pytest.mark.parametrize(
    "text",
    [spec_text(priority=1000), spec_text(vc="b", priority=1000), "{", None],
    ids=["priority", "VC", "none", "gone"],
)
def test_what_is_signed_is_what_was_decided_whatever_the_spec_says_when_it_is_bound(text: str | None) -> None:
    cluster = Guarded()
    pod = cluster.create("p")
    (node,) = cluster.filter(pod)["NodeNames"]
    if text is None:
        del pod["metadata"]["annotations"][SCHEDULING_SPEC]
    else:
        pod["metadata"]["annotations"][SCHEDULING_SPEC] = text
    cluster.kube.touch(pod)
    cluster.see(pod)
    cluster.bind(pod, node)
    cluster.see(pod)
    before = cluster.snapshot()
    again = cluster.restarted()
    assert again.snapshot() == before
    assert (again.groups()["ns/p"]["vc"], again.groups()["ns/p"]["priority"]) == ("a", 0)


@pytest.mark.parametrize("is_bound", [True, False])
@pytest.mark.parametrize("key", [SCHEDULING_SPEC, POD_GANG])
def test_a_pod_that_turns_to_other_words_keeps_its_cells(key: str, is_bound: bool) -> None:
    cluster = Guarded()
    pod = pod_json("p", spec_text(), annotations={"hivedscheduler.microsoft.com/virtual-cluster": "a"})
    cluster.kube.add(pod)
    cluster.see(pod)
    (node,) = cluster.filter(pod)["NodeNames"]

    def change() -> None:
        if key == POD_GANG:
            pod["metadata"]["annotations"][key] = "x"
        else:
            del pod["metadata"]["annotations"][key]
        cluster.kube.touch(pod)
        cluster.see(pod)

    if not is_bound:
        change()
    cluster.bind(pod, node)
    cluster.see(pod)
    if is_bound:
        change()
    before = cluster.snapshot()
    again = cluster.restarted()
    assert again.snapshot() == before
    assert list(again.groups()) == ["ns/p"]


def test_a_pod_of_a_larger_group_that_turns_to_other_words_stops_nothing() -> None:
    cluster = Guarded()
    labels = {
        "pod-group.scheduling.sigs.k8s.io/name": "x",
        "pod-group.scheduling.sigs.k8s.io/min-available": "1",
    }

    def create(name: str, spec: str | None, devices: int) -> Json:
        pod = pod_json(name, spec, annotations={"hivedscheduler.microsoft.com/virtual-cluster": "a"})
        pod["metadata"]["labels"] = labels
        if devices:
            pod["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] = str(devices)
        cluster.kube.add(pod)
        cluster.see(pod)
        return pod

    first = create("p", spec_text(leaf_cells=2, group="g", pods=2), 0)
    assert cluster.filter(first)["NodeNames"]
    del first["metadata"]["annotations"][SCHEDULING_SPEC]
    cluster.kube.touch(first)
    cluster.see(first)
    mate = create("r", None, 2)
    cluster.bind(mate, cluster.filter(mate)["NodeNames"][0])
    assert cluster.service.fault == ""


def test_nobody_joins_the_group_of_another_namespace_by_its_full_name() -> None:
    cluster = Guarded()
    cluster.place("v0", spec_text(group="train", pods=2))
    evil = pod_json("evil", spec_text(leaf_cells=1))
    evil["metadata"]["namespace"] = "evil"
    cluster.kube.add(evil)
    cluster.service.pod_seen(to_pod(evil))
    evil["metadata"]["annotations"] |= {SCHEDULING_SPEC: spec_text(group="ns:train", pods=2), POD_GANG: "x"}
    with suppress(UserError):
        cluster.filter(evil)  # kube-scheduler knows of the change before hived does
    assert cluster.groups()["ns:train"]["allocatedPods"] == ["uid-v0"]
    cluster.place("v1", spec_text(group="train", pods=2))


def test_a_group_of_an_earlier_version_is_not_that_of_another_namespace() -> None:
    cluster = SmallCluster()
    evil, _ = cluster.place("evil", spec_text("b", group="ns:train"))
    del evil["metadata"]["annotations"][PROOF]
    evil["metadata"] |= {"namespace": "evil", "creationTimestamp": "2026-11-01T00:00:00Z"}
    cluster.service.close()
    again = Guarded(is_leading=False, trusts_before="2026-11-02T00:00:00Z")
    again.service.sync_pods([to_pod(evil)])
    again.lead()
    assert list(again.groups()) == ["evil:ns:train"]


def test_an_old_proof_gives_no_lost_place_back() -> None:
    cluster = Guarded()
    low = {name: cluster.place(name, spec_text(lazyPreemptionEnable=True, priority=5))[0] for name in ("l0", "l1")}
    saved = {name: dict(pod["metadata"]["annotations"]) for name, pod in low.items()}
    high, _ = cluster.place("high", spec_text(priority=9))
    (lost,) = [name for name in low if cluster.groups()[f"ns/{name}"].get("lazyPreemptionStatus")]
    pod = low[lost]
    cluster.until(lambda: '"NODE"' not in pod["metadata"]["annotations"][BIND_INFO])
    cluster.see(pod)
    assert not cluster.service.machine.cache.pods.get(f"uid-{lost}").marks.is_changed  # it is known
    cluster.delete(high)
    cluster.place("other", spec_text(priority=2))
    pod["metadata"]["annotations"] = saved[lost]
    cluster.kube.touch(pod)
    cluster.see(pod)
    before = {name: bool(status.get("virtualPlacement")) for name, status in cluster.groups().items()}
    assert before[f"ns/{lost}"] is False
    again = cluster.restarted()
    assert {name: bool(status.get("virtualPlacement")) for name, status in again.groups().items()} == before


def test_what_is_too_large_for_the_secret_keeps_nothing_else_out() -> None:
    secrets = Secrets()
    secret = BindingSecret(secrets, "hived-system", "hived-bindings")
    secret.keys()
    noise = base64.b64encode(random.Random(1).randbytes(2_000_000)).decode()
    secret.keep({"large": {BIND_INFO: noise}, "small": {BIND_INFO: "x"}})
    assert secret.changed() == {"small": {BIND_INFO: "x"}}


def test_nothing_stays_reserved_for_a_pod_that_may_not_have_it(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Guarded()
    for number in range(2):
        cluster.place(f"low-{number}")
    pod = cluster.create("high", spec_text(priority=9))
    cluster.service.preempt_victims(preempt_args(pod))
    assert cluster.groups()["ns/high"]["state"] == "Preempting"

    def refuse(*_: object) -> None:
        raise AccessRefused("no")

    monkeypatch.setattr(cluster.service.machine.interpreter, "check_access", refuse)
    with pytest.raises(AccessRefused):
        cluster.filter(pod)
    assert sorted(cluster.groups()) == ["ns/low-0", "ns/low-1"]


def test_a_lazily_preempted_group_has_lost_its_place_after_a_restart_too() -> None:
    cluster = Guarded()
    low = [cluster.place(f"low-{number}", spec_text(lazyPreemptionEnable=True))[0] for number in range(2)]
    cluster.place("high", spec_text(priority=9))
    lost = [name for name, status in cluster.groups().items() if status.get("lazyPreemptionStatus")]
    assert len(lost) == 1
    pod = next(each for each in low if f"ns/{each['metadata']['name']}" in lost)
    cluster.until(lambda: '"NODE"' not in pod["metadata"]["annotations"][BIND_INFO])
    again = cluster.restarted()
    assert unaccounted(again) == 0
    assert not again.service.machine.cache.pods.get(pod["metadata"]["uid"]).marks.is_changed  # it is known


def test_pods_of_an_earlier_version_are_taken_in_once() -> None:
    cluster = SmallCluster()
    old = [cluster.place(name, spec_text(group="g", pods=2))[0] for name in ("p", "q")]
    for pod in old:
        del pod["metadata"]["annotations"][PROOF]
        pod["metadata"]["creationTimestamp"] = "2026-11-01T00:00:00Z"
    cluster.service.close()
    guarded = Guarded(is_leading=False)
    guarded.kube.pods = cluster.kube.pods
    refused = guarded.restarted()
    assert refused.groups() == {}
    taken_in = refused.restarted(trusts_before="2026-11-02T00:00:00Z")
    assert list(taken_in.groups()) == ["g"]
    taken_in.until(lambda: all(PROOF in pod["metadata"]["annotations"] for pod in old))
    again = taken_in.restarted()
    assert (list(again.groups()), unaccounted(again)) == (["g"], 0)
    assert len(again.groups()["g"]["allocatedPods"]) == 2


def test_a_pod_that_is_younger_than_that_is_not_believed() -> None:
    cluster = Guarded(trusts_before="2026-11-02T00:00:00Z")
    pod, node = cluster.place("p")
    notes = {key: text for key, text in pod["metadata"]["annotations"].items() if key != PROOF}
    cluster.delete(pod)
    evil = pod_json("evil", annotations=notes, node=node)
    evil["metadata"]["creationTimestamp"] = "2026-11-03T00:00:00Z"
    cluster.kube.add(evil)
    cluster.see(evil)
    assert cluster.groups() == {}


def test_a_group_is_of_its_namespace() -> None:
    """A tenant who took another's name had the victim's pods refused, or got its free slot."""
    cluster = Guarded()
    evil = pod_json("evil", spec_text("b", 1, group="train"))
    evil["metadata"]["namespace"] = "evil"
    cluster.kube.add(evil)
    cluster.service.pod_seen(to_pod(evil))
    assert cluster.filter(evil)["NodeNames"]
    for name in ("p", "q"):
        cluster.place(name, spec_text(group="train", pods=2))
    assert {name: len(status["allocatedPods"]) for name, status in cluster.groups().items()} == {
        "evil:train": 1,
        "ns:train": 2,
    }
    with pytest.raises(UserError, match="Affinity group train is in several namespaces: evil:train, ns:train"):
        cluster.service.reader.affinity_group("train")


def test_a_group_that_an_earlier_version_began_is_completed() -> None:
    cluster = SmallCluster()
    first, _ = cluster.place("p", spec_text(group="g", pods=2))
    del first["metadata"]["annotations"][PROOF]
    cluster.service.close()
    again = SmallCluster(is_leading=False)
    again.kube.pods = cluster.kube.pods
    again.service.sync_pods([to_pod(first)])
    again.lead()
    assert list(again.groups()) == ["g"]
    again.place("q", spec_text(group="g", pods=2))
    assert {name: len(status["allocatedPods"]) for name, status in again.groups().items()} == {"g": 2}


def test_pods_are_taken_in_when_the_keys_were_lost() -> None:
    cluster = Guarded()
    pods = [cluster.place(name, spec_text(group="g", pods=2))[0] for name in ("p", "q")]
    for pod in pods:
        pod["metadata"]["creationTimestamp"] = "2026-11-01T00:00:00Z"
    del cluster.secrets.objects[PATH]
    lost = cluster.restarted()
    assert lost.groups() == {}
    digests = [pod["metadata"]["annotations"][PROOF] for pod in pods]
    again = lost.restarted(trusts_before="2026-11-02T00:00:00Z")
    assert list(again.groups()) == ["ns:g"]
    again.until(lambda: all(pod["metadata"]["annotations"][PROOF] not in digests for pod in pods))
    assert list(again.restarted().groups()) == ["ns:g"]


def test_pods_are_known_again_once_their_key_is_back_behind_the_new_one() -> None:
    cluster = Guarded()
    cluster.place("p", spec_text("a"))
    kept = cluster.secrets.objects.pop(PATH)["data"]["keys"]
    lost = cluster.restarted()
    assert lost.groups() == {}
    lost.place("q", spec_text("b"))
    data = lost.secrets.objects[PATH]["data"]
    data["keys"] = base64.b64encode(b"\n".join(map(base64.b64decode, (data["keys"], kept)))).decode()
    assert list(lost.restarted().groups()) == ["ns/p", "ns/q"]


def test_keys_can_be_exchanged() -> None:
    texts = {BIND_INFO: "x"}
    old, new = Prover([b"a" * 32]), Prover([b"b" * 32, b"a" * 32])
    written = texts | old.sign("uid", "node", texts)
    assert new.proof_of("uid", "node", "", written) is not None
    assert Prover([b"b" * 32]).proof_of("uid", "node", "", written) is None
    assert new.proof_of("other", "node", "", written) is None
    assert new.proof_of("uid", "other", "", written) is None


@pytest.mark.parametrize("quota", [None, {}, {"quota": "u"}, "text"])
def test_labels_for_quotas_are_proved_too(quota: object) -> None:
    prover, notes = Prover(KEYS), {BIND_INFO: "a"}
    written = notes | prover.sign("uid", "node", notes, quota={"quota": "t"})
    found = prover.proof_of("uid", "node", "", written)
    assert found is not None
    assert found.quota == {"quota": "t"}
    proof = json.loads(written[PROOF])
    assert prover.proof_of("uid", "node", "", written | {PROOF: json.dumps(proof | {"quota": quota})}) is None


def test_a_pod_whose_labels_for_quotas_are_stripped_from_its_proof_stays_in_its_leaf() -> None:
    leaves = tree(quota("t", {}, {"cpu": 9}, namespaces=["ns"]), quota("u", {}, {}, namespaces=[]), total=16)
    cluster = Guarded()
    cluster.service.runner.handle(QuotasFollowed(leaves))
    pod, _ = cluster.place("x")
    proof = json.loads(pod["metadata"]["annotations"][PROOF])
    assert proof.pop("quota") == {}
    pod["metadata"]["labels"] = {LABELS[0]: "u"}
    again = cluster.restart_with(pod, **{PROOF: json.dumps(proof)})
    again.service.runner.handle(QuotasFollowed(leaves))
    with again.service.runner.look() as machine:
        assert [one.leaf for one in machine.holds.quotas.charges(machine.verbs.core)] == ["root/t"]


@pytest.mark.parametrize("text", ["", "short", "AAAA", "\u00e4", "A" * 43])
def test_keys_that_are_none_are_refused(text: str) -> None:
    with pytest.raises(UserError, match="Secret"):
        parse_keys(text, "Secret a/b")


def test_a_key_is_put_into_the_secret_of_the_manifests() -> None:
    secrets = Secrets()
    secrets.objects[PATH] = {"metadata": {"name": "hived-bindings", "resourceVersion": "7"}}
    secret = BindingSecret(secrets, "hived-system", "hived-bindings")
    assert secret.keys() == secret.keys()
    assert secrets.patches == 1


def test_two_replicas_that_start_at_once_have_one_key() -> None:
    secrets = Secrets()

    class Late(Secrets):
        """Finds nothing at first, as the other replica makes the Secret at the same moment."""

        is_first = True

        def get(self, path: str) -> Json:
            if self.is_first:
                self.is_first = False
                raise KubeError(404, "NotFound", path)
            return secrets.get(path)

        def create(self, path: str, body: Mapping[str, Any]) -> None:
            secrets.create(path, body)

    first = BindingSecret(secrets, "hived-system", "hived-bindings").keys()
    assert BindingSecret(Late(), "hived-system", "hived-bindings").keys() == first
    assert len(first[0]) == 32
    assert len(base64.b64decode(secrets.objects[PATH]["data"]["keys"])) > 40
