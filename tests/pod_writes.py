"""Writes of pods by hived, by a tenant and by others, each with the answer: for the policy and for its Python twin.

`Writes` needs a client for each user; it works on any API server.
"""

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

from hived_extender.jobs.amounts import DEVICE_REQUESTS
from hived_extender.jobs.annotations import (
    BIND_INFO,
    LEAF_CELL_ISOLATION,
    OLD_LEAF_CELL_ISOLATION,
    PREFIX,
    SCHEDULING_SPEC,
)
from hived_extender.jobs.asks import PRIORITY, VIRTUAL_CLUSTER
from hived_extender.jobs.bind_info import POD_GANG, PROOF
from hived_extender.jobs.progress import CHECKPOINTED_AT, MAY_MOVE
from hived_extender.jobs.wire import ENABLE_LIMIT
from hived_extender.kube.client import KubeClient, KubeError
from hived_extender.machine.writes.binding import RETRY_ANNOTATION

HIVED, TENANT, ADMIN = "hived", "tenant", "admin"
"""Users: with hived's rights; with every right to pods of one namespace; a cluster-admin, whom policies let pass."""

NODE = "node-a"
OWN = (BIND_INFO, LEAF_CELL_ISOLATION, OLD_LEAF_CELL_ISOLATION, POD_GANG, PROOF, RETRY_ANNOTATION)
PODS, BINDINGS = "hived-pods", "hived-bindings"

Json = dict[str, Any]


def pod(
    annotations: Mapping[str, str] | None = None,
    labels: Mapping[str, str] | None = None,
    *,
    node: str = "",
    limits: Mapping[str, str] | None = None,
    env: list[Json] | None = None,
    is_init: bool = False,
) -> Json:
    """A pod without a name; with `is_init` an init container has the limits and variables."""
    main: Json = {"name": "main", "image": "none"}
    special: Json = {"name": "init" if is_init else "main", "image": "none"}
    special |= {"resources": {"limits": dict(limits)}} if limits else {}
    special |= {"env": env} if env else {}
    containers: Json = {"containers": [main], "initContainers": [special]} if is_init else {"containers": [special]}
    spec: Json = {"schedulerName": "nobody", "terminationGracePeriodSeconds": 0, **containers}
    metadata: Json = {"annotations": dict(annotations or {}), "labels": dict(labels or {})}
    return {"metadata": metadata, "spec": spec | ({"nodeName": node} if node else {})}


def variable(name: str = "HIVED_VISIBLE_DEVICES", annotation: str = LEAF_CELL_ISOLATION) -> list[Json]:
    """The variables that the webhook gives to a container."""
    return [{"name": name, "valueFrom": {"fieldRef": {"fieldPath": f"metadata.annotations['{annotation}']"}}}]


@dataclass(frozen=True)
class Case:
    """A write and its answer.

    Attributes
    ----------
    name : what it is about
    said : a part of the refusal, "" if the write is allowed
    user : who writes
    path : below the pod: "" for the pod itself, or a subresource
    old : the pod that hived has made before, None for a write that creates the pod `new`
    node : the node that hived has bound the old pod to
    new : the pod to create, or a merge patch, or with the path "binding" or "bindings" the metadata of a binding
    """

    name: str
    said: str
    new: Json
    user: str = TENANT
    path: str = ""
    old: Json | None = None
    node: str = ""
    policy: str = field(default=PODS)


def annotate(**texts: str | None) -> Json:
    """A patch of annotations of hived's, whose names are spelt with _ for -."""
    return {"metadata": {"annotations": {PREFIX + key.replace("_", "-"): text for key, text in texts.items()}}}


def note(key: str, text: str | None) -> Json:
    """A patch of one annotation."""
    return {"metadata": {"annotations": {key: text}}}


def mark(text: str | None) -> Json:
    """A patch of the label of retries."""
    return {"metadata": {"labels": {RETRY_ANNOTATION: text}}}


ASKED = {SCHEDULING_SPEC: "{}", VIRTUAL_CLUSTER: "a"}
BOUND = ASKED | dict.fromkeys(OWN, "1")
ENABLED = {ENABLE_LIMIT: "1"}
DEVICES = {DEVICE_REQUESTS: "{}"}
NEW, KEPT = "only hived writes this annotation; leave it out", "only hived writes this annotation; leave it as it is"
LABEL_NEW, LABEL_KEPT = (each.replace("annotation", "label") for each in (NEW, KEPT))
WEBHOOK = f"{DEVICE_REQUESTS}: only hived's admission webhook writes this annotation"
NODE_NAME = "spec.nodeName: hived chooses the node of this pod; leave the field out"
HAS_NODE = ": the pod has a node, and keeps the annotations that it got it by; create another pod"
BINDS = "only hived writes this with a binding; leave it out"
CONDITION = {"status": {"conditions": [{"type": "example.com/Ready", "status": "True"}]}}
SUBRESOURCES = ("", "status")

