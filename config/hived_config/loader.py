"""A configuration file -> `ClusterSpec` and `Settings`, or `ConfigError` with every mistake in it."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import yaml

from hived.specs import ClusterSpec
from hived_config.access import Access, AccessRules
from hived_config.access_reader import ACCESS_KEYS, check_opportunists, read_access, read_opportunistic
from hived_config.chains import CellTypes
from hived_config.document import MAX_NODES, gc_paused, read_text
from hived_config.errors import ConfigError, Mistake
from hived_config.openpai import open_configuration
from hived_config.physical import PhysicalCells
from hived_config.reader import Reader, is_null
from hived_config.rules import POD_RULE_KEYS, PodRules, check_foreign, read_pod_rules
from hived_config.settings import SETTING_KEYS, Settings, read_settings
from hived_config.skus import SkuTypes, read_sku_types
from hived_config.virtual import VirtualClusters

DOCUMENT_KEYS = (*SETTING_KEYS, *POD_RULE_KEYS, *ACCESS_KEYS, "physicalCluster", "virtualClusters")
PHYSICAL_CLUSTER_KEYS = ("skuTypes", "cellTypes", "physicalCells")


@dataclass(frozen=True, slots=True)
class Configuration:
    """A sound configuration file: the cluster, the server's settings, how pods are read, and oddities."""

    cluster: ClusterSpec
    settings: Settings
    rules: PodRules = field(default_factory=PodRules)
    warnings: tuple[Mistake, ...] = ()


def load(path: str | Path, lenient: bool = False, environ: Mapping[str, str] | None = None) -> Configuration:
    """Read a configuration file, plain or inside an OpenPAI services-configuration.yaml.

    Parameters
    ----------
    path : the file
    lenient : unknown keys are warnings, as the reference ignores them
    environ : where settings that the file leaves out come from; the process's environment if None

    Raises ConfigError listing every mistake. Cost O(file): cells that the file leaves to be generated are not made.
    """
    file = str(path).encode(errors="replace").decode()
    return load_text(read_text(Path(path), file), file, lenient, environ)


def load_text(
    text: str,
    file: str,
    lenient: bool = False,
    environ: Mapping[str, str] | None = None,
    most_nodes: int = MAX_NODES,
) -> Configuration:
    """As `load`, for the text of a file; messages name it `file`. It may have at most so many nodes of YAML."""
    with gc_paused():
        reader = open_configuration(text, file, lenient, most_nodes)
        cluster, settings, rules, noted = _read(reader, os.environ if environ is None else environ)
        del reader
    if cluster is None or not all(mistake.is_warning for mistake in noted):
        raise ConfigError(noted)
    return Configuration(cluster, settings, rules, tuple(noted))


def load_cluster(path: str | Path, lenient: bool = False) -> ClusterSpec:
    """The cluster of a configuration file; as `load`."""
    return load(path, lenient).cluster


def _read(reader: Reader, environ: Mapping[str, str]) -> tuple[ClusterSpec | None, Settings, PodRules, list[Mistake]]:
    """What `load` gives, or why it cannot."""
    if is_null(reader.root):
        reader.note(reader.root, "nothing", "a scheduler configuration (a mapping)")
    fields = reader.known_fields(reader.root, "a scheduler configuration (a mapping)", DOCUMENT_KEYS)
    settings = read_settings(reader, fields, environ)
    cluster, rules = _read_cluster(reader, fields)
    return cluster, settings, rules, reader.mistakes()


def _read_cluster(reader: Reader, fields: Mapping[str, yaml.Node]) -> tuple[ClusterSpec | None, PodRules]:
    """The cluster among the top-level `fields`, and how its pods are read; no cluster if a part is missing, which is
    noted. The others are checked.
    """
    physical_node = _required(reader, reader.root, fields, "physicalCluster", "the physical cluster")
    virtual_node = _required(reader, reader.root, fields, "virtualClusters", "virtual clusters by name")
    parts: Mapping[str, yaml.Node] = {}
    types_node = cells_node = None
    if physical_node is not None:
        parts = reader.known_fields(physical_node, "the physical cluster (a mapping)", PHYSICAL_CLUSTER_KEYS)
        types_node = _required(reader, physical_node, parts, "cellTypes", "cell types by name")
        cells_node = _required(reader, physical_node, parts, "physicalCells", "a list of physical cells")
    types = CellTypes(reader, types_node)
    skus = read_sku_types(reader, parts["skuTypes"], types) if "skuTypes" in parts else SkuTypes()
    physical = PhysicalCells(reader, types, cells_node)
    access = read_access(reader, fields.get("access"))
    virtual = VirtualClusters(reader, physical, virtual_node, access)
    opportunistic = fields.get("opportunistic")
    access_rules = AccessRules(access or Access.EVERYBODY, virtual.access, read_opportunistic(reader, opportunistic))
    check_opportunists(reader, opportunistic, access_rules)
    rules = replace(
        read_pod_rules(reader, fields, types),
        resources=skus.resources,
        device_classes=skus.device_classes,
        node_labels=skus.node_labels,
        access=access_rules,
        packed=frozenset(virtual.packed),
    )
    if types_node is None or cells_node is None or virtual_node is None:
        return None, rules
    cluster = ClusterSpec(types.specs, physical.cells, virtual.specs, skus.specs)
    check_foreign(reader, fields.get("foreignDevices"), rules, cluster)
    return cluster, rules


def _required(
    reader: Reader, parent: yaml.Node, fields: Mapping[str, yaml.Node], key: str, what: str
) -> yaml.Node | None:
    """The value under `key`; None after noting its absence."""
    node = fields.get(key)
    if node is None:
        reader.missing(parent, key, what)
    elif is_null(node):
        reader.note(node, "nothing", what)
        return None
    return node
