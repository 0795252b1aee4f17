"""What tenants write about bound pods and groups of others counts for nothing: hived believes what it has signed."""

import base64
import json
import random
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import pytest

from hived.errors import UserError
from hived_extender.kube.client import KubeError
from hived_extender.pods.annotations import BIND_INFO, LEAF_CELL_ISOLATION, SCHEDULING_SPEC
from hived_extender.pods.gang_annotations import POD_GANG
from hived_extender.pods.interpreter import AccessRefused
from hived_extender.pods.proofs import PROOF, Prover, parse_keys
from hived_extender.service.writes.binding_secret import BindingSecret
from tests.extender.service.world import World, pod_json, preempt_args, spec_text, to_pod

KEYS = [b"k" * 32]
PATH = "/api/v1/namespaces/hived-system/secrets/hived-bindings"

Json = dict[str, Any]


class Secrets:
    """The API server as far as Secrets go."""

    def __init__(self) -> None:
        self.objects: dict[str, Json] = {}
        self.patches = 0

    def get(self, path: str) -> Json:
        if path not in self.objects:
            raise KubeError(404, "NotFound", path)
        return json.loads(json.dumps(self.objects[path]))

    def create(self, path: str, body: Mapping[str, Any]) -> None:
        name = f"{path}/{body['metadata']['name']}"
        if name in self.objects:
            raise KubeError(409, "AlreadyExists", name)
        self.objects[name] = dict(body)

    def patch(self, path: str, body: Mapping[str, Any]) -> None:
        self.get(path)
        data = self.objects[path].setdefault("data", {})
        data.update(body["data"])
        self.objects[path]["data"] = {key: value for key, value in data.items() if value is not None}
        self.patches += 1


class Guarded(World):
    """A world whose bindings are proved, and which can be restarted."""

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


def unaccounted(world: World) -> int:
    return int(world.service.metrics.registry.get_sample_value("hived_recovery_failures_total") or 0)


def test_what_hived_has_bound_is_there_after_a_restart() -> None:
    world = Guarded()
    for name in ("p", "q"):
        world.place(name, spec_text(group="g", pods=2))
    before = world.snapshot()
    again = world.restarted()
    assert again.snapshot() == before
    assert unaccounted(again) == 0


def test_forged_bindings_take_no_cells() -> None:
    """Three such pods pushed two guaranteed groups out of their VC."""
    world = Guarded()
    pod, node = world.place("honest")
    notes = dict(pod["metadata"]["annotations"])
    before = world.snapshot()
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
        world.kube.add(pod)
        world.service.pod_seen(to_pod(pod))
    assert world.snapshot() == before
    assert world.restarted().snapshot() == before


def test_forged_bindings_keep_nobody_waiting() -> None:
    world = Guarded()
    pod, node = world.place("honest")
    notes = dict(pod["metadata"]["annotations"])
    world.delete(pod)
    world.kube.add(pod_json("evil", annotations=notes, node=node))
    world.see(world.kube.pods["evil"])
    again = world.restarted()
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
    world = Guarded()
    pod, _ = world.place("p")
    before = world.snapshot()
    again = world.restart_with(pod, **changes)
    assert again.snapshot() == before
    again.delete(pod)
    again.until(lambda: "changed" not in again.secrets.objects[PATH]["data"])
    again.service.close()


def test_what_was_changed_while_nobody_looked_takes_no_cells() -> None:
    world = Guarded()
    pod, _ = world.place("p")
    world.service.close()
    pod["metadata"]["annotations"][BIND_INFO] = "garbage"
    again = world.restarted()
    assert again.groups() == {}
    assert unaccounted(again) == 1


def test_a_pod_that_is_as_it_was_again_is_not_kept_in_the_secret() -> None:
    world = Guarded()
    pod, _ = world.place("p")
    right = dict(pod["metadata"]["annotations"])
    pod["metadata"]["annotations"][BIND_INFO] = "garbage"
    world.see(pod)
    world.until(lambda: "changed" in world.secrets.objects[PATH]["data"])
    pod["metadata"]["annotations"] = right
    world.see(pod)
    world.until(lambda: "changed" not in world.secrets.objects[PATH]["data"])
    world.service.close()


