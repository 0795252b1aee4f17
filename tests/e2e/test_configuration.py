"""Replicas and kubectl handle the configuration in a ConfigMap."""

import stat
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hived.values.errors import UserError
from hived_deploy.installation import NAMESPACE
from hived_extender.api.configuration import ConfigPushArgs
from hived_extender.api.inspection import ConfigClient, Inspector
from hived_extender.kube.client import KubeClient
from hived_extender.reconfiguration.versions import REFUSED, TEXT_KEY, VERSIONS_KEY
from tests.e2e.certificates import LOOPBACK
from tests.e2e.cluster import RealCluster
from tests.e2e.failures.working_cluster import redirected
from tests.e2e.http_proxy import HttpProxy, Side
from tests.e2e.plane import ControlPlane
from tests.e2e.pods import configuration, create, is_bound, pod
from tests.e2e.processes import Process
from tests.e2e.rights import grant_rights, service_kubeconfig
from tests.e2e.test_dialects import closing_proxy
from tests.expecting import expect_soon
from tests.reconfiguration.cluster import CONFIG_MAP, CONFIG_MAPS

CONFIG = f"{NAMESPACE}/{CONFIG_MAP}"
ELECTION = ("--leader-elect", "--lease-duration=4")
PODS = ("first", "second")
HELD_S = 30.0

Json = dict[str, Any]


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    """A configuration, and another one in which a has the node that was b's."""
    (tmp_path / "after").mkdir()
    return configuration(tmp_path, {"a": 1, "b": 1}), configuration(tmp_path / "after", {"a": 2, "b": 0})


@pytest.fixture
def one(plane: ControlPlane, files: tuple[Path, Path]) -> Iterator[RealCluster]:
    """A cluster with one replica, whose ConfigMap has its first version."""
    with RealCluster(plane, files[0], config_map=CONFIG) as cluster:
        await_first_version(cluster.kube)
        yield cluster


def url_of(cluster: RealCluster, replica: Process) -> str:
    return f"http://{LOOPBACK}:{cluster.ports[cluster.services.index(replica)]}"


def client(url: str) -> ConfigClient:
    return ConfigClient(Inspector(url))


def push(url: str, file: Path) -> int:
    """Push a file that harms nobody."""
    return client(url).push(ConfigPushArgs(file.read_text(), file.name, "", "admin", 1, {})).version


def stored(kube: KubeClient) -> Json:
    return kube.get(f"{CONFIG_MAPS}/{CONFIG_MAP}")


def await_first_version(kube: KubeClient) -> None:
    expect_soon(lambda: VERSIONS_KEY in (stored(kube).get("binaryData") or {}))


def fill(kube: KubeClient) -> None:
    """One pod of a runs, and another one waits for a second node."""
    create(kube, [pod(name, gpus=8) for name in PODS])
    expect_soon(lambda: any(is_bound(kube, name) for name in PODS))
    assert not all(is_bound(kube, name) for name in PODS)


def await_all(kube: KubeClient) -> None:
    expect_soon(lambda: all(is_bound(kube, name) for name in PODS))


def test_all_replicas_go_by_what_was_pushed_and_so_does_the_next_leader(
    plane: ControlPlane, files: tuple[Path, Path]
) -> None:
    with RealCluster(plane, files[0], config_map=CONFIG, replica_count=2, serve_options=ELECTION) as cluster:
        leader = cluster.leader()
        cluster.await_followers()
        await_first_version(cluster.kube)
        led = url_of(cluster, leader)
        followed = next(url_of(cluster, each) for each in cluster.services if each is not leader)
        with pytest.raises(UserError, match="leads") as caught:
            push(followed, files[1])
        assert caught.value.code == 503
        assert push(led, files[1]) == 2
        expect_soon(lambda: client(followed).current().version == 2)
        leader.kill()
        cluster.leader(besides=leader)
        create(cluster.kube, [pod(name, gpus=8) for name in PODS])
        await_all(cluster.kube)


