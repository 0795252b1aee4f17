"""Licences of packages: the one that a package names, and whether .ci/policy.json allows it."""

import hashlib
import re
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path
from typing import Any

from delivery.locks import Pin


def is_allowed(expression: str, allowed: Iterable[str]) -> bool:
    """Whether a licence expression leaves a choice among allowed licences: of `OR` one part, of `AND` all."""
    tokens = re.findall(r"[()]|[^\s()]+", expression)

    def either() -> bool:
        good = both()
        while tokens and tokens[0].upper() == "OR":
            tokens.pop(0)
            good = both() or good
        return good

    def both() -> bool:
        good = one()
        while tokens and tokens[0].upper() == "AND":
            tokens.pop(0)
            good = one() and good
        return good

    def one() -> bool:
        token = tokens.pop(0) if tokens else ""
        if token != "(":
            return token in allowed and _with_exception()
        good = either()
        return bool(tokens) and tokens.pop(0) == ")" and good

    def _with_exception() -> bool:
        """No exception makes a licence stricter."""
        if tokens and tokens[0].upper() == "WITH":
            del tokens[:2]
        return True

    return either() and not tokens


def licence_of(distribution: metadata.Distribution, policy: dict[str, Any]) -> str:
    """The licence that a package names in its metadata, as an expression; empty if that is not clear."""
    said = distribution.metadata
    if expression := said.get_all("License-Expression"):
        return str(expression[0])
    named = [each for each in said.get_all("Classifier") or [] if each.startswith("License :: OSI Approved ::")]
    if named:
        known = [policy["classifiers"].get(each.split(" :: ")[-1], "") for each in named]
        return " AND ".join(known) if all(known) else ""
    text = said.get_all("License") or [""]
    return text[0] if text[0] in policy["allowed_licences"] else ""


def check_licences(pins: dict[str, Pin], policy: dict[str, Any]) -> list[str]:
    """Locked packages whose licence is not allowed, or not known."""
    problems = []
    for pin in pins.values():
        licence = known_licence(pin.name, policy)
        allowed = {*policy["allowed_licences"], *policy["allowed_for"].get(pin.name, [])}
        if licence is None:
            problems.append(f"{pin.name}: not installed, so its licence is not known: add it to .ci/policy.json")
        elif not licence:
            problems.append(f"{pin.name}: its metadata name no clear licence: look, and add it to .ci/policy.json")
        elif not is_allowed(licence, allowed):
            problems.append(f"{pin.name}: its licence {licence} is not among those allowed in .ci/policy.json")
    return problems


def check_vendored(root: Path, policy: dict[str, Any]) -> list[str]:
    """Files of others in the checkout that are not as the policy says, or whose licence is not allowed."""
    problems = []
    for each in policy["vendored"]:
        if not is_allowed(each["licence"], policy["allowed_licences"]):
            problems.append(f"{each['name']}: its licence {each['licence']} is not allowed in .ci/policy.json")
        for name, digest in each["files"].items():
            path = root / name
            if not path.exists() or hashlib.sha256(path.read_bytes()).hexdigest() != digest:
                problems.append(f"{name}: it is not the file of {each['name']} {each['version']} in .ci/policy.json")
    return problems


def known_licence(name: str, policy: dict[str, Any]) -> str | None:
    """The licence of a package: by the policy's table, else by its metadata; "" if unclear, None if not installed."""
    try:
        return policy["licences"].get(name) or licence_of(metadata.distribution(name), policy)
    except metadata.PackageNotFoundError:
        return None