CREATED = (
    Case("a plain pod", "", pod()),
    Case("a pod that asks", "", pod(ASKED, limits=ENABLED)),
    *(Case(f"a new pod with {key}", f"{key}: {NEW}", pod(ASKED | {key: "1"})) for key in OWN),
    Case("a new pod with two", f"{BIND_INFO}, {PROOF}: {NEW}", pod({PROOF: "1", BIND_INFO: "1"})),
    Case("a new pod with an empty one", f"{BIND_INFO}: {NEW}", pod({BIND_INFO: ""})),
    Case("a new pod with the label", f"{RETRY_ANNOTATION}: {LABEL_NEW}", pod(labels={RETRY_ANNOTATION: "1"})),
    Case("a name that only begins so", "", pod({BIND_INFO + "-of-mine": "1"})),
    Case("a like name of another", "", pod({"example.com/pod-bind-info": "1"})),
    Case("hived makes one", "", pod(BOUND, labels={RETRY_ANNOTATION: "1"}, node=NODE), user=HIVED),
    Case("an administrator makes one", "", pod(BOUND), user=ADMIN),
    Case("what the webhook makes", "", pod(ASKED | DEVICES, env=variable())),
    Case("what the webhook makes of an init container", "", pod(DEVICES, env=variable(), is_init=True)),
    Case("counts without variables", WEBHOOK, pod(DEVICES)),
    Case("counts with an own value", WEBHOOK, pod(DEVICES, env=[{"name": "HIVED_VISIBLE_DEVICES", "value": "0"}])),
    Case("counts with another variable", WEBHOOK, pod(DEVICES, env=variable("MINE"))),
    Case("counts with another annotation", WEBHOOK, pod(DEVICES, env=variable(annotation="example.com/mine"))),
    Case("hived counts", "", pod(DEVICES), user=HIVED),
    Case("a node for a pod of others", "", pod(node=NODE)),
    Case("a node for a pod of others with limits", "", pod({"example.com/x": "1"}, node=NODE, limits={"cpu": "1"})),
    Case("a node for a pod with the limit", NODE_NAME, pod(node=NODE, limits=ENABLED)),
    Case("a node for an init container with the limit", NODE_NAME, pod(node=NODE, limits=ENABLED, is_init=True)),
    Case("a node for a pod that asks", NODE_NAME, pod({VIRTUAL_CLUSTER: "a"}, node=NODE)),
    Case("hived chooses a node", "", pod(ASKED, node=NODE, limits=ENABLED), user=HIVED),
)
WAITING = (
    Case("another wish while it waits", "", note(SCHEDULING_SPEC, "{a: 1}"), old=pod(ASKED)),
    Case("no wish while it waits", "", note(SCHEDULING_SPEC, None), old=pod(ASKED)),
    Case("an annotation of others", "", note("example.com/x", "1"), old=pod(BOUND)),
    Case("the same again", "", note(BIND_INFO, "1"), old=pod(BOUND)),
    *(
        Case(f"{verb} {key} at {path or 'the pod'}", f"{key}: {KEPT}", note(key, text), old=pod(old), path=path)
        for key in (*OWN, DEVICE_REQUESTS)
        for verb, old, text in (("add", ASKED, "2"), ("change", {key: "1"}, "2"), ("remove", {key: "1"}, None))
        for path in (SUBRESOURCES if key == BIND_INFO else ("",))
    ),
    *(
        Case(f"{verb} the label", f"{RETRY_ANNOTATION}: {LABEL_KEPT}", mark(text), old=pod(labels=old))
        for verb, old, text in (
            ("add", {}, "2"),
            ("change", {RETRY_ANNOTATION: "1"}, "2"),
            ("remove", {RETRY_ANNOTATION: "1"}, None),
        )
    ),
    Case("a label of others", "", {"metadata": {"labels": {"x": "1"}}}, old=pod(labels={RETRY_ANNOTATION: "1"})),
    Case("hived marks", "", mark("2"), old=pod(BOUND), user=HIVED),
    Case("hived touches", "", note(RETRY_ANNOTATION, "2"), old=pod(BOUND), user=HIVED),
    Case("an administrator changes", "", note(BIND_INFO, "2"), old=pod(BOUND), user=ADMIN),
    Case("a condition", "", CONDITION, old=pod(BOUND), path="status"),
)
RUNNING = (
    Case("a condition of a bound pod", "", CONDITION, old=pod(BOUND), node=NODE, path="status"),
    Case("an annotation of others on a bound pod", "", note("example.com/x", "1"), old=pod(BOUND), node=NODE),
    Case("a label of a bound pod", "", {"metadata": {"labels": {"x": "1"}}}, old=pod(BOUND), node=NODE),
    *(
        Case(f"{verb} {key} of a bound pod", key + HAS_NODE, note(key, text), old=pod(old), node=NODE, path=path)
        for key in (SCHEDULING_SPEC, PRIORITY)
        for verb, old, text in (("add", {}, "2"), ("change", {key: "1"}, "2"), ("remove", {key: "1"}, None))
        for path in (SUBRESOURCES if key == PRIORITY else ("",))
    ),
    *(
        Case(f"{key} of a bound pod", "", note(key, text), old=pod(BOUND | {key: "1"}), node=NODE)
        for key in (CHECKPOINTED_AT, MAY_MOVE)
        for text in ("2", None)
    ),
    Case(
        "a checkpoint and a wish of a bound pod",
        VIRTUAL_CLUSTER + HAS_NODE,
        annotate(checkpointed_at="1", virtual_cluster="b"),
        old=pod(BOUND),
        node=NODE,
    ),
    Case("the bind info of a bound pod", f"{BIND_INFO}: {KEPT}", note(BIND_INFO, "2"), old=pod(BOUND), node=NODE),
    Case("hived changes a bound pod", "", annotate(pod_bind_info="2", priority="1"), HIVED, old=pod(BOUND), node=NODE),
)
BINDING = (
    Case("a binding without metadata", "", {}, old=pod(ASKED), path="binding"),
    Case("a binding with others' metadata", "", note("example.com/x", "1")["metadata"], old=pod(), path="binding"),
    *(
        Case(f"{kind} of a binding at {path}", f"{key}: {BINDS}", {kind: {key: "1"}}, TENANT, path, pod(ASKED),
             policy=BINDINGS)
        for kind, key in (("annotations", BIND_INFO), ("annotations", PRIORITY), ("labels", RETRY_ANNOTATION))
        for path in ("binding", "bindings")
    ),
    Case("hived binds", "", {"annotations": {BIND_INFO: "1"}}, HIVED, "binding", pod(ASKED)),
    Case("an administrator binds", "", {"annotations": {BIND_INFO: "1"}}, ADMIN, "binding", pod(ASKED)),
)  # fmt: skip
CASES = (*CREATED, *WAITING, *RUNNING, *BINDING)