def test_a_spec_that_is_changed_amid_binding_does_not_change_what_was_decided() -> None:
    world = Guarded()
    pod = world.create("p", spec_text(leaf_cells=4))
    (node,) = world.filter(pod)["NodeNames"]
    pod["metadata"]["annotations"][SCHEDULING_SPEC] = spec_text(vc="b", leaf_cells=1)
    world.bind(pod, node)
    world.see(pod)
    again = world.restarted()
    assert again.groups()["ns/p"]["physicalPlacement"] == {node: [0, 1, 2, 3]}


@pytest.mark.parametrize(
    "text",
    [spec_text(priority=1000), spec_text(vc="b", priority=1000), "{", None],
    ids=["priority", "VC", "none", "gone"],
)
def test_what_is_signed_is_what_was_decided_whatever_the_spec_says_when_it_is_bound(text: str | None) -> None:
    world = Guarded()
    pod = world.create("p")
    (node,) = world.filter(pod)["NodeNames"]
    if text is None:
        del pod["metadata"]["annotations"][SCHEDULING_SPEC]
    else:
        pod["metadata"]["annotations"][SCHEDULING_SPEC] = text
    world.kube.touch(pod)
    world.see(pod)
    world.bind(pod, node)
    world.see(pod)
    before = world.snapshot()
    again = world.restarted()
    assert again.snapshot() == before
    assert (again.groups()["ns/p"]["vc"], again.groups()["ns/p"]["priority"]) == ("a", 0)


@pytest.mark.parametrize("is_bound", [True, False])
@pytest.mark.parametrize("key", [SCHEDULING_SPEC, POD_GANG])
def test_a_pod_that_turns_to_other_words_keeps_its_cells(key: str, is_bound: bool) -> None:
    world = Guarded()
    pod = pod_json("p", spec_text(), annotations={"hivedscheduler.microsoft.com/virtual-cluster": "a"})
    world.kube.add(pod)
    world.see(pod)
    (node,) = world.filter(pod)["NodeNames"]

    def change() -> None:
        if key == POD_GANG:
            pod["metadata"]["annotations"][key] = "x"
        else:
            del pod["metadata"]["annotations"][key]
        world.kube.touch(pod)
        world.see(pod)

    if not is_bound:
        change()
    world.bind(pod, node)
    world.see(pod)
    if is_bound:
        change()
    before = world.snapshot()
    again = world.restarted()
    assert again.snapshot() == before
    assert list(again.groups()) == ["ns/p"]


