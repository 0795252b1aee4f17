"""YAML nodes -> plain values that JSON has.

A manifest is for Kubernetes to interpret, so `hostNetwork: yes` becomes a truth value and `port: 80` a number, by the
rules of YAML 1.1. Keys stay as written, and so do dates, numbers in base 60 such as `12:30`, and `1e3`, which YAML 1.1
does not call a number.
"""

from collections.abc import Callable, Mapping
from math import isfinite
from typing import Any

import yaml

from hived_config.document import PLAIN
from hived_config.reader import TEXT_TAGS, Reader, describe, shorten

_TAG = "tag:yaml.org,2002:"
_COLLECTION_TAGS = (PLAIN, f"{_TAG}map", f"{_TAG}seq")
_BOOLEANS = yaml.constructor.SafeConstructor.bool_values
_RESOLVER: Any = yaml.resolver.Resolver()


def plain_value(reader: Reader, node: yaml.Node) -> object:
    """A node as null, truth value, number, text, list or mapping by text; aliases become copies.

    Notes with the reader: tags that JSON has no type for, and values that do not fit their tag or JSON.
    """
    if isinstance(node, yaml.ScalarNode):
        return _scalar(reader, node)
    if node.tag not in _COLLECTION_TAGS:
        reader.note(node, f"a value tagged {shorten(node.tag)}", "plain YAML")
    if isinstance(node, yaml.SequenceNode):
        return [plain_value(reader, item) for item in node.value]
    return {name: plain_value(reader, value) for name, _, value in reader.fields(node, "")}


def _scalar(reader: Reader, node: yaml.ScalarNode) -> object:
    tag = node.tag
    if tag == PLAIN:
        tag = _RESOLVER.resolve(yaml.ScalarNode, node.value, (True, False))
    parse = _PARSERS.get(tag)
    if parse is None:
        if node.tag not in TEXT_TAGS:
            reader.note(node, describe(node), "plain YAML")
        return node.value
    try:
        return parse(node.value)
    except (KeyError, ValueError):
        if node.tag == PLAIN:
            return node.value
        reader.note(node, f"{shorten(node.value)} tagged {shorten(node.tag)}", "a value of that type")
    except OverflowError:
        reader.note(node, describe(node), "a number that JSON can hold, or a text in quotes")
    return None


def _integer(text: str) -> int:
    digits = text.replace("_", "")
    unsigned = digits.lstrip("+-")
    if len(unsigned) > 66:  # the longest of 64 bits, 0b...
        raise OverflowError
    is_octal = unsigned.startswith("0") and unsigned.isdecimal()
    number = int(digits, 8 if is_octal else 0)
    if not -(2**63) <= number < 2**64:
        raise OverflowError
    return number


def _float(text: str) -> float:
    number = float(text.replace("_", "").lower().replace(".inf", "inf").replace(".nan", "nan"))
    if not isfinite(number):
        raise OverflowError
    return number


_PARSERS: Mapping[str, Callable[[str], object]] = {
    f"{_TAG}null": lambda _: None,
    f"{_TAG}bool": lambda text: _BOOLEANS[text.lower()],
    f"{_TAG}int": _integer,
    f"{_TAG}float": _float,
}