def test_a_version_that_was_written_counts_although_the_leader_dies_of_it(
    plane: ControlPlane, files: tuple[Path, Path]
) -> None:
    """It is killed when the API server has stored the version, before it has been told so."""
    grant_rights(plane)
    with closing_proxy(HttpProxy(lambda: plane.url, plane.authority)) as api:
        account = redirected(service_kubeconfig(plane), api.url)
        with RealCluster(
            plane, files[0], config_map=CONFIG, replica_count=2, serve_options=ELECTION, kubeconfig=account
        ) as cluster:
            leader = cluster.leader()
            cluster.await_followers()
            await_first_version(cluster.kube)
            fill(cluster.kube)
            hold = api.hold(Side.ANSWER, "PUT", f"configmaps/{CONFIG_MAP}")
            told: list[str] = []
            pushing = threading.Thread(target=lambda: told.append(refusal(cluster.url, files[1])))
            pushing.start()
            assert hold.wait(HELD_S)
            leader.kill()
            hold.drop()
            pushing.join()
            next_leader = cluster.leader(besides=leader)
            assert "It may be in force all the same" in told[0]
            assert client(url_of(cluster, next_leader)).current().version == 2
            await_all(cluster.kube)


def refusal(url: str, file: Path) -> str:
    """The answer to a push that comes to nothing."""
    try:
        return str(push(url, file))
    except UserError as error:
        return error.message


def test_what_kubectl_applies_or_edits_becomes_a_version(
    one: RealCluster, files: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(one.kube)
    manifest = one.plane.kubectl(
        "create", "configmap", CONFIG_MAP, "-n", NAMESPACE, f"--from-file={TEXT_KEY}={files[1]}", "--dry-run=client",
        "-o", "yaml",
    ).stdout  # fmt: skip
    one.plane.kubectl("apply", "-f", "-", stdin=manifest)
    expect_soon(lambda: client(one.url).current().version == 2)
    current = client(one.url).current()
    assert (current.text, current.who) == (files[1].read_text(), "kubectl-client-side-apply")
    await_all(one.kube)

    edit = tmp_path / "editor"
    edit.write_text("#!/bin/sh\nsed -i 's/skuTypes/# edited\\n      skuTypes/' \"$1\"\n")
    edit.chmod(edit.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("KUBE_EDITOR", str(edit))
    one.plane.kubectl("edit", "configmap", CONFIG_MAP, "-n", NAMESPACE)
    expect_soon(lambda: client(one.url).current().version == 3)
    current = client(one.url).current()
    assert "# edited" in current.text
    assert current.who == "kubectl-edit"
    assert [version.version for version in client(one.url).versions()] == [3, 2, 1]


def test_what_kubectl_breaks_is_refused_and_told(one: RealCluster) -> None:
    text = stored(one.kube)["data"][TEXT_KEY].replace("cellType: NODE", "cellType: NDOE")
    one.plane.kubectl("patch", "configmap", CONFIG_MAP, "-n", NAMESPACE, "--patch-file=/dev/stdin", stdin=patch(text))
    expect_soon(lambda: client(one.url).current().refused is not None)
    assert client(one.url).current().version == 1
    assert "NDOE" in stored(one.kube)["metadata"]["annotations"][REFUSED]
    words = ("get", "events", "-n", NAMESPACE, "--field-selector", f"involvedObject.name={CONFIG_MAP}")
    expect_soon(lambda: "ConfigRefused" in one.plane.kubectl(*words).stdout, every_s=0.5)
    metrics = Inspector(one.url).fetch("/metrics").decode()
    assert 'hived_config_changes_total{outcome="refused"} 1.0' in metrics
    create(one.kube, [pod("first")])
    expect_soon(lambda: is_bound(one.kube, "first"))


def patch(text: str) -> str:
    lines = "".join(f"    {line}\n" for line in text.splitlines())
    return f"data:\n  {TEXT_KEY}: |\n{lines}"
