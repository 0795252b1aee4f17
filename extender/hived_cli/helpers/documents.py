"""Kubernetes objects as YAML that people read and edit, and that every YAML reader takes for the same."""

import re
from collections.abc import Iterable
from typing import Any

import yaml

_ODD_TEXT = re.compile(r"[-+]?\.?[0-9][0-9A-Za-z_.+-]*|[yYnN]")


class _Dumper(yaml.SafeDumper):
    """Writes every value in full: an alias would surprise people."""

    def ignore_aliases(self, data: object) -> bool:
        return True

    def represent_text(self, text: str) -> yaml.ScalarNode:
        """Lines as lines; in quotes what any YAML reader, PyYAML or kubectl's, could take for a number or boolean."""
        style = "|" if "\n" in text else '"' if _ODD_TEXT.fullmatch(text) else None
        return self.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _Dumper.represent_text)


def as_yaml(objects: Iterable[Any]) -> str:
    """One document per object, without the last line's end."""
    return str(yaml.dump_all(objects, Dumper=_Dumper, sort_keys=False, explicit_start=True)).rstrip()
