"""The key `rules`: which decisions a cluster gets (rule 18.1)."""

from typing import Literal

import yaml

from hived.specs import Rules
from hived_config.kinds import Key, Schema, ValueKind
from hived_config.reader import Reader, closest, describe

NAMES = {Rules.HIVED: "hived", Rules.BETTER: "2"}
"""How a file spells each."""

_BY_NAME = {name: rules for rules, name in NAMES.items()}


class RulesKind(ValueKind):
    """The name or the number of a set of rules."""

    what = "hived or 2"
    words = "`hived` or `2`"

    def read(self, reader: Reader, node: yaml.Node) -> Rules | None:
        """The rules; None after noting that it names none."""
        word = reader.text(node, self.what)
        if word not in _BY_NAME:
            reader.note(node, describe(node), self.what, closest(word, _BY_NAME))
        return _BY_NAME.get(word)

    def schema(self) -> Schema:
        """A number for editors, or either as text."""
        return {"enum": ["hived", 2, "2"]}


RULES_KEY = Key(
    "rules",
    RulesKind(),
    "the rules of decisions: `hived`, exactly as the reference decides, or `2`, the better ones; see "
    "[rules](#the-rules-of-decisions)",
    rule="`hived`",
    is_nullable=False,
)


def value_of(rules: Rules) -> Literal["hived", 2]:
    """The rules as JSON has them."""
    return "hived" if rules is Rules.HIVED else 2
