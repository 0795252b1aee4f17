"""config/deploy on a real API server: it is accepted, its pods are admitted, and its accounts may do what they need."""

import json
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest
import yaml

from hived_deploy.installation import CONFIG, NAMESPACE, OVERLAYS, SCHEDULER
from hived_deploy.kustomize import build
from hived_extender.kube.client import PODS, KubeClient
from hived_extender.kube.lease import LeaseName
from hived_extender.reconfiguration.stores import ConfigMapName
from hived_extender.running import start_extender
from hived_lab.embedded.nodes import Machine
from tests.deploy.rules import of_kind, scheduler_configurations
from tests.e2e.plane import ControlPlane
from tests.e2e.pods import POD_LIST, pod
from tests.e2e.processes import Process, StartError, free_port
from tests.e2e.rights import HIVED, grant_rights, scheduler_kubeconfig, service_kubeconfig
from tests.places import ROOT

DEPLOY = ROOT / "config" / "deploy"


FOLLOWED = ConfigMapName(NAMESPACE, CONFIG)


def uninstall(plane: ControlPlane, overlay: str) -> None:
    """Delete an overlay as docs/install.md says: the namespace is deleted first, and takes most of the rest with it."""
    plane.kubectl("delete", "--wait", "--ignore-not-found", "-k", str(DEPLOY / "overlays" / overlay))


@pytest.fixture(params=OVERLAYS)
def overlay(plane: ControlPlane, request: pytest.FixtureRequest) -> Iterator[str]:
    """An overlay that is applied for the test, and deleted after it."""
    plane.clear()
    uninstall(plane, "tls")
    folder = str(DEPLOY / "overlays" / request.param)
    applied = plane.kubectl("apply", "--server-side", "-k", folder)
    assert "Warning" not in applied.stderr
    yield str(request.param)
    uninstall(plane, request.param)


def test_the_namespace_admits_the_pods(plane: ControlPlane, overlay: str) -> None:
    wanted = sum(each["spec"]["replicas"] for _, each in of_kind(build(DEPLOY / "overlays" / overlay), "Deployment"))

    def made() -> int:
        found = plane.kube.list_objects(f"/api/v1/namespaces/{NAMESPACE}/pods", dict[str, Any])
        return len(found.items)

    plane.wait_for("the pods to be created", lambda: made() == wanted)
    assert made() == wanted


def may(plane: ControlPlane, account: str, verb: str, what: str, namespace: str = "") -> bool:
    """Whether an account of the installation may do something with `resource[.group][/subresource][:name]`."""
    resource, _, name = what.partition(":")
    resource, _, subresource = resource.partition("/")
    resource, _, group = resource.partition(".")
    attributes = {"verb": verb, "resource": resource, "group": group, "subresource": subresource, "name": name,
                  "namespace": namespace}  # fmt: skip
    user = f"system:serviceaccount:{NAMESPACE}:{account}"
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {"user": user, "groups": ["system:serviceaccounts"], "resourceAttributes": attributes},
    }
    answer = plane.kube.create("/apis/authorization.k8s.io/v1/subjectaccessreviews", review)
    return bool(answer["status"]["allowed"])


LEASE = "leases.coordination.k8s.io"
OURS = f"configmaps:{CONFIG}"

ALLOWED = [
    *((HIVED, verb, what, "") for verb in ("get", "list", "watch") for what in ("nodes", "pods")),
    *((HIVED, verb, what, "jobs") for verb, what in (
        ("patch", "pods"), ("create", "pods/binding"), ("patch", "pods/status"), ("create", "pods/eviction"),
        ("delete", "pods"), ("create", "events"), ("get", "events"), ("patch", "events"))),
    *((HIVED, verb, f"{LEASE}:hived-scheduler", NAMESPACE) for verb in ("get", "update")),
    *((SCHEDULER, verb, f"{LEASE}:{SCHEDULER}", NAMESPACE) for verb in ("get", "update")),
    *((HIVED, verb, OURS, NAMESPACE) for verb in ("get", "list", "watch", "update")),
    (HIVED, "create", "events", NAMESPACE),
    (HIVED, "create", LEASE, NAMESPACE),
    (SCHEDULER, "create", LEASE, NAMESPACE),
    (SCHEDULER, "update", "persistentvolumeclaims", "jobs"),
]  # fmt: skip

REFUSED = [
    *((HIVED, verb, what, "jobs") for verb, what in (
        ("create", "pods"), ("update", "pods"), ("deletecollection", "pods"), ("create", "pods/exec"),
        ("update", "pods/status"), ("get", "secrets"), ("list", "secrets"), ("get", "configmaps"), ("*", "*"))),
    *((HIVED, verb, "nodes", "") for verb in ("patch", "update", "delete")),
    *((HIVED, verb, what, NAMESPACE) for verb, what in (
        ("get", "configmaps:another"), ("list", "configmaps"), ("create", "configmaps"), ("delete", OURS))),
    (HIVED, "update", OURS, "kube-system"),
    (SCHEDULER, "get", OURS, NAMESPACE),
    (HIVED, "update", f"{LEASE}:another", NAMESPACE),
    (HIVED, "update", f"{LEASE}:hived-scheduler", "kube-system"),
    (HIVED, "create", LEASE, "kube-system"),
    (HIVED, "delete", f"{LEASE}:hived-scheduler", NAMESPACE),
    (SCHEDULER, "update", f"{LEASE}:hived-scheduler", NAMESPACE),
    (SCHEDULER, "get", "secrets", NAMESPACE),
    (SCHEDULER, "get", "configmaps", "kube-system"),
    (SCHEDULER, "patch", "pods", "jobs"),
]  # fmt: skip

