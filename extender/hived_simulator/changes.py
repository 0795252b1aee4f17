"""Changes of the cluster at given times: nodes that fail, are drained or heal, cells that are added, configurations.

drain=rack-3@2h      take new work away from the nodes of a cell, and evict what runs there
cordon=NODE@2h       take new work away only
fail=NODE@2h         the nodes fail, and so does what runs there
heal=NODE@5h         they are healthy again
add=2xROW@1d         two more top cells of that type, which belong to no virtual cluster
add=FILE@1d          the cells of the configuration FILE; push=FILE@1d is the same by another name
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path

from hived.values.errors import UserError
from hived.values.specs import ClusterSpec, PhysicalCellSpec
from hived_config.loader import load_cluster
from hived_simulator.traces.fields import parse_duration

_CELLS = re.compile(r"([0-9]{1,5})x(.+)", re.ASCII)


class Act(StrEnum):
    """Changes of the cluster."""

    DRAIN = "drain"
    CORDON = "cordon"
    FAIL = "fail"
    HEAL = "heal"
    ADD = "add"
    PUSH = "push"


FORM = "expected drain|cordon|fail|heal=CELL@TIME, add=COUNTxCELLTYPE@TIME or push=FILE@TIME, as in drain=rack-3@2h"


@dataclass(frozen=True, slots=True)
class Change:
    """One change, `at_s` seconds since the trace's start.

    cells : addresses of cells, or nodes, which `act` concerns
    added : physical cells that are added
    pushed : the configuration from then on
    file : where `pushed` was read from
    text : as it was written, without folders
    """

    at_s: float
    act: Act
    cells: tuple[str, ...] = ()
    added: tuple[PhysicalCellSpec, ...] = ()
    pushed: ClusterSpec | None = None
    file: str = ""
    text: str = ""

    def configuration(self, present: ClusterSpec) -> ClusterSpec | None:
        """The configuration that this change puts in force after the present one; None if it leaves it alone."""
        if self.pushed is not None:
            return self.pushed
        if self.added:
            return replace(present, physical_cells=(*present.physical_cells, *self.added))
        return None


def parse_changes(texts: Sequence[str]) -> list[Change]:
    """Changes from the command line, ascending by time. UserError says what is wrong with one."""
    changes = [_parse(text, number) for number, text in enumerate(texts)]
    return sorted(changes, key=lambda change: change.at_s)


def _parse(text: str, number: int) -> Change:
    act_text, _, rest = text.partition("=")
    what, _, time = rest.rpartition("@")
    if act_text not in set(Act) or not what or not time:
        raise UserError(f"--what {text!r}: {FORM}")
    act, at_s = Act(act_text), parse_duration(time, f"--what {text!r}")
    if act in (Act.ADD, Act.PUSH):
        match = _CELLS.fullmatch(what)
        if act is Act.ADD and match is not None and not Path(what).exists():
            names = [f"added-{number}-{i}" for i in range(int(match[1]))]
            return Change(at_s, act, added=tuple(PhysicalCellSpec(match[2], name) for name in names), text=text)
        return Change(at_s, act, pushed=load_cluster(what), file=what, text=f"{act}={Path(what).name}@{time}")
    return Change(at_s, act, cells=(what,), text=text)
