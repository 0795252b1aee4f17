"""The variables by which container runtimes give devices to a container, and the value that gives none.

A runtime gives a container the devices that its variable names, whoever has set it: the pod, a ConfigMap or the image.
So each container of our pods has the variable in its own `env`, which goes before `envFrom` and the image. It names the
devices of the pod's cells, or none.
"""

from collections.abc import Container, Iterable, Mapping
from typing import Any

import msgspec

from hived_extender.jobs.annotations import LEAF_CELL_ISOLATION

NVIDIA_WORD, HIVED_WORD = "NVIDIA_VISIBLE_DEVICES", "HIVED_VISIBLE_DEVICES"
VARIABLES = (NVIDIA_WORD, HIVED_WORD)
"""Of every container. The second is for runtimes and programs that know no word of their maker."""

VENDOR_WORDS = {
    "nvidia.com": NVIDIA_WORD,
    "amd.com": "AMD_VISIBLE_DEVICES",
    "habana.ai": "HABANA_VISIBLE_DEVICES",
    "huawei.com": "ASCEND_VISIBLE_DEVICES",
    "enflame.com": "ENFLAME_VISIBLE_DEVICES",
    "mthreads.com": "MTHREADS_VISIBLE_DEVICES",
    "cambricon.com": "CAMBRICON_VISIBLE_DEVICES",
}
"""By the domain of a device resource, the variable of its maker's container runtime."""

NO_DEVICE = "void"
"""A value of the variables: the runtime behaves as if it were not there."""

_SOURCE = {"fieldRef": {"apiVersion": "v1", "fieldPath": f"metadata.annotations['{LEAF_CELL_ISOLATION}']"}}


class _Field(msgspec.Struct, rename="camel"):
    field_path: str = ""


class _Source(msgspec.Struct, rename="camel"):
    field_ref: _Field | None = None


class _Variable(msgspec.Struct, rename="camel"):
    name: str
    value_from: _Source | None = None


class DeviceWords:
    """Gives containers the variables, for the device resources of a configuration."""

    def __init__(self, resources: Iterable[str]) -> None:
        """`resources`: the device resources that leaf cells stand for."""
        self._all = tuple(dict.fromkeys((*VARIABLES, *filter(None, map(_word, sorted(resources))))))

    def given(self, container: Mapping[str, Any], resource: str, replaced: list[str]) -> dict[str, Any]:
        """The container with the devices of the pod's cells, which are of this resource.

        Other makers' variables are `NO_DEVICE` where it has them, or may have them by `envFrom`. `replaced` gets a
        sentence for each variable of another meaning. Raises msgspec.ValidationError for an `env` that is no list of
        variables.
        """
        own = (_word(resource) or NVIDIA_WORD, HIVED_WORD)
        others = self._named(container) - {*own}
        return self._with(container, {**dict.fromkeys(own, True), **dict.fromkeys(sorted(others), False)}, replaced)

    def withheld(self, container: Mapping[str, Any], replaced: list[str]) -> dict[str, Any]:
        """The container without devices (rule 22.2), as in `given`."""
        return self._with(container, dict.fromkeys(self._of(container), False), replaced)

    def left_to_plugin(self, container: Mapping[str, Any], words: Iterable[str], replaced: list[str]) -> dict[str, Any]:
        """The container whose `words` its device plugin sets, as in `given`. Its own would go before the plugin's."""
        left = frozenset(words)
        changed = self._with(container, dict.fromkeys(sorted(self._named(container) - left), False), replaced)
        own = {each.name for each in _variables(container) if each.name in left}
        replaced += [f"container {container.get('name')}: {name} is left to its device plugin" for name in sorted(own)]
        return {**changed, "env": [each for each in changed["env"] if each["name"] not in own]} if own else changed

    def reads_cells(self, container: Mapping[str, Any]) -> bool:
        """Does a variable name the devices of the pod's cells already, as in OpenPAI jobs?"""
        return any(_names_cells(each) for each in _variables(container) if each.name in self._all)

    def kept(self, container: Mapping[str, Any], replaced: list[str]) -> dict[str, Any]:
        """The container of `reads_cells`, whose other variables give no devices, as in `given`."""
        own = {each.name for each in _variables(container) if each.name in self._all and _names_cells(each)}
        return self._with(container, {name: name in own for name in self._of(container)}, replaced)

    def _named(self, container: Mapping[str, Any]) -> set[str]:
        """The variables that a container has, or may have."""
        named = {each.name for each in _variables(container)}
        return {name for name in self._of(container) if name in named or container.get("envFrom")}

    def _of(self, container: Mapping[str, Any]) -> tuple[str, ...]:
        """All variables, also of makers without a leaf cell if the container has them: nodes may have their devices."""
        named = {each.name for each in _variables(container)}
        return tuple(dict.fromkeys((*self._all, *(word for word in VENDOR_WORDS.values() if word in named))))

    def _with(self, container: Mapping[str, Any], has: Mapping[str, bool], replaced: list[str]) -> dict[str, Any]:
        """`has`: by variable, whether it names the pod's devices. Ours stand first: its own ones may refer to them."""
        if not has:
            return dict(container)
        env: list[dict[str, Any]] = container.get("env") or []
        variables = _variables(container)
        ours: dict[str, dict[str, Any]] = {
            name: {"name": name, **({"valueFrom": _SOURCE} if is_own else {"value": NO_DEVICE})}
            for name, is_own in has.items()
        }
        for given, read in zip(env, variables, strict=True):
            if read.name in ours and not (_names_cells(read) if has[read.name] else given.get("value") == NO_DEVICE):
                says = (
                    "names the devices of the pod's cells" if has[read.name] else f"is {NO_DEVICE}: it gets no device"
                )
                replaced.append(f"container {container.get('name')}: {read.name} now {says}")
        others = [given for given, read in zip(env, variables, strict=True) if read.name not in ours]
        return {**container, "env": [*ours.values(), *others]}


def is_numbered(resource: str) -> bool:
    """Does a runtime find a device of this resource by its number (rule 22.3)? It takes MIG devices for whole GPUs.

    MIG devices of one profile are alike, so any of them that a device plugin gives will do.
    """
    return not resource.startswith("nvidia.com/mig-")


def plugin_word(resource: str, of_cells: Container[str]) -> str:
    """The variable that a device plugin sets for a resource, "" if none is known. `of_cells`: resources of cells."""
    return _word(resource) or (NVIDIA_WORD if resource in of_cells else "")


def _word(resource: str) -> str:
    return VENDOR_WORDS.get(resource.partition("/")[0], "")


def _variables(container: Mapping[str, Any]) -> list[_Variable]:
    return msgspec.convert(container.get("env") or [], list[_Variable])


def _names_cells(variable: _Variable) -> bool:
    reference = variable.value_from and variable.value_from.field_ref
    return bool(reference and reference.field_path == _SOURCE["fieldRef"]["fieldPath"])
