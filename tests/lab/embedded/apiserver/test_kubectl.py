"""kubectl, as people type it, against an embedded cluster with nodes."""

import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hived.values.specs import CellTypeSpec, ClusterSpec, PhysicalCellSpec
from hived_lab.embedded.cluster import EmbeddedCluster
from hived_lab.embedded.nodes import READY
from tests.expecting import expect_soon
from tests.lab.embedded.helpers import config_map

pytestmark = [
    pytest.mark.sample(7),
    pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed"),
]

Kubectl = Callable[..., str]

POD = """
apiVersion: v1
kind: Pod
metadata:
  name: {name}
  labels: {{app: demo}}
spec:
  nodeName: {node}
  terminationGracePeriodSeconds: 1
  containers:
  - name: main
    image: busybox
    resources: {{limits: {{cpu: "1"}}}}
"""

BOUNDED_WATCH = ["kubectl", "--watch", "--request-timeout=60s"]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedCluster]:
    """Two nodes, and no scheduler."""
    nodes = tuple(PhysicalCellSpec("NODE", name) for name in ("node-a", "node-b"))
    spec = ClusterSpec({"NODE": CellTypeSpec("NODE", "GPU", 4, True)}, nodes, {})
    kubeconfig = tmp_path_factory.mktemp("kube") / "config"
    with EmbeddedCluster(spec, kubeconfig_path=kubeconfig) as running:
        yield running


