"""Loads a configuration file into `ClusterSpec` and `Settings`, or raises `ConfigError` with every mistake in it."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TypeAlias

import msgspec
from msgspec.structs import replace

from hived.values.specs import ClusterSpec, Rules
from hived_config.access import (
    ACCESS_KEYS,
    CONDITION,
    NAMESPACE,
    OPPORTUNIST,
    OPPORTUNISTIC,
    Access,
    AccessRules,
    Rights,
    check_opportunists,
    check_rights,
    read_opportunistic,
)
from hived_config.chains import CELL_TYPE, CELL_TYPES, CellTypes
from hived_config.document import MAX_NODES, ConfigError, Mistake, gc_paused, read_text
from hived_config.node_names import NodeNames
from hived_config.openpai import open_configuration
from hived_config.physical import CELL, TOP_CELLS, PhysicalCells
from hived_config.reader import Given, Key, Reader, Record, is_null
from hived_config.rules import (
    DEFRAG,
    LENT_KEY,
    POD_RULE_KEYS,
    QUEUE_OF_VC,
    QUEUES,
    QUEUES_KEY,
    Moving,
    PodRules,
    Queueing,
    check_foreign,
    read_pod_rules,
)
from hived_config.settings import CERTIFY, CERTIFY_KEY, RULES_KEY, SETTING_KEYS, Demand, Settings, read_settings
from hived_config.skus import SKU_TYPE, SKU_TYPES, read_sku_types
from hived_config.virtual import (
    PINNED_CELL,
    VIRTUAL_CELL,
    VIRTUAL_CLUSTER,
    VIRTUAL_CLUSTERS,
    Placement,
    VirtualClusters,
)

PHYSICAL_CLUSTER = Record(
    "physicalCluster",
    "the physical cluster (a mapping)",
    "The hardware.",
    (
        Key("cellTypes", CELL_TYPES, "by name, the cell types above the leaf cells", is_required=True),
        Key("physicalCells", TOP_CELLS, "the trees of cells there are; at least one", is_required=True),
        Key(
            "skuTypes",
            SKU_TYPES,
            "by leaf cell type, the devices, CPUs and memory that one leaf cell stands for; placement does not read it",
        ),
    ),
)

DOCUMENT = Record(
    "document",
    "a scheduler configuration (a mapping)",
    "The cluster, how it is divided, and how the scheduler runs.",
    (
        Key(
            "physicalCluster",
            PHYSICAL_CLUSTER,
            "the hardware: the types of cells, and the cells",
            is_required=True,
        ),
        Key(
            "virtualClusters",
            VIRTUAL_CLUSTERS,
            "by name, the cells that each virtual cluster is promised; may be `{}`",
            is_required=True,
        ),
        RULES_KEY,
        CERTIFY_KEY,
        QUEUES_KEY,
        *ACCESS_KEYS,
        *POD_RULE_KEYS,
        *SETTING_KEYS,
    ),
)
RECORDS = (
    CERTIFY, QUEUES, PHYSICAL_CLUSTER, CELL_TYPE, CELL, SKU_TYPE, VIRTUAL_CLUSTER, DEFRAG, QUEUE_OF_VC,
    NAMESPACE, CONDITION, OPPORTUNISTIC, OPPORTUNIST, VIRTUAL_CELL, PINNED_CELL,
)  # fmt: skip
"""The kinds of mappings inside a document."""


class Configuration(msgspec.Struct, frozen=True):
    """A sound configuration file: the cluster, the server's settings, how pods are read, oddities, the certificate that
    another configuration has to bring, None if it needs none, and the names of nodes.
    """

    cluster: ClusterSpec
    settings: Settings
    rules: PodRules = msgspec.field(default_factory=PodRules)
    warnings: tuple[Mistake, ...] = ()
    certify: Demand | None = None
    node_names: NodeNames = NodeNames()


_Read: TypeAlias = tuple[ClusterSpec | None, Settings, PodRules, Demand | None, NodeNames, list[Mistake]]


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
    text: str, file: str, lenient: bool = False, environ: Mapping[str, str] | None = None, most_nodes: int = MAX_NODES
) -> Configuration:
    """Load the text of a file, as `load`; messages name it `file`. It may have at most so many nodes of YAML."""
    with gc_paused():
        reader = open_configuration(text, file, lenient, most_nodes)
        cluster, settings, rules, certify, names, noted = _read(reader, os.environ if environ is None else environ)
        left_out = reader.left_out
        del reader
    if cluster is None or not all(mistake.is_warning for mistake in noted):
        raise ConfigError(noted, left_out)
    return Configuration(cluster, settings, rules, tuple(noted), certify, replace(names, file=file))


def load_cluster(path: str | Path, lenient: bool = False) -> ClusterSpec:
    """Load the cluster of a configuration file, as `load`."""
    return load(path, lenient).cluster


def _read(reader: Reader, environ: Mapping[str, str]) -> _Read:
    """The parts of `load`'s result, and the mistakes noted."""
    if is_null(reader.root):
        reader.note(reader.root, "nothing", DOCUMENT.what)
    given = DOCUMENT.given(reader, reader.root)
    settings = read_settings(given, environ)
    cluster, rules, names = _read_cluster(reader, given)
    return cluster, settings, rules, given.value("certify"), names, reader.mistakes()


