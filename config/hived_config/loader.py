"""A configuration file -> `ClusterSpec` and `Settings`, or `ConfigError` with every mistake in it."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import yaml

from hived.specs import ClusterSpec
from hived_config.chains import CellTypes
from hived_config.document import compose, gc_paused, read_text
from hived_config.errors import ConfigError, Mistake
from hived_config.physical import PhysicalCells
from hived_config.reader import Reader
from hived_config.settings import SETTING_KEYS, Settings
from hived_config.virtual import VirtualClusters

DOCUMENT_KEYS = (*SETTING_KEYS, "physicalCluster", "virtualClusters")
PHYSICAL_CLUSTER_KEYS = ("skuTypes", "cellTypes", "physicalCells")


def load_cluster(path: str | Path, lenient: bool = False) -> ClusterSpec:
    """The cluster that a configuration file describes. Raises ConfigError listing every mistake."""
    file = str(path)
    with gc_paused():
        reader = Reader(file, compose(read_text(Path(path)), file), lenient=lenient)
        fields = reader.known_fields(reader.root, "a scheduler configuration (a mapping)", DOCUMENT_KEYS)
        physical_fields = reader.known_fields(fields["physicalCluster"], "the physical cluster", PHYSICAL_CLUSTER_KEYS)
        types = CellTypes(reader, physical_fields.get("cellTypes"))
        physical = PhysicalCells(reader, types, physical_fields["physicalCells"])
        virtual = VirtualClusters(reader, physical, fields["virtualClusters"])
        if reader.has_mistakes():
            raise ConfigError(reader.mistakes())
        return ClusterSpec(types.specs, physical.cells, virtual.specs)
