"""The cells that are wanted: `2xNODE` are two cells of a type, `4x8` is one gang of four pods of eight leaf cells."""

import re

import msgspec

from hived.values.errors import UserError
from hived.values.specs import MemberSpec

MOST_SHAPES = 4096
"""Wanted at once; a larger number is a slip."""

_SHAPE = re.compile(r"([1-9][0-9]{0,5})x(\S+)")
_POD_SIZE = re.compile(r"[1-9][0-9]{0,5}")


class Shape(msgspec.Struct, frozen=True):
    """One thing wanted. Either a whole cell of `cell_type`, or `members`: the pods of one gang.

    `job` is the name of a waiting job that asks for it. All its pods have to be below one cell of `within_cell`.
    """

    text: str
    cell_type: str = ""
    members: tuple[MemberSpec, ...] = ()
    job: str = ""
    within_cell: str = ""


def read_wants(texts: tuple[str, ...]) -> tuple[Shape, ...]:
    """One shape for each thing wanted, in the order given. Raises UserError."""
    shapes: list[Shape] = []
    for text in texts:
        shapes += _read(text)
        if len(shapes) > MOST_SHAPES:
            raise UserError(f"more than {MOST_SHAPES} cells are wanted: ask for fewer")
    return tuple(shapes)


def _read(text: str) -> list[Shape]:
    found = _SHAPE.fullmatch(text)
    if found is None:
        raise UserError(
            f"--want {text!r}: expected COUNTxCELLTYPE, such as 2xNODE, or PODSxLEAVES for one gang, such as 4x8"
        )
    count, what = int(found[1]), found[2]
    if _POD_SIZE.fullmatch(what):
        return [Shape(text, members=(MemberSpec(count, int(what)),))]
    if count > MOST_SHAPES:
        raise UserError(f"--want {text!r}: at most {MOST_SHAPES} cells can be wanted")
    return [Shape(f"1x{what}", cell_type=what)] * count
