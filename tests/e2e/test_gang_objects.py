"""PodGroups on a real API server, whose kinds are installed and removed while hived runs with the rights it ships."""

from collections.abc import Callable, Iterator

import pytest

from hived_extender.jobs.kinds.description import ObjectKind, ObjectRef
from hived_extender.jobs.podgroups import Objects
from hived_extender.kube import watch
from hived_extender.kube.client import KubeClient, KubeError
from hived_extender.kube.metrics import Metrics
from tests.e2e.plane import ControlPlane
from tests.e2e.podgroups import CUSTOM, DEFINITIONS, definition, path_of
from tests.e2e.rights import grant_rights, service_kubeconfig
from tests.expecting import PATIENCE_S, expect_soon


def succeeds(call: Callable[[], object]) -> bool:
    """A kind is there a moment after its definition."""
    try:
        call()
    except KubeError:
        return False
    return True


@pytest.fixture
def followed(plane: ControlPlane, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Objects, list[ObjectRef]]]:
    """The answer to our service's account when it lists gang objects; no kind is installed before or after."""
    monkeypatch.setattr(watch, "LOOK_INTERVAL_S", 0.2)
    monkeypatch.setattr(watch, "GLANCE_INTERVAL_S", 0.2)
    grant_rights(plane)
    kube, told = KubeClient.connect(kubeconfig=str(service_kubeconfig(plane))), list[ObjectRef]()
    following = Objects(kube, Metrics())
    following.start(told.append)
    yield following, told
    following.stop()
    kube.close()
    following.join(5)
    for kind in CUSTOM:
        succeeds(lambda kind=kind: plane.kube.delete(f"{DEFINITIONS}/{kind.name}"))


@pytest.mark.parametrize("kind", CUSTOM, ids=lambda kind: kind.group)
def test_a_kind_that_is_installed_later_is_followed_until_it_is_removed(
    plane: ControlPlane, followed: tuple[Objects, list[ObjectRef]], kind: ObjectKind
) -> None:
    following, told = followed
    assert following.wait_until_listed(PATIENCE_S)
    api_version = f"{kind.group}/{kind.versions[0]}"
    train = {"apiVersion": api_version, "kind": "PodGroup", "metadata": {"name": "train"}, "spec": {"minMember": 3}}
    ref = kind.ref("default", "train")
    plane.kube.create(DEFINITIONS, definition(kind))
    expect_soon(lambda: succeeds(lambda: plane.kube.create(path_of(kind), train)))
    expect_soon(lambda: ref in told)
    assert (following.get(ref.kind, ref.namespace, ref.name) or {})["spec"] == {"minMember": 3}
    plane.kube.delete(f"{DEFINITIONS}/{kind.name}")
    expect_soon(lambda: told.count(ref) == 2)
    assert following.get(ref.kind, ref.namespace, ref.name) is None
