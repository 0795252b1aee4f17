"""How the GPUs of a machine are linked -> levels of cells below the node.

GPUs behind one PCIe switch (PIX) are a SWITCH, GPUs behind several joined ones (PXB) too, or a PCIE if there are both;
GPUs of one NUMA node (PHB, NODE) are a SOCKET; where NVLink joins closed groups of GPUs in pairs or fours, such a group
is an NVLINK. NVLink hides how PCIe joins two GPUs: then a network adapter that both reach through switches tells that
they share one, and NUMA affinity whether they share a socket. A level is kept if its groups are equal and each lies
within one group of the next level; else it is left out.
"""

from collections.abc import Callable, Sequence

from hived_config.generating.machines import DeviceGroups
from hived_config.generating.matrix import Matrix, is_nvlink

LEVELS = ("SWITCH", "PCIE", "NVLINK", "SOCKET")
"""The names of the levels inside a machine."""

_ONE_SWITCH = ("PIX",)
_SWITCHES = ("PIX", "PXB")
_ON_SOCKET = ("PIX", "PXB", "PHB", "NODE")

Groups = list[list[int]]


def inner_of(matrix: Matrix) -> tuple[DeviceGroups, list[str]]:
    """The levels of a machine, lowest first, and which could not be kept and why."""
    count = len(matrix.links)
    notes: list[str] = []
    levels: list[tuple[str, Groups]] = []
    switch = _joined(count, lambda i, j: _share_switch(matrix, i, j, _ONE_SWITCH))
    for name, groups in (
        ("SWITCH", switch),
        (
            "SWITCH" if len(switch) == count else "PCIE",
            _joined(count, lambda i, j: _share_switch(matrix, i, j, _SWITCHES)),
        ),
        ("NVLINK", _cliques(matrix)),
        ("SOCKET", _joined(count, lambda i, j: _share_socket(matrix, i, j))),
    ):
        sizes = sorted({len(group) for group in groups})
        if len(groups) in (1, count) or any(groups == other for _, other in levels):
            continue
        if len(sizes) > 1:
            apart = ", ".join("+".join(f"GPU{gpu}" for gpu in group) for group in groups)
            notes.append(f"no {name} level: its groups are not of one size ({apart})")
        else:
            levels.append((name, groups))
    kept: list[tuple[str, Groups]] = []
    for name, groups in sorted(levels, key=lambda level: len(level[1][0])):
        if kept and not _is_within(kept[-1][1], groups):
            notes.append(f"no {name} level: its groups cut through those of {kept[-1][0]}")
        else:
            kept.append((name, groups))
    order = list(range(count))
    for _, groups in kept:
        place = {gpu: min(group) for group in groups for gpu in group}
        order.sort(key=lambda gpu: place[gpu])  # stable: the groups of a lower level stay together
    sizes_by_level = tuple((name, len(groups[0])) for name, groups in kept)
    return DeviceGroups(sizes_by_level, () if order == list(range(count)) else tuple(order)), notes


def _share_switch(matrix: Matrix, i: int, j: int, near: Sequence[str]) -> bool:
    link = matrix.links[i][j]
    if not is_nvlink(link):
        return link in near
    return any(one in near and other in near for one, other in zip(matrix.adapters[i], matrix.adapters[j], strict=True))


def _share_socket(matrix: Matrix, i: int, j: int) -> bool:
    link = matrix.links[i][j]
    if not is_nvlink(link):
        return link in _ON_SOCKET
    return matrix.numa[i] == matrix.numa[j] or _share_switch(matrix, i, j, _SWITCHES)


def _joined(count: int, are_joined: Callable[[int, int], bool]) -> Groups:
    """The groups of GPUs that are joined, if only through others; by their first GPU."""
    group = list(range(count))
    for i in range(count):
        for j in range(i):
            if are_joined(i, j) and group[i] != group[j]:
                old, new = max(group[i], group[j]), min(group[i], group[j])
                group = [new if each == old else each for each in group]
    return [[gpu for gpu in range(count) if group[gpu] == first] for first in sorted(set(group))]


def _cliques(matrix: Matrix) -> Groups:
    """The groups that NVLink joins, if every GPU of each reaches every other one of it directly; else none."""
    count = len(matrix.links)
    groups = _joined(count, lambda i, j: is_nvlink(matrix.links[i][j]))
    is_closed = all(is_nvlink(matrix.links[i][j]) for group in groups for i in group for j in group if i != j)
    return groups if is_closed else [list(range(count))]


def _is_within(lower: Groups, upper: Groups) -> bool:
    return all(any(set(group) <= set(larger) for larger in upper) for group in lower)
