"""Cells as text: one character per leaf cell, for terminals.

A letter names a virtual cluster: upper case for its guaranteed work, lower case for opportunistic work. Other signs:
`.` free, `x` on a bad node and not in use, `~` in use by a victim, or empty again, and reserved for its preemptor.
"""

from collections.abc import Sequence

from hived_extender.api.cells import Cell

FREE, BAD, RESERVED, OVERFLOW = ".", "x", "~", "#"
LETTERS = tuple("ABCDEFGHIJKLMNOPQRSTUVWYZ")
"""All but X, which in lower case means bad."""

SIGNS = {FREE: "free", BAD: "bad, not in use", RESERVED: "reserved"}


def letters(names: Sequence[str]) -> dict[str, str]:
    """A letter per name: the names' initials if no two are the same, else A, B, C in order; "#" after Z."""
    initials = [name[:1].upper() for name in names]
    if len(set(initials)) < len(names) or not all(initial in LETTERS for initial in initials):
        initials = [*LETTERS, *OVERFLOW * len(names)]
    return dict(zip(names, initials, strict=False))


def leaf_sign(leaf: Cell, letter_of: dict[str, str]) -> str:
    """The character of one physical leaf cell."""
    if leaf.cell_state in ("Reserving", "Reserved"):
        return RESERVED
    if leaf.is_used:
        letter = letter_of.get(leaf.vc, OVERFLOW)
        return letter.lower() if leaf.is_opportunistic else letter
    return BAD if leaf.is_bad else FREE


def cell_picture(cell: Cell, letter_of: dict[str, str]) -> str:
    """The characters of all leaves of a cell in tree order, nodes apart."""
    nodes = cell.nodes()
    gap = " " if nodes[0].is_node_level else ""
    return gap.join("".join(leaf_sign(leaf, letter_of) for leaf in node.leaves()) for node in nodes)


def health(cell: Cell) -> str:
    """Healthy, Bad, or the bad share such as `1 bad of 18`: of nodes above node level, else of leaf cells."""
    if not cell.is_bad:
        return cell.cell_healthiness
    nodes = cell.nodes()
    parts = cell.leaves() if nodes == [cell] else nodes
    bad = sum(part.is_bad for part in parts)
    return f"{bad:,} bad of {len(parts):,}" if 0 < bad < len(parts) else cell.cell_healthiness


def legend(letter_of: dict[str, str]) -> str:
    """One line that explains the characters."""
    names = [f"{letter} {name}" for name, letter in letter_of.items()]
    return "   ".join([*names, "lower case opportunistic", *(f"{sign} {word}" for sign, word in SIGNS.items())])
