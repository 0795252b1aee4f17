"""Changes that could let a waiting job start, and their words: `priority=200`, `pods=16x1`, `ends=ns/train`.

The words are the same in `Unblock.change` and in `hived why --if`. Names of jobs and nodes are separated by commas; a
name that has a comma itself is understood where it stands alone.
"""

import difflib
import re
from collections.abc import Collection, Sequence

import msgspec

from hived.errors import UserError
from hived.specs import MAX_GUARANTEED_PRIORITY, OPPORTUNISTIC_PRIORITY, MemberSpec

MOST_PODS = 2**14
"""Pods of a job that is tried with other pods."""

MOST_CELLS = 2**14
"""Cells by which a virtual cluster is tried with another size."""

ACCEPTED = (
    "priority=NUMBER",
    "pods=PODSxCELLS[+PODSxCELLS]",
    "leafType=TYPE",
    "vc=NAME",
    "opportunistic",
    "ends=JOB[,JOB]",
    "heal=NODE[,NODE]",
    "move=JOB[,JOB]",
    "cells=VC:+NUMBERxTYPE[,VC:-NUMBERxTYPE]",
)

_MEMBER = re.compile(r"([1-9][0-9]{0,5})x([1-9][0-9]{0,5})")
_CELLS = re.compile(r"(?s)(.+):([+-])([1-9][0-9]{0,5})x(\S+)")
_PRIORITY = re.compile(r"-?[0-9]{1,4}")
_NAMED = 8


class Priority(msgspec.Struct, frozen=True):
    """The job has another priority; OPPORTUNISTIC_PRIORITY for an opportunistic job."""

    value: int


class Pods(msgspec.Struct, frozen=True):
    """The job has other pods; sizes ascending."""

    members: tuple[MemberSpec, ...]


class LeafType(msgspec.Struct, frozen=True):
    """The job asks for cells of another leaf cell type."""

    name: str


class OtherCluster(msgspec.Struct, frozen=True):
    """The job asks in another virtual cluster."""

    name: str


class Ends(msgspec.Struct, frozen=True):
    """Jobs or groups that hold cells end."""

    names: tuple[str, ...]


class Heal(msgspec.Struct, frozen=True):
    """Nodes become healthy, with all their devices."""

    nodes: tuple[str, ...]


class Move(msgspec.Struct, frozen=True):
    """Jobs or groups leave their cells, and start anew elsewhere once the waiting job has started."""

    names: tuple[str, ...]


class Resize(msgspec.Struct, frozen=True):
    """A virtual cluster is promised so many cells of a type more, or fewer."""

    vc: str
    count: int
    cell_type: str


class Cells(msgspec.Struct, frozen=True):
    """The configuration promises cells to other virtual clusters."""

    resizes: tuple[Resize, ...]


Change = Priority | Pods | LeafType | OtherCluster | Ends | Heal | Move | Cells


def words(change: Change) -> str:
    """The change as `Unblock.change` has it."""
    match change:
        case Priority(value):
            return "opportunistic" if value == OPPORTUNISTIC_PRIORITY else f"priority={value}"
        case Pods(members):
            return "pods=" + "+".join(f"{one.pod_count}x{one.leaf_cell_count}" for one in members)
        case LeafType(name):
            return f"leafType={name}"
        case OtherCluster(name):
            return f"vc={name}"
        case Ends(names):
            return "ends=" + ",".join(names)
        case Heal(nodes):
            return "heal=" + ",".join(nodes)
        case Move(names):
            return "move=" + ",".join(names)
        case Cells(resizes):
            return "cells=" + ",".join(f"{one.vc}:{one.count:+}x{one.cell_type}" for one in resizes)


class Known(msgspec.Struct, frozen=True):
    """Names that exist: of jobs and groups that have cells, nodes, virtual clusters, leaf cell types and cell types."""

    holders: Collection[str]
    nodes: Collection[str]
    virtual_clusters: Collection[str]
    leaf_types: Collection[str]
    cell_types: Collection[str]


def read_change(text: str, known: Known) -> Change:
    """The change of these words. Raises UserError, with the words that would do."""
    name, sign, value = text.partition("=")
    if text == "opportunistic":
        return Priority(OPPORTUNISTIC_PRIORITY)
    if not sign or not value:
        raise UserError(f"{text!r} is no change that can be tried; expected {_listed(ACCEPTED)}")
    match name:
        case "priority":
            return _read_priority(text, value)
        case "pods":
            return _read_pods(text, value)
        case "leafType":
            return LeafType(_one_of(text, value, known.leaf_types, "leaf cell type"))
        case "vc":
            return OtherCluster(_one_of(text, value, known.virtual_clusters, "virtual cluster"))
        case "ends":
            return Ends(_names(text, value, known.holders, "job that has cells"))
        case "heal":
            return Heal(_names(text, value, known.nodes, "configured node"))
        case "move":
            return Move(_names(text, value, known.holders, "job that has cells"))
        case "cells":
            return Cells(tuple(_read_resize(text, one, known) for one in value.split(",")))
    raise UserError(f"{text!r} is no change that can be tried; expected {_listed(ACCEPTED)}")


def _read_priority(text: str, value: str) -> Priority:
    if not _PRIORITY.fullmatch(value) or not OPPORTUNISTIC_PRIORITY <= int(value) <= MAX_GUARANTEED_PRIORITY:
        raise UserError(
            f"{text!r}: expected a priority from {OPPORTUNISTIC_PRIORITY} (opportunistic) to {MAX_GUARANTEED_PRIORITY}"
        )
    return Priority(int(value))


def _read_pods(text: str, value: str) -> Pods:
    counts: dict[int, int] = {}
    for one in value.split("+"):
        found = _MEMBER.fullmatch(one)
        if found is None:
            raise UserError(f"{text!r}: expected PODSxCELLS, such as pods=16x1, or several of them: pods=1x8+4x1")
        counts[int(found[2])] = counts.get(int(found[2]), 0) + int(found[1])
    if sum(counts.values()) > MOST_PODS:
        raise UserError(f"{text!r}: at most {MOST_PODS} pods can be tried")
    return Pods(tuple(MemberSpec(counts[size], size) for size in sorted(counts)))


def _read_resize(text: str, value: str, known: Known) -> Resize:
    found = _CELLS.fullmatch(value)
    if found is None or int(found[3]) > MOST_CELLS:
        raise UserError(
            f"{text!r}: expected VC:+NUMBERxTYPE or VC:-NUMBERxTYPE with a number up to {MOST_CELLS}, such as "
            "cells=research:+2xNODE"
        )
    vc = _one_of(text, found[1], known.virtual_clusters, "virtual cluster")
    cell_type = _one_of(text, found[4], known.cell_types, "cell type")
    return Resize(vc, int(found[2] + found[3]), cell_type)


def _names(text: str, value: str, known: Collection[str], kind: str) -> tuple[str, ...]:
    names = (value,) if value in known else tuple(dict.fromkeys(value.split(",")))
    return tuple(_one_of(text, name, known, kind) for name in names)


def _one_of(text: str, name: str, known: Collection[str], kind: str) -> str:
    if name in known:
        return name
    names = sorted(known)
    near = difflib.get_close_matches(name, names, _NAMED) or names
    raise UserError(f"{text!r}: there is no {kind} {name!r}; " + (f"there is {_listed(near)}" if near else "none"))


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED + 1 else ""
    return ", ".join(names[:_NAMED] if more else names) + more