class Writes:
    """Does what cases say in one namespace; `clients` has one for each user."""

    def __init__(self, clients: Mapping[str, KubeClient], namespace: str = "default") -> None:
        self._clients = clients
        self._pods = f"/api/v1/namespaces/{namespace}/pods"
        self._numbers = iter(range(1_000_000))

    def answer(self, case: Case) -> str:
        """The refusal by a policy, "" if the write is done. Raises KubeError where something else is wrong."""
        name = f"case-{next(self._numbers)}"
        try:
            if case.old is not None:
                self._clients[ADMIN].create(self._pods, _named(case.old, name))
            if case.node:
                self._clients[ADMIN].create(f"{self._pods}/{name}/binding", _binding(name, {}))
            return self._write(case, name)
        finally:
            self._remove(name)

    def _write(self, case: Case, name: str) -> str:
        client, path = self._clients[case.user], f"{self._pods}/{name}/{case.path}".rstrip("/")
        try:
            if case.old is None:
                client.create(self._pods, _named(case.new, name))
            elif case.path == "binding":
                client.create(path, _binding(name, case.new))
            elif case.path == "bindings":
                client.create(self._pods.removesuffix("pods") + "bindings", _binding(name, case.new))
            else:
                client.patch(path, case.new)
        except KubeError as error:
            if "ValidatingAdmissionPolicy" not in str(error):
                raise
            return str(error)
        return ""

    def _remove(self, name: str) -> None:
        try:
            self._clients[ADMIN].delete(f"{self._pods}/{name}", grace_period_s=0)
        except KubeError as error:
            if not error.is_not_found:
                raise


def check(writes: Writes, case: Case) -> None:
    """Fail unless the answer is the case's."""
    found = writes.answer(case)
    if not case.said:
        assert found == ""
        return
    assert (
        f"ValidatingAdmissionPolicy '{case.policy}' with binding '{case.policy}' denied request: {case.said}" in found
    )
    assert "(403 Forbidden)" in found


def _named(one: Json, name: str) -> Json:
    made = deepcopy(one)
    made["metadata"]["name"] = name
    return {"apiVersion": "v1", "kind": "Pod", **made}


def _binding(name: str, metadata: Mapping[str, Any]) -> Json:
    target = {"apiVersion": "v1", "kind": "Node", "name": NODE}
    return {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name, **metadata}, "target": target}
