"""Waits until an embedded cluster knows what a test has changed, before the next step of the test.

Service and scheduler hear of each kind of object on a watch of its own: a pod that is created after a change of a node
may be known before it. A turn of the queues takes milliseconds, and may come between any two calls of a test.
"""

from collections.abc import Mapping
from typing import Any

from hived_extender.kube.answers import is_older
from hived_extender.kube.client import KubeClient
from hived_lab.embedded.scheduler import SeenNode
from hived_lab.start import Embedded
from tests.expecting import expect_soon


def patch_node(running: Embedded, kube: KubeClient, name: str, changes: Mapping[str, Any], part: str = "") -> None:
    """Change a node, or a `part` of it such as its status, and wait until service and scheduler know."""
    path = f"/api/v1/nodes/{name}"
    node = kube.patch(f"{path}/{part}" if part else path, changes)
    nodes, scheduler = running.extender.service.machine.cache.nodes, running.cluster._scheduler
    assert scheduler is not None, "it has begun"
    version, seen = node["metadata"]["resourceVersion"], SeenNode.read(node)
    expect_soon(lambda: not is_older(nodes._versions.get(name, ""), version))
    expect_soon(lambda: scheduler._cluster.nodes.get(name) == seen)


def queues_rest(running: Embedded) -> bool:
    """Have the queues looked at all jobs that they know? A reason within a turn may be another one than after it."""
    queues = running.extender.queues
    with queues.look() as turns:
        return turns is not None and not (queues.has_turn or queues._left or turns.queues.is_cut)
