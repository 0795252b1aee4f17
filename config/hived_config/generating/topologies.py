"""Reads the insides of machines: groups of devices for each node or product, from `nvidia-smi topo -m`."""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase

import msgspec

from hived.values.errors import UserError
from hived_config.document import ConfigError, Mistake
from hived_config.generating.machines import MIG_PREFIX, DeviceGroups, FoundMachines, Machine, in_order
from hived_config.reader import printable, shorten
from hived_config.words import counted, listed

SELF = "X"
LINKS = ("PIX", "PXB", "PHB", "NODE", "SYS", "SOC")
"""Links through PCIe, nearest first; SOC is what old drivers call SYS."""

_ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_GPU = re.compile(r"GPU(\d{1,3})", re.ASCII)
_NVLINK = re.compile(r"NV\d{1,3}", re.ASCII)
_AFFINITY = re.compile(r"[0-9]+(?:[-,][0-9]+)*", re.ASCII)
_HEADINGS = ("CPU Affinity", "NUMA Affinity", "GPU NUMA ID")


class Matrix(msgspec.Struct, frozen=True):
    """The GPUs as the text describes them.

    Attributes
    ----------
    links : links[i][j] is how GPU i reaches GPU j: one of `LINKS`, or `NV4` and the like
    adapters : adapters[i] are the links from GPU i to each network adapter
    numa : by GPU, the NUMA nodes that are near to it, or its CPUs; "" where the text does not say
    """

    links: tuple[tuple[str, ...], ...]
    adapters: tuple[tuple[str, ...], ...]
    numa: tuple[str, ...]


def is_nvlink(link: str) -> bool:
    """True for NVLink, which hides the PCIe path between two GPUs."""
    return _NVLINK.fullmatch(link) is not None


def parse_matrix(text: str, file: str) -> Matrix:
    """Read the output of `nvidia-smi topo -m`; raises ConfigError with the first line that is not as expected."""
    lines = [_ESCAPE.sub("", line).replace("\r", "") for line in text.split("\n")]
    at = next((i for i, line in enumerate(lines) if _is_header(line)), None)
    if at is None:
        raise _error(file, 0, "no line with the columns GPU0, GPU1, ...", "the output of nvidia-smi topo -m")
    columns = _columns(lines[at])
    gpu_count = sum(1 for column in columns if _GPU.fullmatch(column))
    if columns[:gpu_count] != [f"GPU{i}" for i in range(gpu_count)]:
        raise _error(file, at + 1, f"columns {', '.join(columns)}", "GPU0, GPU1 and so on, and then network adapters")
    rows: list[list[str]] = []
    for number, line in enumerate(lines[at + 1 :], at + 2):
        words = line.split()
        if not words or not _GPU.fullmatch(words[0]):
            if len(rows) < gpu_count and words:
                raise _error(file, number, f"a line that begins with {shorten(words[0])}", f"the row of GPU{len(rows)}")
            if len(rows) == gpu_count:
                break
            continue
        if words[0] != f"GPU{len(rows)}" or len(rows) == gpu_count:
            expected = f"the row of GPU{len(rows)}" if len(rows) < gpu_count else f"{gpu_count} rows, one for each GPU"
            raise _error(file, number, f"the row of {words[0]}", expected)
        _check_row(words[1:], columns, len(rows), file, number)
        rows.append(words[1:])
    if len(rows) < gpu_count:
        raise _error(file, len(lines), f"the end after {len(rows)} rows", f"the row of GPU{len(rows)}")
    _refuse_one_way_links(rows, file, at + 2)
    return Matrix(
        tuple(tuple(row[:gpu_count]) for row in rows),
        tuple(tuple(row[gpu_count : len(columns)]) for row in rows),
        tuple(_numa(row[len(columns) :]) for row in rows),
    )


def _is_header(line: str) -> bool:
    """True for the line of columns: GPU0, then GPU1 or a word that no row has."""
    words = line.split()
    is_row = len(words) > 1 and (words[1] == SELF or words[1] in LINKS or is_nvlink(words[1]))
    return bool(words) and words[0] == "GPU0" and not is_row


def _columns(header: str) -> list[str]:
    ends = [header.index(heading) for heading in _HEADINGS if heading in header]
    return header[: min(ends, default=len(header))].split()


