"""Policy and priority of a queue, as users write them into its Queue object in namespace kube-queue.

Tenants may have rights to Queue objects of their own namespaces, so these change nothing.

Pure: from the objects to rules. An object with a mistake changes nothing: its queue goes on as before.
"""

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from hived.values.errors import UserError
from hived_extender.queues.policies import Policy, Rules, policy_named
from hived_extender.queues.records import MAX_DEPTH, QUEUE_NAMESPACE, queue_name

IGNORED = f"it changes nothing: the queues of hived are those in namespace {QUEUE_NAMESPACE}"

MOST = 2**31 - 1


class QueueItem(msgspec.Struct, frozen=True):
    """A Queue object. `path` is the full name of its queue."""

    path: str
    uid: str
    namespace: str
    name: str
    spec: Mapping[str, Any]
    annotations: Mapping[str, str]


class Said(msgspec.Struct, frozen=True):
    """The words of one object; None for those that it leaves to the configuration."""

    policy: Policy | None = None
    priority: int = 0
    max_depth: int = 0


class QueueObjects:
    """The words of all Queue objects: of each the last ones without a mistake. Not thread-safe."""

    def __init__(self) -> None:
        self.said: dict[str, Said] = {}
        self._problems: dict[str, str] = {}

    def read(self, items: list[QueueItem]) -> list[tuple[QueueItem, str]]:
        """Take in how all objects look now. Of several for one queue the one counts that hived has made.

        Returns those that count nothing, with a reason of which nobody was told yet: a mistake, or `IGNORED`.
        """
        said: dict[str, Said] = {}
        problems: dict[str, str] = {}
        news = []
        for item in sorted(items, key=lambda each: (each.path, each.name != queue_name(each.path), each.name)):
            try:
                if item.namespace != QUEUE_NAMESPACE:
                    problems[item.uid] = IGNORED
                else:
                    said.setdefault(item.path, said_by(item))
            except UserError as error:
                problems[item.uid] = error.message
                if item.path in self.said:
                    said.setdefault(item.path, self.said[item.path])
            problem = problems.get(item.uid, "")
            if problem and self._problems.get(item.uid) != problem:
                news.append((item, problem))
        self.said, self._problems = said, problems
        return news

    def obeyed(self, rules: Rules) -> Rules:
        """The rules of a configuration, as changed by the objects."""
        queues = dict(rules.queues)
        for path, said in self.said.items():
            if said != Said():
                own = rules.of(path)
                policy = own.policy if said.policy is None else said.policy
                queues[path] = replace(own, policy=policy, priority=said.priority, max_depth=said.max_depth)
        return rules if queues == rules.queues else replace(rules, queues=queues)


def said_by(item: QueueItem) -> Said:
    """The words of one object. Raises UserError for words without a meaning."""
    policy = item.spec.get("queuePolicy")
    if policy is not None and not isinstance(policy, str):
        raise UserError(f"spec.queuePolicy: found {policy!r:.60}; expected one of hived, Priority, Block and Round")
    try:
        named = policy_named(policy) if policy else None
    except UserError:
        raise UserError(
            f"spec.queuePolicy: found {policy!r:.60}; expected one of hived, Priority, Block and Round"
        ) from None
    priority = item.spec.get("priority")
    priority = 0 if priority is None else priority
    if not isinstance(priority, int) or isinstance(priority, bool) or abs(priority) > MOST:
        raise UserError(f"spec.priority: found {priority!r:.60}; expected a whole number")
    depth = item.annotations.get(MAX_DEPTH, "0")
    if not (depth.isascii() and depth.isdigit() and len(depth) <= len(str(MOST))):
        raise UserError(f"annotation {MAX_DEPTH}: found {depth!r:.60}; expected a whole number of at least 0")
    return Said(named, priority, int(depth))
