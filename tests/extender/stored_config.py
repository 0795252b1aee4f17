"""The configuration of the small cluster as the first version of a store, be that a ConfigMap or a file."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from hived_config.loader import load_text
from hived_extender.kube.client import KubeClient
from hived_extender.machine.service import Service
from hived_extender.reconfiguration.configurations import Configurations, InForce
from hived_extender.reconfiguration.stores import ConfigMapStore, Origin, Store
from hived_extender.reconfiguration.versions import Stored, Version
from hived_lab.embedded.cluster import EmbeddedCluster
from tests.extender.machine.small_cluster import CONFIG, cluster_spec

FIRST = Version(1, "then", "", "first", CONFIG)

ConfigMap = TypeVar("ConfigMap", bound=ConfigMapStore)


@contextmanager
def api_server() -> Iterator[KubeClient]:
    """A client of an API server that has the nodes of the small cluster."""
    with EmbeddedCluster(cluster_spec()) as cluster:
        client = KubeClient.connect(cluster.api_url)
        yield client
        client.close()


def begun(store: ConfigMap, first: Version = FIRST) -> ConfigMap:
    """The same store, with a first version and no other."""
    store.create(Stored(first.text, (first,)))
    return store


def configurations_of(service: Service, store: Store, first: Version = FIRST, **more: Any) -> Configurations:
    """The configurations of a service whose first version is in force."""
    return Configurations(InForce(service, Origin(store, load_text(first.text, "first"), first), **more))
