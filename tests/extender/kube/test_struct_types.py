"""Struct types are known before they are first read."""

import msgspec

from hived_extender.kube import answers

Size = int
"""What `Box` is read with; it is gone once the type is known."""


class Box(msgspec.Struct):
    """Its field's type is a name, which is looked up when msgspec looks at the type."""

    size: "Size"


class Unread(msgspec.Struct):
    """Cannot be read from JSON: two struct types without tags."""

    either: "Box | Unread"


def test_a_type_that_is_known_is_not_looked_at_again() -> None:
    answers.prepare()
    globals().pop("Size")
    assert msgspec.convert({"size": 2}, Box) == Box(2)
