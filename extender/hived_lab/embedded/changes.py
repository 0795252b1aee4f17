"""Following what is stored, on the event loop of the API server."""

import asyncio
import logging
from collections.abc import Callable, Iterable

from hived_lab.embedded.apiserver.registry import Registry
from hived_lab.embedded.apiserver.resources import ResourceType
from hived_lab.embedded.apiserver.statuses import ApiError
from hived_lab.embedded.apiserver.store import Key

log = logging.getLogger(__name__)


async def follow(
    registry: Registry, resource: ResourceType, look: Callable[[Key], None], known: Callable[[], Iterable[Key]]
) -> None:
    """Look at every object, then at each that changes; after a gap in the history, at all and at those `known`.

    Ends when it is cancelled.
    """
    collection = registry.collection(resource)
    version = 0
    while True:
        try:
            changes = collection.changes_since(version)
            keys = [change.after.key for change in changes]
            version = changes[-1].version if changes else version
        except ApiError:
            version = registry.store.version
            keys = [*collection.revisions, *known()]
        for key in dict.fromkeys(keys):
            look_at(look, key)
        if keys:
            await asyncio.sleep(0)
        else:
            await collection.next_change()


def look_at(look: Callable[[Key], None], key: Key) -> None:
    """Look, and log what the registry refuses."""
    try:
        look(key)
    except ApiError as error:
        log.error("the embedded cluster cannot go on with %s: %s", "/".join(filter(None, key)), error)
