"""charts/hived on a real API server, by Helm: it is installed, upgraded without undoing a push, and taken away."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from hived_deploy.installation import CONFIG, NAMESPACE
from tests.e2e import tools
from tests.e2e.plane import ControlPlane
from tests.e2e.test_installation import uninstall
from tests.e2e.tools import ToolsMissing
from tests.places import ROOT

CHART = ROOT / "charts" / "hived"
SAMPLE = ROOT / "config" / "deploy" / "base" / "hivedscheduler.yaml"
CONFIG_MAP = f"/api/v1/namespaces/{NAMESPACE}/configmaps/{CONFIG}"
SECRET = f"/api/v1/namespaces/{NAMESPACE}/secrets"


class Helm:
    """Helm and the release `hived`."""

    def __init__(self, program: Path, plane: ControlPlane, home: Path) -> None:
        self._command = [str(program), f"--kubeconfig={plane.admin_kubeconfig}", f"--namespace={NAMESPACE}"]
        self._environ = {"PATH": os.environ["PATH"], "HOME": str(home)}

    def run(self, *arguments: str, values: dict[str, Any] | None = None) -> str:
        """What Helm prints. Raises CalledProcessError."""
        given = ["--values", "-"] if values is not None else []
        command = [*self._command, *arguments, *given]
        return subprocess.run(
            command, env=self._environ, input=yaml.safe_dump(values), stdout=-1, text=True, check=True, timeout=120
        ).stdout  # fmt: skip

    def install(self) -> str:
        """Install the release with the sample of config/deploy."""
        return self.run("install", "hived", str(CHART), "--create-namespace", values=values())


def values(**more: Any) -> dict[str, Any]:
    """Values with the sample of config/deploy, and others. No node here could run the Job that checks it."""
    return {"configuration": SAMPLE.read_text(), "validation": {"enabled": False}, **more}


@pytest.fixture
def helm(plane: ControlPlane, tmp_path: Path) -> Iterator[Helm]:
    """Helm, for a cluster in which hived is not installed, before and after the test."""
    try:
        program = tools.find_helm()
    except ToolsMissing as missing:
        pytest.skip(str(missing))
    plane.clear()
    uninstall(plane, "tls")
    yield Helm(program, plane, tmp_path)
    uninstall(plane, "tls")
    plane.kubectl("delete", "--wait", "--ignore-not-found", "-f", str(CHART / "crds"))  # Helm itself never does


def text_in_force(plane: ControlPlane) -> str:
    """The configuration in the cluster."""
    said = plane.kubectl("get", "configmap", CONFIG, f"--namespace={NAMESPACE}", "--output=yaml").stdout
    return str(yaml.safe_load(said)["data"]["hivedscheduler.yaml"])


def push(plane: ControlPlane, text: str) -> None:
    """Replace the configuration as hived does when one is pushed."""
    patch = yaml.safe_dump({"data": {"hivedscheduler.yaml": text}})
    plane.kubectl("patch", "configmap", CONFIG, f"--namespace={NAMESPACE}", "--type=merge", f"--patch={patch}")


def test_the_chart_is_installed(plane: ControlPlane, helm: Helm) -> None:
    assert "hived get cluster" in helm.install()
    deployments = plane.kubectl("get", "deployments", f"--namespace={NAMESPACE}", "--output=name").stdout.split()
    assert deployments == ["deployment.apps/hived", "deployment.apps/hived-kube-scheduler"]


def test_an_upgrade_with_the_same_configuration_leaves_what_was_pushed(plane: ControlPlane, helm: Helm) -> None:
    helm.install()
    pushed = "# pushed\n" + text_in_force(plane)
    push(plane, pushed)
    helm.run("upgrade", "hived", str(CHART), values=values(replicas=1))
    assert text_in_force(plane) == pushed


def test_an_upgrade_with_another_configuration_applies_it(plane: ControlPlane, helm: Helm) -> None:
    helm.install()
    installed = text_in_force(plane)
    push(plane, "# pushed\n" + installed)
    helm.run("upgrade", "hived", str(CHART), "--force-conflicts", values=values(configuration="# ours\n" + installed))
    assert text_in_force(plane) == "# ours\n" + installed


def test_the_key_that_proves_bindings_outlives_the_release(plane: ControlPlane, helm: Helm) -> None:
    helm.install()
    helm.run("uninstall", "hived")
    left = plane.kubectl("get", "secret,deployment", f"--namespace={NAMESPACE}", "--output=name").stdout.split()
    assert left == ["secret/hived-bindings"]


def test_a_release_can_be_installed_again_beside_the_key(helm: Helm) -> None:
    helm.install()
    helm.run("uninstall", "hived")
    assert "hived get cluster" in helm.install()
