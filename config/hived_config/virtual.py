"""`virtualClusters` -> `VirtualClusterSpec`s, and whether what they are promised exists (SEMANTICS 2.4, 2.5)."""

from collections.abc import Mapping
from dataclasses import dataclass

import yaml

from hived.specs import VirtualCellSpec, VirtualClusterSpec
from hived_config.chains import Chain
from hived_config.physical import MAX_CELL_COUNT, PhysicalCells, Pin
from hived_config.reader import Reader, closest, shorten

VIRTUAL_CLUSTER_KEYS = ("virtualCells", "pinnedCells")
VIRTUAL_CELL_KEYS = ("cellType", "cellNumber")
PINNED_CELL_KEYS = ("pinnedCellId",)


@dataclass(frozen=True, slots=True)
class _Claim:
    """`count` cells at one depth of a chain that a VC is promised by one entry of the file."""

    vc: str
    count: int
    chain: Chain
    depth: int
    node: yaml.Node


class VirtualClusters:
    """The virtual clusters of a file, in file order, as `specs`."""

    def __init__(self, reader: Reader, physical: PhysicalCells, node: yaml.Node) -> None:
        self._reader = reader
        self._physical = physical
        self._claims: list[_Claim] = []
        self._used_pins: dict[str, Pin] = {}
        self._users: dict[str, tuple[str, yaml.Node]] = {}
        self.specs: dict[str, VirtualClusterSpec] = {}
        for name, key, value in reader.fields(node, "virtual clusters by name"):
            self._check_name(name, key)
            self.specs[name] = self._read(name, value)
        self._refuse_nested_pins()
        self._refuse_absurd_size(node)
        for chain in physical.chains.values():
            self._refuse_shortage(chain)

    # ---- reading

    def _check_name(self, name: str, key: yaml.Node) -> None:
        if not name:
            self._reader.note(key, "an empty virtual cluster name", "a name")
        elif "/" in name or name != name.strip() or not name.isprintable():
            expected = "printable text without '/' and without blanks around it"
            self._reader.note(key, f"virtual cluster name {shorten(name)}", expected)

    def _read(self, vc: str, node: yaml.Node) -> VirtualClusterSpec:
        reader = self._reader
        fields = reader.known_fields(node, "a virtual cluster (a mapping)", VIRTUAL_CLUSTER_KEYS)
        cells, pins = fields.get("virtualCells"), fields.get("pinnedCells")
        cell_items = reader.items(cells, "a list of virtual cells") if cells is not None else []
        pin_items = reader.items(pins, "a list of pinned cells") if pins is not None else []
        return VirtualClusterSpec(
            vc,
            tuple(self._read_cell(vc, item) for item in cell_items),
            tuple(self._read_pin(vc, item) for item in pin_items),
        )

    def _read_cell(self, vc: str, node: yaml.Node) -> VirtualCellSpec:
        reader = self._reader
        fields = reader.known_fields(node, "a virtual cell", VIRTUAL_CELL_KEYS)
        type_node, count_node = fields.get("cellType"), fields.get("cellNumber")
        path = reader.text(type_node, "a path of cell types") if type_node is not None else ""
        if not path:
            reader.note(type_node or node, "a virtual cell without cellType", "a path such as CHAIN.CELL-TYPE")
        count = None
        if count_node is None:
            reader.note(node, "a virtual cell without cellNumber", "the number of its cells")
        else:
            count = reader.integer(count_node, "a number of cells", 0)
        if path and type_node is not None:
            self._claim(vc, path, count or 0, type_node)
        return VirtualCellSpec(path, count or 0)

    def _claim(self, vc: str, path: str, count: int, node: yaml.Node) -> None:
        """Resolve a dotted path (each part somewhere below the one before it) and remember what it promises."""
        name, *below = path.split(".")
        chains = self._physical.chains
        if name not in chains:
            if name not in self._physical.top_types:
                expected = "a chain, which is the cell type of a top-level physical cell"
                self._reader.note(node, f"unknown chain {shorten(name)}", expected, closest(name, chains))
            return
        chain, depth = chains[name], 0
        for part in below:
            if part not in chain.types[depth + 1 :]:
                found = f"cell type {shorten(part)}, which is not below {chain.types[depth]} in chain {name}"
                self._reader.note(node, found, f"a path down {'.'.join(chain.types)}", closest(part, chain.types))
                return
            depth = chain.types.index(part)
        self._claims.append(_Claim(vc, count, chain, depth, node))

    def _read_pin(self, vc: str, node: yaml.Node) -> str:
        reader = self._reader
        fields = reader.known_fields(node, "a pinned cell", PINNED_CELL_KEYS)
        id_node = fields.get("pinnedCellId")
        pin_id = reader.text(id_node, "a pinned cell id") if id_node is not None else ""
        if not pin_id or id_node is None:
            reader.note(node, "a pinned cell without pinnedCellId", "the id of a physical cell")
            return ""
        pin = self._physical.pins.get(pin_id)
        if pin_id in self._users:
            user, first = self._users[pin_id]
            found = f"pinned cell {shorten(pin_id)}, which {user} uses already (line {reader.line(first)})"
            reader.note(id_node, found, "each pinned cell used once")
        elif pin is None:
            if not self._physical.is_broken:
                found = f"unknown pinned cell id {shorten(pin_id)}"
                reader.note(id_node, found, "a pinnedCellId of physicalCells", closest(pin_id, self._physical.pins))
        else:
            self._used_pins[pin_id] = pin
            self._claims.append(_Claim(vc, 1, pin.chain, len(pin.position) - 1, id_node))
        self._users.setdefault(pin_id, (vc, id_node))
        return pin_id

    # ---- what they claim together

    def _refuse_nested_pins(self) -> None:
        by_position = {pin.position: pin_id for pin_id, pin in self._used_pins.items()}
        for pin_id, pin in self._used_pins.items():
            for length in range(1, len(pin.position)):
                outer = by_position.get(pin.position[:length])
                if outer is not None:
                    found = f"pinned cell {shorten(pin_id)} inside pinned cell {shorten(outer)}, both in use"
                    self._reader.note(pin.node, found, "pinned cells apart from each other")

    def _refuse_absurd_size(self, node: yaml.Node) -> None:
        total = sum(claim.count * claim.chain.cell_counts[claim.depth] for claim in self._claims)
        if total > MAX_CELL_COUNT:
            self._reader.note(node, f"virtual clusters of {total} cells", f"at most {MAX_CELL_COUNT}")

    def _refuse_shortage(self, chain: Chain) -> None:
        """Walk the chain from the top: what a level does not need is split into the next one (SEMANTICS 2.5).

        The cells above a pinned cell have to be split for it wherever else there would be room, so they are not
        available whole.
        """
        split = _split_counts(chain, self._used_pins)
        spare = 0
        available = self._physical.top_counts[chain.name]
        for depth in range(len(chain.types)):
            claims = [claim for claim in self._claims if claim.chain is chain and claim.depth == depth]
            needed = sum(claim.count for claim in claims)
            if needed > available - split[depth]:
                self._note_shortage(chain, depth, claims, needed, available - split[depth], split[depth])
            spare = max(available - needed, split[depth])
            available = spare * chain.fan_out[depth]

    def _note_shortage(
        self, chain: Chain, depth: int, claims: list[_Claim], needed: int, available: int, split: int
    ) -> None:
        taken = 0
        for claim in claims:
            taken += claim.count
            if taken > available:
                break
        per_vc: dict[str, int] = {}
        for each in claims:
            per_vc[each.vc] = per_vc.get(each.vc, 0) + each.count
        level = f"{chain.types[depth]} (level {chain.level(depth)} of chain {chain.name})"
        wanted = ", ".join(f"{vc} {count}" for vc, count in per_vc.items())
        whole = f" whole, as {split} must be split for pinned cells" if split else ""
        found = f"{needed} cells of {level} needed ({wanted})"
        self._reader.note(claim.node, found, f"at most the {available} available{whole}")


def _split_counts(chain: Chain, pins: Mapping[str, Pin]) -> list[int]:
    """By depth, the number of cells that have a pinned cell below them."""
    above: list[set[tuple[int, ...]]] = [set() for _ in chain.types]
    for pin in pins.values():
        if pin.chain is chain:
            for length in range(1, len(pin.position)):
                above[length - 1].add(pin.position[:length])
    return [len(positions) for positions in above]
