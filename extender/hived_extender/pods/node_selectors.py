"""Node selectors that name one node by its field, as DaemonSets and allocated claims have them."""

import msgspec


class _Field(msgspec.Struct):
    key: str = ""
    operator: str = ""
    values: list[str] | None = None


class _Term(msgspec.Struct, rename="camel"):
    match_fields: list[_Field] | None = None


class NodeSelector(msgspec.Struct, rename="camel"):
    """Terms of which a node meets one; labels are left out."""

    node_selector_terms: list[_Term] | None = None

    @property
    def only_node(self) -> str:
        """The node that its one term names, "" if it has others, or names none or several."""
        terms = self.node_selector_terms or ()
        named = [
            field.values or ()
            for term in terms
            for field in term.match_fields or ()
            if (field.key, field.operator) == ("metadata.name", "In")
        ]
        return named[0][0] if len(terms) == len(named) == 1 and len(named[0]) == 1 else ""
