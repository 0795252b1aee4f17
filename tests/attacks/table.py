"""The table of attacks, in the order in which they run."""

from tests.attacks import (
    body_floods,
    clocks,
    fuzzed_annotations,
    fuzzed_requests,
    promises,
    question_floods,
    quota_roads,
    slow_connections,
    strangers,
    tenants,
    yaml_bombs,
)
from tests.attacks.attack import Attack

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
    Attack(
        "promises",
        "tenants who go for devices and cells that others are promised",
        promises.run,
    ),
    Attack("quotas", "a tenant who tries each road to cells beyond a quota", quota_roads.run),
    Attack("clocks", "a wall clock that jumps by up to a day while jobs wait in queues", clocks.run),
    Attack("tenants", "tenants on a real API server, who go for the cells of others", tenants.run),
)