def _check_row(words: Sequence[str], columns: Sequence[str], gpu: int, file: str, number: int) -> None:
    """Check that every link of a row is known, and that the GPU itself is in its own column."""
    if len(words) < len(columns):
        raise _error(file, number, f"{len(words)} values for GPU{gpu}", f"at least {len(columns)}, one for each column")
    for at, (word, column) in enumerate(zip(words[: len(columns)], columns, strict=True)):
        is_link = word in LINKS or is_nvlink(word)
        if at == gpu and word != SELF:
            raise _error(file, number, f"{shorten(word)} between GPU{gpu} and itself", SELF)
        if at != gpu and not is_link:
            expected = f"one of {', '.join(LINKS)} or NV and a number"
            raise _error(file, number, f"{shorten(word)} between GPU{gpu} and {printable(column)}", expected)


def _refuse_one_way_links(rows: Sequence[Sequence[str]], file: str, first: int) -> None:
    for i, row in enumerate(rows):
        for j in range(i):
            if row[j] != rows[j][i]:
                found = f"{row[j]} from GPU{i} to GPU{j}, but {rows[j][i]} from GPU{j} to GPU{i}"
                raise _error(file, first + i, found, "the same link both ways")


def _numa(affinity: Sequence[str]) -> str:
    """The locality of a GPU: its NUMA affinity, or else its CPU affinity."""
    known = [word if _AFFINITY.fullmatch(word) else "" for word in affinity[:2]]
    return (known[1] if len(known) > 1 and known[1] else known[0]) if known else ""


def _error(file: str, line: int, found: str, expected: str) -> ConfigError:
    return ConfigError([Mistake(file, line, "", found, expected)])


LEVELS = ("SWITCH", "PCIE", "NVLINK", "SOCKET")
"""The names of the levels inside a machine."""

_ONE_SWITCH = ("PIX",)
_SWITCHES = ("PIX", "PXB")
_ON_SOCKET = ("PIX", "PXB", "PHB", "NODE")

Groups = list[list[int]]


def inner_of(matrix: Matrix) -> tuple[DeviceGroups, list[str]]:
    """The levels of a machine, lowest first, and the dropped levels with reasons."""
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


class Topology(msgspec.Struct, frozen=True):
    """The inside of the machines that `pattern` names: nodes (`dgx-*`), or a product; "" for all."""

    pattern: str
    file: str
    inner: DeviceGroups
    device_count: int
    notes: tuple[str, ...] = ()

    @classmethod
    def parse(cls, pattern: str, text: str, file: str) -> "Topology":
        """From the output of `nvidia-smi topo -m`; raises ConfigError if it is something else."""
        matrix = parse_matrix(text, file)
        inner, notes = inner_of(matrix)
        return cls(pattern, file, inner, len(matrix.links), tuple(f"{file}: {note}" for note in notes))

    def covers(self, machine: Machine) -> bool:
        """True if the pattern names the machine, and its devices are whole GPUs as in the file."""
        if not machine.resource or machine.resource.startswith(MIG_PREFIX):
            return False
        return not self.pattern or self.pattern == machine.product or fnmatchcase(machine.name, self.pattern)


def with_topologies(machines: Iterable[Machine], topologies: Sequence[Topology]) -> FoundMachines:
    """The machines with their insides; of several topologies for one machine the last counts.

    A topology with another number of GPUs than the machine has devices does not apply to it.
    """
    notes = [note for topology in topologies for note in topology.notes]
    inner: dict[tuple[str, str], DeviceGroups] = {}
    ordered = in_order(machines)
    for topology in topologies:
        covered = [machine for machine in ordered if topology.covers(machine)]
        other = [machine.name for machine in covered if machine.device_count != topology.device_count]
        fitting = [machine for machine in covered if machine.device_count == topology.device_count]
        inner |= {(machine.name, machine.resource): topology.inner for machine in fitting}
        if not covered:
            notes.append(f"{topology.file}: no machine and no product is called {topology.pattern or 'so'}")
        elif other:
            devices = counted(topology.device_count, "GPU")
            notes.append(f"{topology.file}: {devices}, so it does not apply to {listed(other)}")
    made = (replace(each, inner=inner.get((each.name, each.resource), each.inner)) for each in ordered)
    return FoundMachines(tuple(made), tuple(notes))


def machines_of_topologies(topologies: Sequence[Topology], product: str) -> FoundMachines:
    """The machines that topologies name, if there is no other source of them. Raises UserError."""
    for topology in topologies:
        if not topology.pattern or set("*?[") & set(topology.pattern):
            found = topology.pattern or "no name"
            raise UserError(
                f"--topology {topology.file}: found {found}, expected NODE=FILE to say which machine it is of"
            )
    machines = [Machine(topology.pattern, product, topology.device_count) for topology in topologies]
    return with_topologies(machines, topologies)
