"""Words for devices that cannot be had: for pods, nodes, and whoever looks at the cluster."""

from collections.abc import Sequence

from hived_extender.api.cells import DeviceUser, LostDevices
from hived_extender.service.devices.shortage import Loss, Used

NAMED = 3
"""Nodes or users that a text names; the others are counted."""


def of_pod(loss: Loss, used: Used) -> str:
    """To the pod that uses devices: what follows from that."""
    return (
        f"uses {used.count} {loss.resource} of {loss.node} that hived has not given it: "
        f"{loss.lost_count} of the node's {loss.leaf_count} leaf cells ({loss.leaf_type}) cannot be had"
    )


def of_node(loss: Loss) -> str:
    """Of the node that lacks devices: how many leaf cells that costs."""
    return (
        f"allocatable {loss.offered} of {loss.configured} {loss.resource}: {loss.lost_count} of {loss.leaf_count} "
        f"leaf cells ({loss.leaf_type}) cannot be had"
    )


def in_short(loss: Loss) -> str:
    """Why leaf cells of a node cannot be had."""
    parts = []
    if loss.missing:
        devices = "device" if loss.missing == 1 else f"{loss.missing} devices"
        parts.append(f"{devices} missing: allocatable {loss.offered} of {loss.configured} {loss.resource}")
    if loss.used:
        parts.append(f"{first_of([f'{used.count} used by {used.by}' for used in loss.used])} (not placed by hived)")
    return "; ".join(parts)


def reported(loss: Loss) -> LostDevices:
    """The loss as the HTTP API shows it."""
    users = [DeviceUser(used.by, used.count, used.is_claim) for used in loss.used]
    return LostDevices(
        loss.node,
        loss.leaf_type,
        loss.resource,
        loss.leaf_count,
        loss.lost_count,
        [*loss.known],
        loss.missing,
        users,
        in_short(loss),
    )


def first_of(texts: Sequence[str]) -> str:
    """The first of several texts in one."""
    rest = len(texts) - NAMED
    return ", ".join(texts[:NAMED]) + (f" and {rest} more" if rest > 0 else "")
