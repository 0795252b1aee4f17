"""Reads `virtualClusters` into `VirtualClusterSpec`s, and checks that the promised cells exist (rules 1.8 to 1.11)."""

from enum import Enum
from math import prod
from typing import Any

import msgspec
import yaml

from hived.values.specs import Rules, VirtualCellSpec, VirtualClusterSpec
from hived_config.access import USER_KEYS, Access, NamespaceReader, VirtualClusterAccess
from hived_config.chains import Chain, refuse_large_claims
from hived_config.physical import PhysicalCells
from hived_config.reader import (
    Boolean,
    Choice,
    Given,
    Integer,
    Key,
    ListOf,
    MapOf,
    Reader,
    Record,
    closest,
    name_text,
    shorten,
)
from hived_config.rules import (
    LENT_KEY,
    LENT_OF_VC_KEY,
    MOVING_KEYS,
    QUEUE_OF_VC_KEY,
)

VIRTUAL_CELL = Record(
    "virtualCell",
    "a virtual cell (a mapping)",
    "Cells of one type that a virtual cluster is promised.",
    (
        Key(
            "cellType",
            name_text("a path of cell types, such as CHAIN.TYPE", r"[^.]+(\.[^.]+)*"),
            "a path down a chain, `CHAIN.TYPE.TYPE`: the first part names the chain, the last one the type of the "
            "promised cells",
            is_required=True,
        ),
        Key("cellNumber", Integer("a whole number of cells", 0), "how many", is_required=True),
    ),
)

PINNED_CELL = Record(
    "pinnedCell",
    "a pinned cell (a mapping)",
    "A pinned cell that a virtual cluster has.",
    (
        Key(
            "pinnedCellId",
            name_text("the id of a physical cell"),
            "the id of a physical cell that no other virtual cluster uses",
            is_required=True,
        ),
    ),
)


class Placement(Enum):
    """The placement policy for gangs of a virtual cluster."""

    TOPOLOGY = "topology"
    PACKED = "packed"


_CELLS = ListOf("a list of virtual cells", VIRTUAL_CELL)
_PINS = ListOf("a list of pinned cells", PINNED_CELL)

VIRTUAL_CLUSTER = Record(
    "virtualCluster",
    "a virtual cluster (a mapping)",
    "What one virtual cluster is promised, and who may use it.",
    (
        Key("virtualCells", _CELLS, "how many cells of which type it is promised"),
        Key("pinnedCells", _PINS, "which pinned cells are its own"),
        *USER_KEYS,
        Key(
            "placement",
            Choice(Placement, "topology or packed, or no such key"),
            "with `rules: hived`; with `rules: 2` gangs are near together in any case. `topology`: gangs stay [near "
            "together](topology.md#placement-topology); `packed`: as HiveD does it, also gangs of other dialects whose "
            "pods fill nodes",
            rule="as HiveD does, but gangs of other dialects whose pods fill nodes near together",
        ),
        Key(
            "combine",
            Boolean(),
            "a pod larger than one cell may take several that are one cell physically, such as two pairs of one "
            "node; only with `rules: 2`",
            False,
            is_nullable=False,
        ),
        Key(
            "sparing",
            Boolean(),
            "it prefers cells without evictions to the cells that it would take in a cluster of its own, so its "
            "jobs may start later than there; only with `rules: 2`",
            False,
            is_nullable=False,
        ),
        *MOVING_KEYS,
        LENT_OF_VC_KEY,
        QUEUE_OF_VC_KEY,
    ),
    is_nullable=True,
)

VC_NAME = name_text("a name, printable, without '/' and without blanks around it", "[^/]+")
VIRTUAL_CLUSTERS = MapOf("virtual clusters by name", VIRTUAL_CLUSTER, "virtual cluster", VC_NAME)


class _Claim(msgspec.Struct, frozen=True):
    """`count` cells at one depth of a chain that a VC is promised by one entry of the file."""

    vc: str
    count: int
    chain: Chain
    depth: int
    node: yaml.Node


