"""The cases as values: a change of the base cluster, and what has to become of the jobs on it (README.md)."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import yaml

from hived.values.specs import ClusterSpec
from hived_config.loader import load_text
from hived_lab.embedded.nodes import STOP_SECONDS, Machine, machines_of
from tests.e2e.pods import Json, pod

FOLDER = Path(__file__).parent
STOP_S = 3600
"""How long whoever has to leave takes for it: longer than any case."""

RUNS, RESERVES, WAITS = "runs", "reserves", "waits"


class Job(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A job of one group: `pods` of `cells` leaf cells each; `rest` is what becomes of it at first."""

    vc: str
    cells: int
    priority: int
    pods: int = 1
    type: str = ""
    pin: str = ""
    lazy: bool = False
    rest: str = RUNS

    def manifests(self, name: str) -> list[Json]:
        """Its pods, `NAME-0` and so on."""
        wishes: dict[str, Any] = {"priority": self.priority, "lazyPreemptionEnable": self.lazy}
        wishes |= {"leafCellType": self.type} if self.type else {}
        wishes |= {"pinnedCellId": self.pin} if self.pin else {}
        wishes["affinityGroup"] = {
            "name": name,
            "members": [{"podNumber": self.pods, "leafCellNumber": self.cells}],
        }
        fields = {"terminationGracePeriodSeconds": STOP_S}
        stops = {STOP_SECONDS: str(STOP_S)}
        return [
            pod(f"{name}-{number}", vc=self.vc, gpus=self.cells, annotations=stops, fields=fields, **wishes)
            for number in range(self.pods)
        ]


class Rest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The expected end of a cluster: see `Expected`."""

    nodes: dict[str, str | None] = {}
    vcs: dict[str, str | None] = {}
    starts: dict[str, str] = {}


class Expected(Rest, frozen=True, forbid_unknown_fields=True):
    """The effects of one change.

    Attributes
    ----------
    affected : verdict and part of the reason, by group; every other group goes on as before
    waiting : the same for jobs that wait, where that differs from the base; None for one that does not wait any more
    locks_out : whether running guaranteed work loses what its VC is guaranteed
    refusals : parts of the reasons for which it is refused, whatever is allowed
    nodes : who uses which leaf cells afterwards, where that differs from before; None for a node that is gone
    vcs : used and all preassigned cells by type, for VCs where that differs; None for one that is gone
    starts : the nodes on which jobs that waited run afterwards
    """

    affected: dict[str, tuple[str, str]] = {}
    waiting: dict[str, tuple[str, str] | None] = {}
    locks_out: bool = False
    refusals: list[str] = []


class Case(Expected, frozen=True, forbid_unknown_fields=True):
    """A change. `change` is merged into the base cluster, where null takes a key out and lists are replaced.

    `jobs` are more than those of the base, `began` what differs with them before the change. `restarted` is what a
    restart of the service changes: it has forgotten reservations, and makes them anew, or finds room without. `back` is
    what going back to the base does after that.
    """

    about: str = ""
    change: dict[str, Any] = {}
    jobs: dict[str, Job] = {}
    began: Rest = Rest()
    restarted: Rest = Rest()
    back: Expected | None = None


class Base(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The cluster, the jobs and what they use."""

    cluster: dict[str, Any]
    jobs: dict[str, Job]
    nodes: dict[str, str]
    vcs: dict[str, str]
    waiting: dict[str, tuple[str, str]]

    @property
    def text(self) -> str:
        """The configuration."""
        return to_text(self.cluster)

    def changed(self, case: Case) -> str:
        """The configuration that a case pushes."""
        return to_text(merged(self.cluster, case.change))


def to_text(document: Mapping[str, Any]) -> str:
    """A configuration as a file says it."""
    return yaml.safe_dump(document, sort_keys=False)


def merged(document: Mapping[str, Any], change: Mapping[str, Any]) -> dict[str, Any]:
    """A document with a change in it; see `Case`."""
    result = dict(document)
    for key, value in change.items():
        if value is None:
            del result[key]
        elif isinstance(value, Mapping) and isinstance(result.get(key), Mapping):
            result[key] = merged(result[key], value)
        else:
            result[key] = value
    return result


def load_base() -> Base:
    """The file base.yaml."""
    return msgspec.convert(yaml.safe_load((FOLDER / "base.yaml").read_text()), Base)


def load_cases() -> dict[str, Case]:
    """Every case by its name."""
    files = sorted((FOLDER / "cases").glob("*.yaml"))
    return {file.stem: msgspec.convert(yaml.safe_load(file.read_text()), Case) for file in files}


def all_machines() -> list[Machine]:
    """A machine for every node that the base or a case has, each as large as any of them wants it."""
    base = load_base()
    found: dict[str, Machine] = {}
    for text in (base.text, *(base.changed(case) for case in load_cases().values() if not case.refusals)):
        for machine in machines_of(_spec(text)):
            known = found.setdefault(machine.name, machine)
            if int(machine.capacity["nvidia.com/gpu"]) > int(known.capacity["nvidia.com/gpu"]):
                found[machine.name] = machine
    return list(found.values())


def _spec(text: str) -> ClusterSpec:
    return load_text(text, "case.yaml", environ={}).cluster
