"""The table of attacks, in the order in which they run."""

from collections.abc import Iterator

from tests.attacks import (
    body_floods,
    clocks,
    fuzzed_annotations,
    fuzzed_requests,
    question_floods,
    slow_connections,
    strangers,
    tenants,
    viewers,
    yaml_bombs,
)
from tests.attacks.attack import Attack
from tests.attacks.clusters import Hostile
from tests.attacks.device_words import DEVICES
from tests.attacks.ghosts import GHOSTS
from tests.attacks.grace import GRACE
from tests.attacks.queue_objects import QUEUE_OBJECTS
from tests.attacks.quota_roads import QUOTAS
from tests.attacks.thieves import RIGHTS


def _on_both(name: str, about: str, hostile: Hostile) -> Iterator[Attack]:
    yield Attack(name, about, hostile.embedded)
    yield Attack(f"{name}-real", f"the same on a real API server: {about}", hostile.real)


ATTACKS = (
    Attack("requests", "100,000 fuzzed requests to all paths", fuzzed_requests.run),
    Attack(
        "annotations", "100,000 pods with hostile labels, annotations, quantities and rules", fuzzed_annotations.run
    ),
    Attack("bombs", "2,000 pods with YAML that takes long to read, and one that changes in a loop", yaml_bombs.run),
    Attack("slow", "600 slow connections, in the clear, over TLS, and with few files", slow_connections.run),
    Attack("floods", "large bodies of reviews, filter calls and plans", body_floods.run),
    Attack("questions", "16 viewers who ask all the time about a gang of 512", question_floods.run),
    Attack("strangers", "calls without rights, to all paths with all methods", strangers.run),
    *_on_both("grace", "tenants who stay although an owner needs their cells", GRACE),
    *_on_both("ghosts", "tenants whose gangs say more than there is", GHOSTS),
    *_on_both("quotas", "a tenant who tries each road to cells beyond a quota", QUOTAS),
    *_on_both("queue-objects", "a tenant who writes objects of queues in its own namespaces", QUEUE_OBJECTS),
    *_on_both("devices", "a tenant who names devices in containers of all sorts", DEVICES),
    Attack("viewers", "a viewer who asks every path for names of others, and changes queues", viewers.embedded),
    Attack("viewers-real", "the same on a real API server", viewers.real),
    *_on_both("rights", "a thief of hived's account, and a tenant who writes as hived", RIGHTS),
    Attack("clocks", "a wall clock that jumps by up to a day while jobs wait in queues", clocks.embedded),
    Attack("clocks-real", "the same of one of two replicas beside a real API server", clocks.real),
    Attack("tenants", "tenants on a real API server, who go for the cells of others", tenants.run),
)
