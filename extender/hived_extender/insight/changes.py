"""Changes that could let a waiting job start, and their words: `priority=200`, `pods=16x1`, `ends=ns/train`.

The words are the same in `Unblock.change` and in `hived why --if`. Names of jobs and nodes are separated by commas; a
name that has a comma itself is understood where it stands alone.
"""

import difflib
import heapq
import re
from collections.abc import Collection, Mapping, Sequence
from itertools import takewhile

import msgspec

from hived.values.errors import UserError
from hived.values.specs import MAX_GUARANTEED_PRIORITY, OPPORTUNISTIC_PRIORITY, MemberSpec

MOST_PODS = 2**14
"""Pods of a job that is tried with other pods."""

MOST_CELLS = 2**14
"""Cells by which a virtual cluster is tried with another size."""

MOST_NAMES = 32
"""Jobs or nodes of one change."""

MOST_COMPARED = 1000
"""Names with which a name is compared that is not known: those that begin and end like it."""

LONGEST_COMPARED = 512
"""Characters of a name that is compared with others; each costs time with each of theirs."""

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
    "combine=VC",
)

_MEMBER = re.compile(r"([1-9][0-9]{0,5})x([1-9][0-9]{0,5})")
_CELLS = re.compile(r"(?s)(.+):([+-])([1-9][0-9]{0,5})x(\S+)")
_PRIORITY = re.compile(r"-?[0-9]{1,4}")
_PARTS = re.compile(r"[/~:]")
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


class Combine(msgspec.Struct, frozen=True):
    """The configuration lets a virtual cluster combine its cells (rule 18.3)."""

    vc: str


Change = Priority | Pods | LeafType | OtherCluster | Ends | Heal | Move | Cells | Combine

ConfigurationChange = Cells | Combine
"""Changes that are tried on a state of their own."""


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
        case Combine(vc):
            return f"combine={vc}"


class Known(msgspec.Struct, frozen=True):
    """Names that exist: of jobs that have cells, with their groups, nodes, virtual clusters, leaf types, cell types."""

    holders: Mapping[str, Sequence[str]]
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
        raise UserError(f"{_shown(text)} is no change that can be tried; expected {_listed(ACCEPTED)}")
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
            return Ends(_holders(text, value, known.holders))
        case "heal":
            return Heal(tuple(_one_of(text, one, known.nodes, "node") for one in _split(text, value, known.nodes)))
        case "move":
            return Move(_holders(text, value, known.holders))
        case "cells":
            return Cells(tuple(_read_resize(text, one, known) for one in _split(text, value, ())))
        case "combine":
            return Combine(_one_of(text, value, known.virtual_clusters, "virtual cluster"))
    raise UserError(f"{_shown(text)} is no change that can be tried; expected {_listed(ACCEPTED)}")


def _read_priority(text: str, value: str) -> Priority:
    if not _PRIORITY.fullmatch(value) or not OPPORTUNISTIC_PRIORITY <= int(value) <= MAX_GUARANTEED_PRIORITY:
        raise UserError(
            f"{_shown(text)}: expected a priority from {OPPORTUNISTIC_PRIORITY} (opportunistic) to "
            f"{MAX_GUARANTEED_PRIORITY}"
        )
    return Priority(int(value))


def _read_pods(text: str, value: str) -> Pods:
    counts: dict[int, int] = {}
    for one in value.split("+"):
        found = _MEMBER.fullmatch(one)
        if found is None:
            raise UserError(f"{_shown(text)}: expected PODSxCELLS, such as pods=16x1, or several of them: pods=1x8+4x1")
        counts[int(found[2])] = counts.get(int(found[2]), 0) + int(found[1])
    if sum(counts.values()) > MOST_PODS:
        raise UserError(f"{_shown(text)}: at most {MOST_PODS} pods can be tried")
    return Pods(tuple(MemberSpec(counts[size], size) for size in sorted(counts)))


def _read_resize(text: str, value: str, known: Known) -> Resize:
    found = _CELLS.fullmatch(value)
    if found is None or int(found[3]) > MOST_CELLS:
        raise UserError(
            f"{_shown(text)}: expected VC:+NUMBERxTYPE or VC:-NUMBERxTYPE with a number up to {MOST_CELLS}, such as "
            "cells=research:+2xNODE"
        )
    vc = _one_of(text, found[1], known.virtual_clusters, "virtual cluster")
    cell_type = _one_of(text, found[4], known.cell_types, "cell type")
    return Resize(vc, int(found[2] + found[3]), cell_type)


def _split(text: str, value: str, known: Collection[str]) -> tuple[str, ...]:
    names = (value,) if value in known else tuple(dict.fromkeys(value.split(",")))
    if len(names) > MOST_NAMES:
        raise UserError(f"{_shown(text)}: {len(names)} names; at most {MOST_NAMES} can be tried together")
    return names


def _holders(text: str, value: str, holders: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
    """The jobs or groups of these names, which may leave out the namespace: `train` for `podgroup/default/train`."""
    known = {name for job, groups in holders.items() for name in (job, *groups)}
    found = [_holder(text, name, known, holders) for name in _split(text, value, known)]
    return tuple(dict.fromkeys(found))


def _holder(text: str, name: str, known: Collection[str], jobs: Collection[str]) -> str:
    if name in known:
        return name
    bare = name.removeprefix("podgroup/")
    called = [job for job in jobs if job.endswith((f"/{bare}", f":{bare}"))]
    called = called or [job for job in jobs if name in _PARTS.split(job)]
    if len(called) > 1:
        raise UserError(f"{_shown(text)}: {name} is part of {len(called)} names: {_listed(called)}; give one of them")
    if called:
        return called[0]
    near = _near(name, known)
    hint = f"nearest: {_listed(near)}" if near else f"cells are held by {_listed(sorted(jobs)) or 'nobody'}"
    place = "; move= has a job start anew on other cells, and places in a queue are not tried: hived move gives one"
    raise UserError(f"{_shown(text)}: no job {_shown(name)} has cells; {hint}{place * text.startswith('move=')}")


def _one_of(text: str, name: str, known: Collection[str], kind: str) -> str:
    if name in known:
        return name
    near = _near(name, known) or sorted(known)
    verb = "is" if len(near) == 1 else "are"
    raise UserError(f"{_shown(text)}: there is no {kind} {_shown(name)}; there {verb} {_listed(near) or 'none'}")


def _near(name: str, known: Collection[str]) -> list[str]:
    """The names that look like this one, best first. Cost O(known), and a comparison with MOST_COMPARED of them."""
    if len(name) > LONGEST_COMPARED:
        return []
    like = heapq.nsmallest(MOST_COMPARED, known, key=lambda other: (-_common(name, other), other))
    return difflib.get_close_matches(name, sorted(like), _NAMED)


def _common(one: str, other: str) -> int:
    """Characters that two names have in common at their beginnings and ends."""
    pairs, reverse = zip(one, other, strict=False), zip(one[::-1], other[::-1], strict=False)
    return sum(1 for _ in takewhile(_is_equal, pairs)) + sum(1 for _ in takewhile(_is_equal, reverse))


def _is_equal(pair: tuple[str, str]) -> bool:
    return pair[0] == pair[1]


def _shown(text: str) -> str:
    return repr(text) if len(text) <= LONGEST_COMPARED else repr(text[:LONGEST_COMPARED]) + "..."


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED + 1 else ""
    return ", ".join(names[:_NAMED] if more else names) + more
