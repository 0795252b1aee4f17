"""Where a configuration comes from: a file, or a ConfigMap with all versions."""

from pathlib import Path

import msgspec

from hived_config.loader import Configuration, load, load_text
from hived_extender.kube.client import KubeClient
from hived_extender.kube.events import timestamp
from hived_extender.kube.metrics import Metrics
from hived_extender.reconfiguration.stores import ConfigMapStore, FileStore, Store, read_configuration
from hived_extender.reconfiguration.versions import Version


class ConfigMapName(msgspec.Struct, frozen=True):
    """Which ConfigMap has the configuration."""

    namespace: str
    name: str


class Origin(msgspec.Struct, frozen=True):
    """Where the configuration comes from: the one in force at the start, and the store that is followed later."""

    store: Store
    configuration: Configuration
    version: Version


def file_origin(file: Path) -> Origin:
    """A file that its owner changes. Raises UserError if it cannot be used."""
    text = read_configuration(file)  # first: a write in between is taken up as a change
    configuration = load(file)
    return Origin(FileStore(file), configuration, Version(1, timestamp(), "", f"read from {file}", text))


def config_map_origin(kube: KubeClient, namespace: str, name: str, metrics: Metrics | None = None) -> Origin:
    """The configuration in force by the ConfigMap, or the one given at first. Raises UserError if it cannot be used."""
    store = ConfigMapStore(kube, namespace, name, metrics or Metrics())
    stored = store.read().stored
    version = stored.newest or Version(1, timestamp(), "", "found at the first start", stored.text)
    return Origin(store, load_text(version.text, store.source), version)