@pytest.fixture(scope="module")
def kubectl(cluster: EmbeddedCluster, tmp_path_factory: pytest.TempPathFactory) -> Kubectl:
    """Run kubectl and return what it prints; its caches are kept out of the user's home."""
    environment = {**os.environ, "KUBECONFIG": str(cluster.kubeconfig), "HOME": str(tmp_path_factory.mktemp("home"))}

    def run(*arguments: str, stdin: str = "", fails: bool = False) -> str:
        done = subprocess.run(
            ["kubectl", *arguments],
            input=stdin,
            env=environment,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert (done.returncode != 0) == fails, done.stdout + done.stderr
        return done.stdout + done.stderr

    return run


@pytest.fixture
def name(kubectl: Kubectl, request: pytest.FixtureRequest) -> Iterator[str]:
    """A pod on node-a, named after the test."""
    made = request.node.name.removeprefix("test_").replace("_", "-")[:50].strip("-")
    kubectl("apply", "-f", "-", stdin=POD.format(name=made, node="node-a"))
    yield made
    kubectl("delete", "pod", made, "--ignore-not-found", "--force", "--grace-period=0")


def as_json(kubectl: Kubectl, *arguments: str) -> Any:
    return json.loads(kubectl(*arguments, "-o", "json"))


def test_get_prints_tables(kubectl: Kubectl, name: str) -> None:
    expect_soon(lambda: "Running" in kubectl("get", "pod", name))
    header, row = kubectl("get", "pods", name, "-o", "wide").splitlines()
    assert header.split()[:5] == ["NAME", "READY", "STATUS", "RESTARTS", "AGE"]
    assert row.split()[:4] == [name, "1/1", "Running", "0"]
    assert "node-a" in row
    nodes = kubectl("get", "nodes").splitlines()
    assert [line.split()[:2] for line in nodes[1:]] == [["node-a", "Ready"], ["node-b", "Ready"]]
    assert "node-a" in kubectl("get", "leases", "-A")
    assert "system-node-critical" in kubectl("get", "priorityclasses")
    assert "kube-system" in kubectl("get", "ns")
    assert name in kubectl("get", "all")


def test_apply_creates_changes_and_leaves_alone(kubectl: Kubectl, tmp_path: Path) -> None:
    file = tmp_path / "pod.yaml"
    file.write_text(POD.format(name="applied", node="node-b"))
    assert "created" in kubectl("apply", "-f", str(file))
    assert "unchanged" in kubectl("apply", "-f", str(file))
    file.write_text(file.read_text().replace("app: demo", "app: other"))
    assert "label" in kubectl("diff", "-f", str(file), fails=True)
    assert kubectl("apply", "-f", str(file)).strip() == "pod/applied configured"
    assert as_json(kubectl, "get", "pod", "applied")["metadata"]["labels"] == {"app": "other"}
    assert "deleted" in kubectl("delete", "-f", str(file))


def test_apply_validates_by_default(kubectl: Kubectl) -> None:
    text = POD.format(name="typo", node="node-a").replace("containers", "contianers")
    assert 'unknown field "spec.contianers"' in kubectl("apply", "-f", "-", stdin=text, fails=True)


def test_create_makes_objects_also_those_that_it_sends_as_protobuf(kubectl: Kubectl) -> None:
    assert "created" in kubectl("create", "namespace", "research")
    assert "created" in kubectl("create", "configmap", "settings", "--from-literal=a=b", "-n", "research")
    assert as_json(kubectl, "get", "configmap", "settings", "-n", "research")["data"] == {"a": "b"}
    assert "created" in kubectl("create", "priorityclass", "urgent", "--value=900", "--description=soon")
    assert as_json(kubectl, "get", "priorityclass", "urgent")["value"] == 900
    assert "AlreadyExists" in kubectl("create", "namespace", "research", fails=True)
    assert "deleted" in kubectl("delete", "namespace", "research")
    assert "deleted" in kubectl("delete", "priorityclass", "urgent")


def test_describe_explains_pods_and_nodes(kubectl: Kubectl, name: str) -> None:
    expect_soon(lambda: "Running" in kubectl("get", "pod", name))
    described = kubectl("describe", "pod", name)
    assert "Node:" in described
    assert "node-a" in described
    described = kubectl("describe", "node", "node-a")
    assert "KubeletReady" in described
    assert "nvidia.com/gpu" in described
    assert name in described


def test_annotate_label_and_patch(kubectl: Kubectl, name: str) -> None:
    kubectl("annotate", "pod", name, "example.com/a=b")
    kubectl("label", "pod", name, "tier=x")
    kubectl("patch", "pod", name, "--type=json", "-p", '[{"op":"remove","path":"/metadata/labels/app"}]')
    kubectl("patch", "pod", name, "--type=merge", "-p", '{"metadata":{"labels":{"more":"y"}}}')
    metadata = as_json(kubectl, "get", "pod", name)["metadata"]
    assert metadata["labels"] == {"tier": "x", "more": "y"}
    assert metadata["annotations"]["example.com/a"] == "b"
    assert name in kubectl("get", "pods", "-l", "tier in (x,z)")
    assert "No resources found" in kubectl("get", "pods", "-l", "tier=z")


def test_replace_changes_a_config_map(kubectl: Kubectl) -> None:
    kubectl("create", "-f", "-", stdin=json.dumps(config_map("replaced", a="b")))
    kubectl("replace", "-f", "-", stdin=json.dumps(config_map("replaced", c="d")))
    assert as_json(kubectl, "get", "cm", "replaced")["data"] == {"c": "d"}


def test_delete_waits_until_the_node_has_stopped_the_pod(kubectl: Kubectl, name: str) -> None:
    expect_soon(lambda: "Running" in kubectl("get", "pod", name))
    assert "deleted" in kubectl("delete", "pod", name)
    assert "NotFound" in kubectl("get", "pod", name, fails=True)


def test_wait_and_watch_see_changes(kubectl: Kubectl, cluster: EmbeddedCluster, name: str) -> None:
    assert "condition met" in kubectl("wait", "--for=condition=Ready", f"pod/{name}", "--timeout=60s")
    watched = subprocess.Popen(
        [*BOUNDED_WATCH, "--kubeconfig", str(cluster.kubeconfig), "get", "pod", name, "--no-headers"],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert watched.stdout is not None
        assert "Running" in watched.stdout.readline()
        kubectl("annotate", "pod", name, "embedded.hived/run-seconds=0")
        assert any("Completed" in line for line in watched.stdout)
    finally:
        watched.terminate()
        watched.communicate(timeout=60)


def test_cordon_and_drain_empty_a_node(kubectl: Kubectl, name: str) -> None:
    kubectl("cordon", "node-a")
    assert "Ready,SchedulingDisabled" in kubectl("get", "node", "node-a")
    assert f"pod/{name} evicted" in kubectl("drain", "node-a", "--force")
    assert "NotFound" in kubectl("get", "pod", name, fails=True)
    kubectl("uncordon", "node-a")
    assert "SchedulingDisabled" not in kubectl("get", "node", "node-a")


def test_an_annotation_makes_a_node_fail_and_recover(kubectl: Kubectl) -> None:
    kubectl("annotate", "node", "node-b", f"{READY}=false")
    assert expect_soon(lambda: "NotReady" in kubectl("get", "node", "node-b"))
    kubectl("annotate", "node", "node-b", f"{READY}-")
    assert expect_soon(lambda: "NotReady" not in kubectl("get", "node", "node-b"))


def test_a_node_can_be_added_and_removed(kubectl: Kubectl) -> None:
    kubectl("create", "-f", "-", stdin=json.dumps({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-c"}}))
    assert "condition met" in kubectl("wait", "--for=condition=Ready", "node/node-c", "--timeout=60s")
    assert "deleted" in kubectl("delete", "node", "node-c")
    assert "node-c" not in kubectl("get", "nodes")


def test_taints_labels_and_allocatable_can_be_changed(kubectl: Kubectl) -> None:
    kubectl("taint", "node", "node-b", "a=b:NoSchedule", "c:NoExecute")
    kubectl("label", "node", "node-b", "zone=east")
    patch = '{"status":{"allocatable":{"example.com/gpu":"7"}}}'
    kubectl("patch", "node", "node-b", "--subresource=status", "-p", patch)
    node = as_json(kubectl, "get", "node", "node-b")
    assert {(one["key"], one.get("value"), one["effect"]) for one in node["spec"]["taints"]} == {
        ("a", "b", "NoSchedule"),
        ("c", None, "NoExecute"),
    }
    assert node["metadata"]["labels"]["zone"] == "east"
    assert node["status"]["allocatable"]["example.com/gpu"] == "7"
    kubectl("taint", "node", "node-b", "a=b:NoSchedule-", "c-")
    assert "taints" not in as_json(kubectl, "get", "node", "node-b")["spec"]


def test_run_logs_and_exec(kubectl: Kubectl) -> None:
    kubectl("run", "quick", "--image=busybox")
    assert "no processes" in kubectl("logs", "quick")
    assert "no processes" in kubectl("exec", "quick", "--", "ls", fails=True)
    kubectl("delete", "pod", "quick")


def test_a_dry_run_on_the_server_stores_nothing(kubectl: Kubectl) -> None:
    assert "created (server dry run)" in kubectl("create", "configmap", "dry", "--dry-run=server")
    assert "NotFound" in kubectl("get", "configmap", "dry", fails=True)


def test_api_resources_and_version(kubectl: Kubectl) -> None:
    listed = kubectl("api-resources", "--no-headers", "-o", "name").split()
    assert "leases.coordination.k8s.io" in listed
    assert "Server Version: v1.32.0+hived" in kubectl("version")
    assert kubectl("get", "--raw", "/readyz") == "ok"


def test_server_side_apply_says_what_to_do(kubectl: Kubectl) -> None:
    text = json.dumps(config_map("ssa"))
    assert "client-side apply" in kubectl("apply", "--server-side", "-f", "-", stdin=text, fails=True)