class VirtualClusters:
    """The virtual clusters of a file: `specs`, in file order, and `access`, the users of each."""

    def __init__(
        self,
        reader: Reader,
        physical: PhysicalCells,
        node: yaml.Node | None,
        access: Access | None = Access.EVERYBODY,
        decides_by: Rules | None = Rules.HIVED,
    ) -> None:
        """`decides_by` is None where the file's own rules are a mistake already noted."""
        self._reader = reader
        self._decides_by = decides_by
        self._physical = physical
        self._claims: list[_Claim] = []
        self._unread: dict[str, list[tuple[str, int, yaml.Node]]] = {}  # claims to whole cells of types with mistakes
        self._pin_users: dict[str, tuple[str, yaml.Node]] = {}
        self._namespaces = NamespaceReader(reader, access)
        self._lists_all = access is Access.NAMESPACES
        self.access: dict[str, VirtualClusterAccess] = {}
        self._values: dict[str, dict[str, Any]] = {}
        self.specs: dict[str, VirtualClusterSpec] = {}
        for name, _, value in VIRTUAL_CLUSTERS.fields(reader, node):
            self.specs[name] = self._read(name, value)
        self._used_pins = {pin_id: pin for pin_id, pin in physical.pins.items() if pin_id in self._pin_users}
        self._refuse_nested_pins()
        refuse_large_claims(reader, [(each.vc, each.count, each.chain, each.depth, each.node) for each in self._claims])
        for name, claims in self._unread.items():
            self._note_too_few(f"{name} cells of chain {name}", claims, len(physical.unread[name]), "")
        if physical.is_counted:
            for chain in physical.chains.values():
                self._refuse_shortage(chain)

    def values(self, key: str) -> dict[str, Any]:
        """By virtual cluster, the value of a key, where it has one and that is not false."""
        return {vc: own[key] for vc, own in self._values.items() if own[key] is not None and own[key] is not False}

    # ---- reading

    def _read(self, vc: str, node: yaml.Node) -> VirtualClusterSpec:
        reader = self._reader
        given = VIRTUAL_CLUSTER.given(reader, node)
        cells = _CELLS.items(reader, given.part("virtualCells"))
        pins = _PINS.items(reader, given.part("pinnedCells"))
        access = self._namespaces.virtual_cluster(given)
        if self._lists_all or access != VirtualClusterAccess():
            self.access[vc] = access
        self._values[vc] = {key: given.value(key) for key in ("placement", "movable", "defrag", LENT_KEY, "queue")}
        return VirtualClusterSpec(
            vc,
            tuple(self._read_cell(vc, cell) for cell in cells),
            tuple(self._read_pin(vc, pin) for pin in pins),
            self._values[vc]["placement"] is Placement.TOPOLOGY,
            self._may(given, "combine"),
            self._may(given, "sparing"),
        )

    def _may(self, given: Given, key: str) -> bool:
        """True if a key of the better rules may be used; noted where the file has other rules (rules 18.3 and 18.4)."""
        is_true = bool(given.value(key))
        if is_true and self._decides_by is Rules.HIVED:
            expected = f"{key} only in a file with rules: 2 at its top, or no such key"
            self._reader.note(given.nodes[key], f"{key}: true with rules: hived", expected)
        return is_true

    def _read_cell(self, vc: str, node: yaml.Node) -> VirtualCellSpec:
        given = VIRTUAL_CELL.given(self._reader, node)
        path, count = given.value("cellType") or "", given.value("cellNumber") or 0
        if path:
            self._claim(vc, path, count, given.nodes["cellType"])
        return VirtualCellSpec(path, count)

    def _claim(self, vc: str, path: str, count: int, node: yaml.Node) -> None:
        """Resolve a dotted path, each part somewhere below the one before it, and remember the promise."""
        name, *below = path.split(".")
        chain = self._physical.chains.get(name)
        if chain is None:
            if name in self._physical.unread and not below:
                self._unread.setdefault(name, []).append((vc, count, node))
            if not self._physical.may_have_chain(name):
                expected = "the cell type of a top-level physical cell as the first part"
                self._reader.note(node, f"unknown chain {shorten(name)}", expected, self._chain_meant(name))
            return
        depth = 0
        for part in below:
            if part not in chain.types[depth + 1 :]:
                found = f"cell type {shorten(part)}, which is not below {chain.types[depth]} in chain {name}"
                hint = closest(part, chain.types[depth + 1 :])
                self._reader.note(node, found, f"a path down {'.'.join(chain.types)}", hint)
                return
            depth = chain.types.index(part)
        self._claims.append(_Claim(vc, count, chain, depth, node))

    def _chain_meant(self, name: str) -> str:
        """A chain of almost that name, or a path down to the type of that name; "" if there is none."""
        chains = self._physical.chains
        for chain in chains.values():
            if name in chain.types:
                return ".".join(chain.types[: chain.types.index(name) + 1])
        return closest(name, chains)

    def _read_pin(self, vc: str, node: yaml.Node) -> str:
        """The id of a pinned cell, which no other virtual cluster may name (rule 1.9)."""
        reader = self._reader
        given = PINNED_CELL.given(reader, node)
        pin_id: str = given.value("pinnedCellId")
        if not pin_id:
            return ""
        id_node = given.nodes["pinnedCellId"]
        if pin_id in self._pin_users:
            user, first = self._pin_users[pin_id]
            found = f"pinned cell {shorten(pin_id)}, already of {user} (line {reader.line(first)})"
            reader.note(id_node, found, "each pinned cell used once")
            return pin_id
        self._pin_users[pin_id] = (vc, id_node)
        pin = self._physical.pins.get(pin_id)
        if pin is not None:
            self._claims.append(_Claim(vc, 1, pin.chain, len(pin.position) - 1, id_node))
        elif not self._physical.may_have_pin(pin_id):
            hint = closest(pin_id, self._physical.pins)
            reader.note(id_node, f"unknown pinned cell {shorten(pin_id)}", "a pinnedCellId of physicalCells", hint)
        return pin_id

    # ---- their promises together

    def _refuse_nested_pins(self) -> None:
        by_position = {pin.position: pin_id for pin_id, pin in self._used_pins.items()}
        for pin_id, pin in self._used_pins.items():
            for length in range(1, len(pin.position)):
                outer = by_position.get(pin.position[:length])
                if outer is not None:
                    found = f"pinned cell {shorten(pin_id)} inside pinned cell {shorten(outer)}, both in use"
                    self._reader.note(pin.node, found, "pinned cells apart from each other")

    def _refuse_shortage(self, chain: Chain) -> None:
        """Note at the lowest level that lacks cells how many are promised there and above (rule 1.11).

        A cell with a pinned cell somewhere below it is never available whole, which the reference does not see: it
        accepts the file and breaks VC safety at once.
        """
        pins = [pin.position for pin in self._used_pins.values() if pin.chain is chain]
        own = [claim for claim in self._claims if claim.chain is chain]
        for depth in sorted({claim.depth for claim in own}, reverse=True):
            split = len({pin[: depth + 1] for pin in pins if len(pin) > depth + 1})
            whole = self._physical.top_counts[chain.name] * prod(chain.fan_out[:depth]) - split
            claims = [
                (claim.vc, claim.count * prod(chain.fan_out[claim.depth : depth]), claim.node)
                for claim in own
                if claim.depth <= depth
            ]
            needed = sum(count for _, count, _ in claims)
            if needed > whole:
                meant, below = "", depth + 1
                is_of_one_level = all(claim.depth >= depth for claim in own)
                if is_of_one_level and below <= chain.node_depth and needed <= whole * chain.fan_out[depth]:
                    meant = f"cells of {'.'.join(chain.types[: below + 1])}"
                apart = f" besides {split} with pinned cells inside" if split else ""
                self._note_too_few(f"{chain.types[depth]} cells of chain {chain.name}", claims, whole, apart, meant)
                return

    def _note_too_few(
        self, cells: str, claims: list[tuple[str, int, yaml.Node]], available: int, apart: str, meant: str = ""
    ) -> None:
        """Note it at the first of these claims that goes beyond the available cells, if one does."""
        wanted: dict[str, int] = {}
        culprit = None
        for vc, count, node in claims:
            wanted[vc] = wanted.get(vc, 0) + count
            if culprit is None and sum(wanted.values()) > available:
                culprit = node
        if culprit is not None:
            found = f"{sum(wanted.values())} {cells} promised ({', '.join(f'{vc} {n}' for vc, n in wanted.items())})"
            self._reader.note(culprit, found, f"at most the {available} that there are{apart}", meant)