REVIEWS = [
    (HIVED, "create", what, "")
    for what in ("tokenreviews.authentication.k8s.io", "subjectaccessreviews.authorization.k8s.io")
]


def test_accounts_may_do_what_they_need_and_nothing_else(plane: ControlPlane, overlay: str) -> None:
    allowed, refused = (ALLOWED + REVIEWS, REFUSED) if overlay == "tls" else (ALLOWED, REFUSED + REVIEWS)
    with suppress(StartError):  # the API server hears of its rules like everybody else
        plane.wait_for("the rules to hold", lambda: all(may(plane, *each) for each in allowed))
    assert [each for each in allowed if not may(plane, *each)] == []
    assert [each for each in refused if may(plane, *each)] == []


def test_a_pod_is_bound_and_another_preempted_with_these_accounts_and_files(
    plane: ControlPlane, tmp_path: Path
) -> None:
    plane.clear()
    grant_rights(plane)
    objects = build(DEPLOY)
    (config,) = [each for name, each in of_kind(objects, "ConfigMap") if name == f"ConfigMap/{CONFIG}"]
    plane.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", stdin=yaml.safe_dump(config))
    plane.add_nodes(
        [Machine(name, {"cpu": "4", "memory": "16Gi", "pods": "10"}) for name in ("machine-1", "machine-2")]
    )
    account = KubeClient.connect(kubeconfig=str(service_kubeconfig(plane)))
    lease = LeaseName(NAMESPACE, "hived-scheduler", "test")
    with start_extender(FOLLOWED, account, listen="127.0.0.1:0", lease=lease) as extender:
        scheduler = kube_scheduler(plane, objects, extender.url, tmp_path)
        scheduler.start()
        try:
            for name in ("first", "second"):
                submit(plane, name, priority=-1)
            plane.wait_for("both pods to be bound", lambda: bool(node_of(plane, "first") and node_of(plane, "second")))
            submit(plane, "urgent", priority=100)
            plane.wait_for("the urgent pod to be bound", lambda: bool(node_of(plane, "urgent")))
        finally:
            scheduler.stop()
    assert node_of(plane, "urgent") in {"machine-1", "machine-2"}
    assert "forbidden" not in (plane.logs / f"{SCHEDULER}.log").read_text()


def test_applying_the_manifests_again_undoes_a_push_only_if_it_is_forced_to(plane: ControlPlane) -> None:
    plane.clear()
    uninstall(plane, "tls")
    apply = ("apply", "--server-side", "-k", str(DEPLOY / "overlays" / "single"))
    plane.kubectl(*apply)
    account = KubeClient.connect(kubeconfig=str(service_kubeconfig(plane)))
    try:
        with start_extender(FOLLOWED, account, listen="127.0.0.1:0") as extender:
            plane.wait_for("the extender to lead", lambda: extender.wait_ready(0.1))
            installed = ask(extender.url)["text"]
            plane.kubectl(*apply)  # nothing was pushed yet
            assert ask(extender.url, {"text": f"# pushed\n{installed}"})["version"] == 2
            with pytest.raises(subprocess.CalledProcessError) as refusal:
                plane.kubectl(*apply)
            assert "conflict" in refusal.value.stderr
            assert ask(extender.url)["text"] == f"# pushed\n{installed}"
            plane.kubectl(*apply, "--force-conflicts")
            plane.wait_for("the third version", lambda: ask(extender.url)["version"] == 3)
            assert ask(extender.url)["text"] == installed
            kept = ask(f"{extender.url}/v1/config/versions")["items"]
            assert [each["version"] for each in kept] == [3, 2, 1]
    finally:
        uninstall(plane, "single")


def ask(url: str, push: dict[str, Any] | None = None) -> Any:
    """The configuration in force, or the answer to a push; of another path what that says."""
    path = url if "/v1/" in url else f"{url}/v1/config"
    body = None if push is None else json.dumps(push).encode()
    with urlopen(Request(path, body), timeout=60) as response:
        return json.load(response)


def kube_scheduler(plane: ControlPlane, objects: list[dict[str, Any]], url: str, folder: Path) -> Process:
    """kube-scheduler with its arguments and its file; only addresses and its account's token are put in."""
    (config,) = dict(scheduler_configurations(objects)).values()
    config["clientConnection"]["kubeconfig"] = str(scheduler_kubeconfig(plane))
    config["extenders"][0]["urlPrefix"] = config["extenders"][0]["urlPrefix"].replace("http://hived:9096", url)
    file = folder / "config.yaml"
    file.write_text(yaml.safe_dump(config))
    (deployment,) = [each for name, each in of_kind(objects, "Deployment") if name == f"Deployment/{SCHEDULER}"]
    arguments = [
        each.replace("$(POD_NAMESPACE)", NAMESPACE).replace("/etc/kube-scheduler/config.yaml", str(file))
        for each in deployment["spec"]["template"]["spec"]["containers"][0]["args"]
    ]
    serving = ["--bind-address=127.0.0.1", f"--secure-port={free_port()}"]
    log = plane.logs / f"{SCHEDULER}.log"
    return Process(SCHEDULER, [plane.tools / "kube-scheduler", *arguments, *serving], log)


def submit(plane: ControlPlane, name: str, priority: int) -> None:
    """A pod that takes a machine's only GPU and all of its CPU, without a Kubernetes priority."""
    fields = {"schedulerName": "hived"}
    plane.kube.create(POD_LIST, pod(name, vc="research", priority=priority, limits={"cpu": "4"}, fields=fields))


def node_of(plane: ControlPlane, name: str) -> str:
    """Where a pod is bound; "" if it is not, or not there."""
    found = plane.kube.list_objects(PODS, dict[str, Any]).items
    return next((str(each["spec"].get("nodeName", "")) for each in found if each["metadata"]["name"] == name), "")
