"""Mistakes in the resources of a container that the API server refuses, in its words."""

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from hived_config.quantities import canonical, is_quantity, signed
from hived_extender.jobs.wire import Pod, PodSpec, Resources

_STANDARD = frozenset(("cpu", "memory", "ephemeral-storage"))
_HUGE_PAGES = "hugepages-"
_NATIVE = "kubernetes.io/"
_PART = r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?"
_NAME = re.compile(rf"(?:{_PART}(?:\.{_PART})*/)?[A-Za-z0-9](?:[-A-Za-z0-9_.]*[A-Za-z0-9])?")
_LONGEST_NAME, _LONGEST_PREFIX = 63, 253


class Fault(NamedTuple):
    """A broken rule: the field, the message about it and the reason, as a Status has them among its causes."""

    field: str
    message: str
    reason: str = "FieldValueInvalid"


def pod_faults(pod: Pod) -> Iterator[Fault]:
    """Yield the rules that the resources of a pod's containers break."""
    spec = pod.spec or PodSpec()
    for field, containers in (("containers", spec.containers), ("initContainers", spec.init_containers)):
        for index, container in enumerate(containers or ()):
            resources = container.resources or Resources()
            path = f"spec.{field}[{index}].resources"
            yield from resource_faults(path, resources.limits or {}, resources.requests or {})


def resource_faults(path: str, limits: Mapping[str, object], requests: Mapping[str, object]) -> Iterator[Fault]:
    """Yield the rules that the resources of one container break."""
    for side, quantities in (("limits", limits), ("requests", requests)):
        for name, given in quantities.items():
            yield from _quantity_faults(f"{path}.{side}[{name}]", name, given)
    for name, given in requests.items():
        if name not in limits:
            if not _may_overcommit(name):
                message = "Required value: Limit must be set for non overcommitable resources"
                yield Fault(f"{path}.limits", message, "FieldValueRequired")
            continue
        requested, limit, may_be_less = signed(given), signed(limits[name]), _may_overcommit(name)
        if requested is None or limit is None or requested == limit or (requested < limit and may_be_less):
            continue
        rule = "must be less than or equal to" if may_be_less else "must be equal to"
        told = f"{rule} {name} limit of {canonical(limits[name])}"
        yield Fault(f"{path}.requests", f'Invalid value: "{canonical(given)}": {told}')


def quantity_faults(path: str, name: str, given: object) -> Iterator[Fault]:
    """Yield the rules that an amount of a resource breaks, whoever has it."""
    amount = signed(given)
    if not is_quantity(given):
        yield Fault(path, f'Invalid value: "{given}": not a quantity')
    if amount is not None and amount < 0:
        yield Fault(path, f'Invalid value: "{canonical(given)}": must be greater than or equal to 0')
    if amount is not None and amount.denominator != 1 and _is_extended(name):
        yield Fault(path, f'Invalid value: "{canonical(given)}": must be an integer')


def _quantity_faults(path: str, name: str, given: object) -> Iterator[Fault]:
    prefix, _, last = name.rpartition("/")
    if not _NAME.fullmatch(name) or len(last) > _LONGEST_NAME or len(prefix) > _LONGEST_PREFIX:
        yield Fault(path, f'Invalid value: "{name}": must be a qualified name')
    elif not prefix and name not in _STANDARD and not name.startswith(_HUGE_PAGES):
        yield Fault(path, f'Invalid value: "{name}": must be a standard resource type or fully qualified')
        yield Fault(path, f'Invalid value: "{name}": must be a standard resource for containers')
    elif prefix and not _is_native(name) and not _is_extended(name):
        yield Fault(path, f'Invalid value: "{name}": doesn\'t follow extended resource name standard')
    yield from quantity_faults(path, name, given)


def _is_native(name: str) -> bool:
    return "/" not in name or _NATIVE in name


def _is_extended(name: str) -> bool:
    return not _is_native(name) and not name.startswith("requests.")


def _may_overcommit(name: str) -> bool:
    return _is_native(name) and not name.startswith(_HUGE_PAGES)
