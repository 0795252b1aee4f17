"""Nodes are many and of few kinds: each keeps what is its own, and shares the rest."""

import msgspec

from hived_extender.jobs.wire import Node
from hived_extender.kube_rules.nodes import RuledNode


def read(name: str) -> RuledNode:
    """A node as it comes from a list: every text of it is a new object."""
    text = {
        "metadata": {"name": name, "labels": {"example.com/gpu": "A100 80 GB"}},
        "spec": {"taints": [{"key": "gpu", "value": "only", "effect": "NoSchedule"}]},
        "status": {"allocatable": {"cpu": "96", "memory": "1Ti"}},
    }
    return RuledNode.of(msgspec.json.decode(msgspec.json.encode(text), type=Node))


def test_nodes_share_the_texts_of_their_labels() -> None:
    one, other = (read(name).labels.items() for name in ("a", "b"))
    pairs = list(zip(one, other, strict=True))
    assert [(x[0] is y[0], x[1] is y[1]) for x, y in pairs] == [(True, True)]


def test_nodes_share_what_they_can_allocate() -> None:
    assert read("a").allocatable is read("b").allocatable


def test_nodes_share_their_taints() -> None:
    assert read("a").gate is read("b").gate