def _read_cluster(reader: Reader, given: Given) -> tuple[ClusterSpec | None, PodRules, NodeNames]:
    """The cluster of a document, how its pods are read, and its nodes' names; no cluster if a part is missing, which is
    noted. The others are checked.
    """
    physical_node, virtual_node = given.part("physicalCluster"), given.part("virtualClusters")
    types_node = cells_node = skus_node = None
    if physical_node is not None:
        parts = PHYSICAL_CLUSTER.given(reader, physical_node)
        types_node, cells_node, skus_node = (parts.part(name) for name in ("cellTypes", "physicalCells", "skuTypes"))
    types = CellTypes(reader, types_node)
    skus = read_sku_types(reader, skus_node, types)
    physical = PhysicalCells(reader, types, cells_node, skus)
    types.warn_of_misspelt()
    physical.warn_of_names()
    unread = ", ".join(sorted(types.broken | types.unsound))
    is_uncounted = bool(physical.cells) and not physical.is_counted
    reader.left_out = "; ".join(
        [f"what is below cells of type {unread}, and promises of it"] * bool(unread)
        + ["whether there are enough cells for all promises"] * is_uncounted
    )
    access = given.value("access")
    decides_by = given.value("rules", Rules.HIVED)
    virtual = VirtualClusters(reader, physical, virtual_node, access, decides_by)
    opportunistic = given.nodes.get("opportunistic")
    access_rules = AccessRules(
        access or Access.EVERYBODY,
        virtual.access,
        read_opportunistic(reader, opportunistic),
        given.value("rights") or Rights.CLUSTER,
    )
    check_opportunists(reader, opportunistic, access_rules)
    check_rights(reader, given.nodes.get("rights"), access_rules)
    pod_rules = read_pod_rules(given, types)
    rules = replace(
        pod_rules,
        grace=replace(pod_rules.grace, lent_of_vc=virtual.values(LENT_KEY)),
        resources=skus.resources,
        device_classes=skus.device_classes,
        node_labels=skus.node_labels,
        access=access_rules,
        packed=frozenset(vc for vc, own in virtual.values("placement").items() if own is Placement.PACKED),
        moving=Moving(frozenset(virtual.values("movable")), virtual.values("defrag")),
        queueing=replace(given.value("queues") or Queueing(), virtual_clusters=virtual.values("queue")),
    )
    if types_node is None or cells_node is None or virtual_node is None:
        return None, rules, NodeNames()
    cluster = ClusterSpec(types.specs, physical.cells, virtual.specs, skus.specs, decides_by or Rules.HIVED)
    check_foreign(reader, given.nodes.get("foreignDevices"), rules, cluster)
    return cluster, rules, NodeNames() if reader.has_mistakes else physical.node_names()
