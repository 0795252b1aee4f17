"""The scheduler's configuration inside OpenPAI's `services-configuration.yaml`: the text under `hivedscheduler.config`.

    hivedscheduler:
      config: |
        physicalCluster: ...

The rest of that file belongs to OpenPAI's other services and is not looked at, but for the cluster's id.
"""

import yaml

from hived_config.document import MAX_NODES, ConfigError, compose
from hived_config.reader import Reader, closest, describe, is_null

SERVICE = "hivedscheduler"
"""The name of the service in OpenPAI, and of its section."""

_PATH = f"{SERVICE}.config"

CLUSTER_ID_PATH = ("cluster", "common", "cluster-id")
"""The place where an OpenPAI file names its cluster."""

DEFAULT_CLUSTER_ID = "pai"
"""The id of a cluster to which nobody gave another one, as in OpenPAI."""


def open_configuration(text: str, file: str, lenient: bool, most_nodes: int = MAX_NODES) -> Reader:
    """A reader of the scheduler's own document: the whole `text`, or the part inside an OpenPAI file.

    Lines count in the outer file; for an inner text that is no literal block (`config: |`) they are near, not exact.
    Raises ConfigError if a document cannot be composed, or an OpenPAI file does not hold a configuration as text.
    """
    outer = Reader(file, compose(text, file, most_nodes=most_nodes), lenient=lenient)
    service = _value_of(outer, outer.root, SERVICE)
    if service is None:
        _refuse_object(outer)
        return outer
    config = _value_of(outer, service, "config")
    if not isinstance(config, yaml.ScalarNode) or is_null(config):
        found = "no config" if config is None else describe(config)
        beside = _value_of(outer, outer.root, "config") if config is None else None
        if beside is not None:
            found += f" below it, but beside it on line {outer.line(beside)}"
        keys = [key for key, _ in service.value] if isinstance(service, yaml.MappingNode) else []
        names = [key.value for key in keys if isinstance(key, yaml.ScalarNode)]
        meant = f"config instead of {near}" if config is None and (near := closest("config", names)) else ""
        if beside is not None:
            meant = "config with all of its text two columns further right"
        outer.note(config or service, found, "the scheduler's configuration as text (config: |)", meant)
        raise ConfigError(outer.mistakes())
    first_line = outer.line(config) - (0 if config.style in ("|", ">") else 1)
    root = compose(config.value, file, first_line, most_nodes)
    return Reader(file, root, first_line, _PATH, lenient, outer.mistakes())


def is_plainly_own(text: str) -> bool:
    """True if the text is certainly no OpenPAI file, without composing it; False if it may be one.

    YAML spells a key in other letters than its own only with the backslashes of double quotes.
    """
    return SERVICE not in text and "\\" not in text


def inner_text(text: str, file: str) -> str:
    """The scheduler's own document as text, without an OpenPAI file's other sections, which include passwords.

    `text` is that of a file that `open_configuration` accepts.
    """
    config = inner_scalar(compose(text, file))
    return text if config is None else str(config.value)


def inner_scalar(root: yaml.Node) -> yaml.ScalarNode | None:
    """The scalar of an OpenPAI document that holds the scheduler's configuration; None if it is no such document."""
    reader = Reader("", root)
    service = _value_of(reader, root, SERVICE)
    config = None if service is None else _value_of(reader, service, "config")
    return config if isinstance(config, yaml.ScalarNode) else None


def cluster_id(text: str, file: str) -> str:
    """The id of the cluster that an OpenPAI file is for; "" if it names none, or is no such file.

    `text` is that of a file that `open_configuration` accepts.
    """
    root = compose(text, file)
    if inner_scalar(root) is None:
        return ""
    reader, node = Reader("", root), root
    for key in CLUSTER_ID_PATH:
        found = _value_of(reader, node, key)
        if found is None:
            return ""
        node = found
    return node.value.strip() if isinstance(node, yaml.ScalarNode) and not is_null(node) else ""


def _refuse_object(outer: Reader) -> None:
    """Raise ConfigError for an object of Kubernetes, such as the ConfigMap that holds a configuration."""
    kind, data = (_value_of(outer, outer.root, name) for name in ("kind", "data"))
    if isinstance(kind, yaml.ScalarNode) and _value_of(outer, outer.root, "apiVersion") is not None:
        keys = [key for key, _ in data.value] if isinstance(data, yaml.MappingNode) else []
        names = [key.value for key in keys if isinstance(key, yaml.ScalarNode)]
        meant = f"the text under data[{names[-1]!r}]" if names else ""
        outer.note(kind, f"a Kubernetes object, {kind.value}", "a scheduler configuration alone", meant)
        raise ConfigError(outer.mistakes())


def _value_of(reader: Reader, node: yaml.Node, name: str) -> yaml.Node | None:
    """The value under a key of a mapping; None if it is no mapping or has no such key. A second such key is noted."""
    pairs = node.value if isinstance(node, yaml.MappingNode) else []
    found = [(key, value) for key, value in pairs if isinstance(key, yaml.ScalarNode) and key.value == name]
    for key, _ in found[1:]:
        reader.note_twice(key, found[0][0])
    return found[0][1] if found else None
