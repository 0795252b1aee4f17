"""Kueue's own definitions of the kinds that hived meets, as its module has them, without Kueue itself."""

from pathlib import Path
from typing import Any

import yaml

from hived_extender.queues.kueue.workloads import KINDS
from tests.e2e.tools import controller_source

Json = dict[str, Any]

MODULE = "sigs.k8s.io/kueue"


def definitions(version: str) -> list[Json]:
    """The CustomResourceDefinitions of one version of Kueue's API, which needs nobody to convert objects then."""
    folder = controller_source("kueue", MODULE) / "config" / "components" / "crd" / "bases"
    return [_of_version(folder / f"{kind.group}_{kind.plural}.yaml", version) for kind in KINDS]


def _of_version(file: Path, version: str) -> Json:
    read: Json = yaml.load(file.read_text(), Loader=yaml.CSafeLoader)
    spec = read["spec"]
    spec.pop("conversion", None)
    spec["versions"] = [{**one, "served": True, "storage": True} for one in spec["versions"] if one["name"] == version]
    return read