def test_a_pod_of_a_larger_group_that_turns_to_other_words_stops_nothing() -> None:
    world = Guarded()
    labels = {
        "pod-group.scheduling.sigs.k8s.io/name": "x",
        "pod-group.scheduling.sigs.k8s.io/min-available": "1",
    }

    def create(name: str, spec: str | None, devices: int) -> Json:
        pod = pod_json(name, spec, annotations={"hivedscheduler.microsoft.com/virtual-cluster": "a"})
        pod["metadata"]["labels"] = labels
        if devices:
            pod["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] = str(devices)
        world.kube.add(pod)
        world.see(pod)
        return pod

    first = create("p", spec_text(leaf_cells=2, group="g", pods=2), 0)
    assert world.filter(first)["NodeNames"]
    del first["metadata"]["annotations"][SCHEDULING_SPEC]
    world.kube.touch(first)
    world.see(first)
    mate = create("r", None, 2)
    world.bind(mate, world.filter(mate)["NodeNames"][0])
    assert world.service.fault == ""


def test_nobody_joins_the_group_of_another_namespace_by_its_full_name() -> None:
    world = Guarded()
    world.place("v0", spec_text(group="train", pods=2))
    evil = pod_json("evil", spec_text(leaf_cells=1))
    evil["metadata"]["namespace"] = "evil"
    world.kube.add(evil)
    world.service.pod_seen(to_pod(evil))
    evil["metadata"]["annotations"] |= {SCHEDULING_SPEC: spec_text(group="ns:train", pods=2), POD_GANG: "x"}
    with suppress(UserError):
        world.filter(evil)  # kube-scheduler knows of the change before hived does
    assert world.groups()["ns:train"]["allocatedPods"] == ["uid-v0"]
    world.place("v1", spec_text(group="train", pods=2))


def test_a_group_of_an_earlier_version_is_not_that_of_another_namespace() -> None:
    world = World()
    evil, _ = world.place("evil", spec_text("b", group="ns:train"))
    del evil["metadata"]["annotations"][PROOF]
    evil["metadata"] |= {"namespace": "evil", "creationTimestamp": "2026-11-01T00:00:00Z"}
    world.service.close()
    again = Guarded(is_leading=False, trusts_before="2026-11-02T00:00:00Z")
    again.service.sync_pods([to_pod(evil)])
    again.lead()
    assert list(again.groups()) == ["evil:ns:train"]


def test_an_old_proof_gives_no_lost_place_back() -> None:
    world = Guarded()
    low = {name: world.place(name, spec_text(lazyPreemptionEnable=True, priority=5))[0] for name in ("l0", "l1")}
    saved = {name: dict(pod["metadata"]["annotations"]) for name, pod in low.items()}
    high, _ = world.place("high", spec_text(priority=9))
    (lost,) = [name for name in low if world.groups()[f"ns/{name}"].get("lazyPreemptionStatus")]
    pod = low[lost]
    world.until(lambda: '"NODE"' not in pod["metadata"]["annotations"][BIND_INFO])
    world.see(pod)
    assert not world.service.machine.facts.pods.get(f"uid-{lost}").is_changed  # it is known
    world.delete(high)
    world.place("other", spec_text(priority=2))
    pod["metadata"]["annotations"] = saved[lost]
    world.kube.touch(pod)
    world.see(pod)
    before = {name: bool(status.get("virtualPlacement")) for name, status in world.groups().items()}
    assert before[f"ns/{lost}"] is False
    again = world.restarted()
    assert {name: bool(status.get("virtualPlacement")) for name, status in again.groups().items()} == before


def test_what_is_too_large_for_the_secret_keeps_nothing_else_out() -> None:
    secrets = Secrets()
    secret = BindingSecret(secrets, "hived-system", "hived-bindings")
    secret.keys()
    noise = base64.b64encode(random.Random(1).randbytes(2_000_000)).decode()
    secret.keep({"large": {BIND_INFO: noise}, "small": {BIND_INFO: "x"}})
    assert secret.changed() == {"small": {BIND_INFO: "x"}}


def test_nothing_stays_reserved_for_a_pod_that_may_not_have_it(monkeypatch: pytest.MonkeyPatch) -> None:
    world = Guarded()
    for number in range(2):
        world.place(f"low-{number}")
    pod = world.create("high", spec_text(priority=9))
    world.service.preempt_victims(preempt_args(pod))
    assert world.groups()["ns/high"]["state"] == "Preempting"

    def refuse(*_: object) -> None:
        raise AccessRefused("no")

    monkeypatch.setattr(world.service.machine.interpreter, "check_access", refuse)
    with pytest.raises(AccessRefused):
        world.filter(pod)
    assert sorted(world.groups()) == ["ns/low-0", "ns/low-1"]


def test_a_lazily_preempted_group_has_lost_its_place_after_a_restart_too() -> None:
    world = Guarded()
    low = [world.place(f"low-{number}", spec_text(lazyPreemptionEnable=True))[0] for number in range(2)]
    world.place("high", spec_text(priority=9))
    lost = [name for name, status in world.groups().items() if status.get("lazyPreemptionStatus")]
    assert len(lost) == 1
    pod = next(each for each in low if f"ns/{each['metadata']['name']}" in lost)
    world.until(lambda: '"NODE"' not in pod["metadata"]["annotations"][BIND_INFO])
    again = world.restarted()
    assert unaccounted(again) == 0
    assert not again.service.machine.facts.pods.get(pod["metadata"]["uid"]).is_changed  # it is known


def test_pods_of_an_earlier_version_are_taken_in_once() -> None:
    world = World()
    old = [world.place(name, spec_text(group="g", pods=2))[0] for name in ("p", "q")]
    for pod in old:
        del pod["metadata"]["annotations"][PROOF]
        pod["metadata"]["creationTimestamp"] = "2026-11-01T00:00:00Z"
    world.service.close()
    guarded = Guarded(is_leading=False)
    guarded.kube.pods = world.kube.pods
    refused = guarded.restarted()
    assert refused.groups() == {}
    taken_in = refused.restarted(trusts_before="2026-11-02T00:00:00Z")
    assert list(taken_in.groups()) == ["g"]
    taken_in.until(lambda: all(PROOF in pod["metadata"]["annotations"] for pod in old))
    again = taken_in.restarted()
    assert (list(again.groups()), unaccounted(again)) == (["g"], 0)
    assert len(again.groups()["g"]["allocatedPods"]) == 2


def test_a_pod_that_is_younger_than_that_is_not_believed() -> None:
    world = Guarded(trusts_before="2026-11-02T00:00:00Z")
    pod, node = world.place("p")
    notes = {key: text for key, text in pod["metadata"]["annotations"].items() if key != PROOF}
    world.delete(pod)
    evil = pod_json("evil", annotations=notes, node=node)
    evil["metadata"]["creationTimestamp"] = "2026-11-03T00:00:00Z"
    world.kube.add(evil)
    world.see(evil)
    assert world.groups() == {}


def test_a_group_is_of_its_namespace() -> None:
    """Whoever took another's name had the victim's pods refused, or got its free slot."""
    world = Guarded()
    evil = pod_json("evil", spec_text("b", 1, group="train"))
    evil["metadata"]["namespace"] = "evil"
    world.kube.add(evil)
    world.service.pod_seen(to_pod(evil))
    assert world.filter(evil)["NodeNames"]
    for name in ("p", "q"):
        world.place(name, spec_text(group="train", pods=2))
    assert {name: len(status["allocatedPods"]) for name, status in world.groups().items()} == {
        "evil:train": 1,
        "ns:train": 2,
    }
    with pytest.raises(UserError, match="Affinity group train is in several namespaces: evil:train, ns:train"):
        world.service.reader.affinity_group("train")


def test_a_group_that_an_earlier_version_began_is_completed() -> None:
    world = World()
    first, _ = world.place("p", spec_text(group="g", pods=2))
    del first["metadata"]["annotations"][PROOF]
    world.service.close()
    again = World(is_leading=False)
    again.kube.pods = world.kube.pods
    again.service.sync_pods([to_pod(first)])
    again.lead()
    assert list(again.groups()) == ["g"]
    again.place("q", spec_text(group="g", pods=2))
    assert {name: len(status["allocatedPods"]) for name, status in again.groups().items()} == {"g": 2}


def test_pods_are_taken_in_when_the_keys_were_lost() -> None:
    world = Guarded()
    pods = [world.place(name, spec_text(group="g", pods=2))[0] for name in ("p", "q")]
    for pod in pods:
        pod["metadata"]["creationTimestamp"] = "2026-11-01T00:00:00Z"
    del world.secrets.objects[PATH]
    lost = world.restarted()
    assert lost.groups() == {}
    digests = [pod["metadata"]["annotations"][PROOF] for pod in pods]
    again = lost.restarted(trusts_before="2026-11-02T00:00:00Z")
    assert list(again.groups()) == ["ns:g"]
    again.until(lambda: all(pod["metadata"]["annotations"][PROOF] not in digests for pod in pods))
    assert list(again.restarted().groups()) == ["ns:g"]


def test_keys_can_be_exchanged() -> None:
    texts = {BIND_INFO: "x"}
    old, new = Prover([b"a" * 32]), Prover([b"b" * 32, b"a" * 32])
    written = texts | old.sign("uid", "node", texts)
    assert new.proof_of("uid", "node", "", written) is not None
    assert Prover([b"b" * 32]).proof_of("uid", "node", "", written) is None
    assert new.proof_of("other", "node", "", written) is None
    assert new.proof_of("uid", "other", "", written) is None


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
