"""The accounts that an installation gives to its programs, with the rights that we ship and no others."""

from pathlib import Path

import yaml

from hived_deploy.installation import NAMESPACE, SCHEDULER, deploy_folder
from hived_deploy.kustomize import build
from tests.e2e.plane import ControlPlane

KINDS = {
    "Namespace", "ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding",
    "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding",
}  # fmt: skip
HIVED = "hived"


def grant_rights(plane: ControlPlane, overlay: str = "ha") -> None:
    """Make the namespace, the accounts, the roles and the policies of an overlay; harmless where they are.

    With the rights of every feature: the tests of a plane share it.
    """
    root = deploy_folder()
    components = [str(root / "components" / name) for name in ("queues-rbac", "kueue-rbac")]
    kustomization = {
        "resources": [str(root / "overlays" / overlay)],
        "components": components,
        "namespace": NAMESPACE,
    }
    objects = [each for each in build(Path("/"), kustomization) if each["kind"] in KINDS]
    plane.kubectl("apply", "--server-side", "-f", "-", stdin=yaml.safe_dump_all(objects))


def service_kubeconfig(plane: ControlPlane) -> Path:
    """The kubeconfig of our service in an installation. Raises KubeError before `grant_rights`."""
    return plane.service_account_kubeconfig(NAMESPACE, HIVED)


def scheduler_kubeconfig(plane: ControlPlane) -> Path:
    """The same for the kube-scheduler of an installation."""
    return plane.service_account_kubeconfig(NAMESPACE, SCHEDULER)
