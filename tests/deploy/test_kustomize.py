"""Our part of kustomize gives what `kubectl kustomize` gives."""

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from hived_deploy.installation import Installation
from hived_deploy.kustomize import Document, build, merge
from tests.deploy.installations import DEPLOY, FOLDERS, SAMPLES

KUBECTL = shutil.which("kubectl")
needs_kubectl = pytest.mark.skipif(KUBECTL is None, reason="there is no kubectl here to compare with")


def by_name(objects: list[Document]) -> dict[str, Document]:
    return {f"{each['kind']}/{each['metadata']['name']}": each for each in objects}


def kubectl_kustomize(folder: Path) -> dict[str, Document]:
    command = [str(KUBECTL), "kustomize", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    found = by_name(list(yaml.load_all(done.stdout, yaml.CSafeLoader)))
    for each in found.values():
        # Kustomize does not know yet that they are in no namespace; API servers take it away.
        if each["kind"].startswith("ValidatingAdmissionPolicy"):
            assert each["metadata"].pop("namespace", None) is not None
    return found


@pytest.mark.sample(2)
@needs_kubectl
@pytest.mark.parametrize("name", FOLDERS)
def test_a_folder_of_config_deploy_is_what_kubectl_makes_of_it(name: str) -> None:
    assert by_name(build(FOLDERS[name])) == kubectl_kustomize(FOLDERS[name])


VALUES: list[dict[str, Any]] = [
    {},
    {"overlay": "single", "namespace": "gpu-scheduling", "image": "registry.example:5000/ai/hived:1.2", "replicas": 3},
    {"overlay": "tls", "has_service_monitor": True, "image": "hived@sha256:" + "0a" * 32},
    {"has_service_monitor": True, "scheduler_names": ("ours", "{vc}-queue"), "namespace": "gpu-scheduling"},
    {"webhook_ca": "PEM", "overlay": "tls", "namespace": "gpu-scheduling", "webhook_failure_policy": "Ignore"},
    {"webhook_ca": "PEM"},
    {"scheduler_image": "registry.example/kube-scheduler:v1.33.13", "overlay": "tls"},
]


@pytest.mark.sample(3)
@needs_kubectl
@pytest.mark.parametrize("values", VALUES, ids=[", ".join(values) or "defaults" for values in VALUES])
def test_an_installation_is_what_kubectl_makes_of_its_kustomization(values: dict[str, Any], tmp_path: Path) -> None:
    installation = Installation(
        configuration=(SAMPLES / "racks.yaml").read_text(),
        virtual_clusters=("training", "Research"),
        is_scheduler_per_vc=False,
        **values,
    )
    kustomization, files = installation.kustomization()
    for key in ("resources", "components"):
        kustomization[key] = [os.path.relpath(path, tmp_path) for path in kustomization[key]]
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump(kustomization))
    assert by_name(installation.objects()) == kubectl_kustomize(tmp_path)


def test_a_merge_changes_what_a_patch_names_and_keeps_the_rest() -> None:
    env = [{"name": "X", "value": "1"}]
    base = {"containers": [{"name": "a", "args": ["1", "2"], "env": env}], "kept": 1, "gone": 2}
    patch = {"containers": [{"name": "b"}, {"name": "a", "args": ["3"]}], "gone": None}
    assert merge(base, patch) == {
        "containers": [{"name": "b"}, {"name": "a", "args": ["3"], "env": env}],
        "kept": 1,
    }


def test_what_only_kustomize_can_do_is_refused(tmp_path: Path) -> None:
    (tmp_path / "kustomization.yaml").write_text("resources: []\nnamePrefix: my-\n")
    with pytest.raises(ValueError, match="namePrefix"):
        build(tmp_path)


def test_a_patch_of_an_object_that_is_not_there_is_refused(tmp_path: Path) -> None:
    (tmp_path / "kustomization.yaml").write_text("resources: []\npatches: [{path: patch.yaml}]\n")
    (tmp_path / "patch.yaml").write_text("kind: Deployment\nmetadata: {name: hived}\n")
    with pytest.raises(ValueError, match="no Deployment hived"):
        build(tmp_path)


def test_everything_is_applied_after_its_namespace() -> None:
    assert build(DEPLOY)[0]["kind"] == "Namespace"
