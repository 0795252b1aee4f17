"""Operations on objects: what happens between a well-formed request and the store.

Everything is checked before anything is changed; a refused operation raises ApiError and leaves the store as it was.
The nodes and controllers of the embedded cluster use these operations directly, all others through `rest`.
"""

import asyncio
import logging
import random
import time
import uuid
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta

from hived_extender.api.inspection import parse_time
from hived_extender.kube.clocks import timestamp
from hived_extender.kube_rules.resource_rules import Fault
from hived_lab.embedded.apiserver import bodies, kinds
from hived_lab.embedded.apiserver.bodies import ApiError, Body, view_of
from hived_lab.embedded.apiserver.kinds import PERMANENT_NAMESPACES, SYSTEM_PRIORITY_CLASSES
from hived_lab.embedded.apiserver.models import DeleteOptions, View, metadata_causes
from hived_lab.embedded.apiserver.resources import (
    CORE_EVENTS,
    NAMESPACES,
    PODS,
    PRIORITY_CLASSES,
    RESOURCES,
    ResourceType,
)
from hived_lab.embedded.apiserver.store import Collection, Key, Revision, Store

_NAME_SUFFIX_LETTERS = "bcdfghjklmnpqrstvwxz2456789"
_NAME_SUFFIX_LENGTH = 5
_LONGEST_GENERATED_BASE = 63 - _NAME_SUFFIX_LENGTH
# Set by the server when an object is made, and kept by every update.
_FIXED_METADATA = (
    "name",
    "namespace",
    "generateName",
    "uid",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
)
_LONGEST_GRACE_S = 10 * 365 * 86400
_UNSTORED_METADATA = ("managedFields", "selfLink", "generation")

log = logging.getLogger(__name__)

Check = Callable[[Body | None, Body], None]
"""Raises ApiError unless an object may take the place of another, of None if it is new."""


def allow(old: Body | None, new: Body) -> None:
    """A `Check` that lets everything through."""


class Registry:
    """All objects of the cluster, and the only way to change them."""

    def __init__(self, store: Store) -> None:
        self.store = store
        for name in PERMANENT_NAMESPACES:
            self.create(NAMESPACES, {"metadata": {"name": name}})
        for name, value in SYSTEM_PRIORITY_CLASSES.items():
            self.create(PRIORITY_CLASSES, {"metadata": {"name": name}, "value": value})

    def collection(self, resource: ResourceType) -> Collection:
        """Return the objects of `resource`, to be read only."""
        return self.store.collection(resource.collection_name)

    def priority_classes(self) -> Mapping[str, Revision]:
        """Return the priority classes by name."""
        return {key.name: revision for key, revision in self.collection(PRIORITY_CLASSES).revisions.items()}

    def get(self, resource: ResourceType, key: Key) -> Revision:
        """Return the object at `key`; ApiError (404) if there is none."""
        revision = self.collection(resource).revisions.get(key)
        if revision is None:
            details = {"name": key.name, "kind": resource.label}
            raise ApiError(404, f'{resource.label} "{key.name}" not found', details)
        return revision

    def create(self, resource: ResourceType, body: Body, dry_run: bool = False, *, check: Check = allow) -> Revision:
        """Store a new object; `body` has its namespace in it and a name or a generateName.

        `check` is called with a sound object before it is stored.
        Raises ApiError: 400 (a field of a wrong type), 403 (not admitted), 404 (no such namespace), 409 (exists), 422.
        """
        sent = view_of(body, resource.view).metadata
        if sent.resource_version:
            raise bodies.bad_request("resourceVersion should not be set on objects to be created")
        name = sent.name or _generated_name(sent.generate_name)
        if not name:
            causes = [Fault("metadata.name", "Required value: name or generateName is required", "FieldValueRequired")]
            raise bodies.invalid(resource.kind, "", causes, resource.group)
        key = Key(sent.namespace if resource.is_namespaced else "", name)
        self._require_namespace(resource, key)
        metadata = {
            **_without(body.get("metadata", {}), (*_FIXED_METADATA, *_UNSTORED_METADATA)),
            "name": name,
            "uid": str(uuid.uuid4()),
            "creationTimestamp": timestamp(),
        }
        if resource.is_namespaced:
            metadata["namespace"] = key.namespace
        if sent.generate_name:
            metadata["generateName"] = sent.generate_name
        typed = {"apiVersion": _stored_version(resource), "kind": resource.kind, **body, "metadata": metadata}
        revision = self._checked(resource, key, resource.strategy.admit(resource.strategy.default(typed), self))
        check(None, revision.body)
        if key in self.collection(resource).revisions:
            details = {"name": name, "kind": resource.label}
            raise ApiError(409, f'{resource.label} "{name}" already exists', details, "AlreadyExists")
        if not dry_run:
            self.store.put(self.collection(resource), revision)
        return revision

    def update(
        self,
        resource: ResourceType,
        key: Key,
        body: Body,
        is_status: bool = False,
        dry_run: bool = False,
        *,
        check: Check = allow,
    ) -> Revision:
        """Replace the object at `key` (or only its status) and return what is stored then.

        A `resourceVersion` or `uid` in `body` must be the present one (409 otherwise). An update that changes nothing
        stores nothing; one that takes the last finalizer off a deleted object removes it. `check` is called with the
        old object and the sound new one before that is stored.
        """
        old = self.get(resource, key)
        sent = view_of(body, resource.view).metadata
        self._require_same(resource, old, sent.uid, sent.resource_version)
        wanted = resource.strategy.default(body)
        if is_status:
            new = {**old.body, "status": wanted.get("status", {}), "metadata": wanted.get("metadata", {})}
        else:
            new = resource.strategy.carry_over(old.body, wanted)
        new["metadata"] = _kept_metadata(old.body["metadata"], new.get("metadata", {}))
        new["apiVersion"], new["kind"] = old.body["apiVersion"], old.body["kind"]
        if new == old.body:
            return old
        causes = [] if is_status else list(resource.strategy.change_causes(old.body, new))
        revision = self._checked(resource, key, new, old, causes)
        check(old.body, revision.body)
        if dry_run:
            return revision
        meta = revision.view.metadata
        if meta.deletion_timestamp and not meta.finalizers and not meta.deletion_grace_period_seconds:
            return self._remove(resource, key)
        self.store.put(self.collection(resource), revision)
        return revision

    def delete(self, resource: ResourceType, key: Key, options: DeleteOptions, dry_run: bool = False) -> Revision:
        """Delete the object at `key`, at once or, while a node or a finalizer holds it, by marking it.

        Returns its last state. Raises ApiError: 403 (a namespace that must stay), 404, 409 (a precondition fails).
        """
        old = self.get(resource, key)
        self._require_same(resource, old, options.preconditions.uid, options.preconditions.resource_version)
        if resource is NAMESPACES and key.name in PERMANENT_NAMESPACES:
            raise bodies.forbidden(resource.label, key.name, "this namespace may not be deleted")
        if dry_run:
            return old
        if resource is NAMESPACES:
            return self._delete_namespace(old)
        meta = old.view.metadata
        grace_s = resource.strategy.grace_s(old.view, options.grace_period_seconds)
        if meta.deletion_timestamp:
            is_shorter = options.grace_period_seconds is not None and grace_s < meta.deletion_grace_period_seconds
            grace_s = grace_s if is_shorter else meta.deletion_grace_period_seconds
        if grace_s == 0 and not meta.finalizers:
            return self._remove(resource, key)
        if meta.deletion_timestamp and grace_s == meta.deletion_grace_period_seconds:
            return old
        marked = self._checked(resource, key, {**old.body, "metadata": _marked_deleted(old.body["metadata"], grace_s)})
        self.store.put(self.collection(resource), marked)
        return marked

    def bind(self, key: Key, binding: View, dry_run: bool = False) -> Revision:
        """Bind the pod at `key`; ApiError (404, 409) as `kinds.bound` says."""
        old = self.get(PODS, key)
        revision = self._checked(PODS, key, kinds.bound(old, binding))
        if not dry_run:
            self.store.put(self.collection(PODS), revision)
        return revision

    def evict(self, key: Key, options: DeleteOptions, dry_run: bool = False) -> Revision:
        """Delete the pod at `key` with a condition that says it was evicted."""
        old = self.get(PODS, key)
        self._require_same(PODS, old, options.preconditions.uid, options.preconditions.resource_version)
        if dry_run:
            return old
        if not old.view.metadata.deletion_timestamp:
            self.store.put(self.collection(PODS), self._checked(PODS, key, kinds.marked_for_eviction(old.body)))
        unversioned = DeleteOptions(grace_period_seconds=options.grace_period_seconds)
        return self.delete(PODS, key, unversioned)

    def expire_events(self, ttl_s: float) -> None:
        """Remove the events that were not touched for `ttl_s` seconds."""
        oldest = datetime.now(UTC) - timedelta(seconds=ttl_s)
        for key, revision in list(self.collection(CORE_EVENTS).revisions.items()):
            event = revision.view
            last = event.series.last_observed_time if event.series else event.last_timestamp
            touched = parse_time(last) or parse_time(event.metadata.creation_timestamp)
            if touched is None or touched < oldest:
                self._remove(CORE_EVENTS, key)

    def _checked(
        self,
        resource: ResourceType,
        key: Key,
        body: Body,
        old: Revision | None = None,
        causes: list[Fault] | None = None,
    ) -> Revision:
        revision = self.store.revise(key, body, lambda stamped: view_of(stamped, resource.view))
        broken = [
            *(causes or ()),
            *metadata_causes(revision.view.metadata, resource.strategy.has_label_name),
            *resource.strategy.causes(revision.view, old.view if old else None),
        ]
        if broken:
            raise bodies.invalid(resource.kind, key.name, broken, resource.group)
        return revision

    def _remove(self, resource: ResourceType, key: Key) -> Revision:
        body = self.get(resource, key).body
        last = self.store.revise(key, body, lambda stamped: view_of(stamped, resource.view))
        self.store.remove(self.collection(resource), last)
        if key.namespace:
            self._finish_namespace(key.namespace)
        return last

    def _require_namespace(self, resource: ResourceType, key: Key) -> None:
        if not resource.is_namespaced:
            return
        namespace = self.get(NAMESPACES, Key("", key.namespace))
        if namespace.view.metadata.deletion_timestamp:
            why = f"unable to create new content in namespace {key.namespace} because it is being terminated"
            raise bodies.forbidden(resource.label, key.name, why)

    def _require_same(self, resource: ResourceType, old: Revision, uid: str, resource_version: str) -> None:
        meta = old.view.metadata
        if uid and uid != meta.uid:
            why = f"Precondition failed: UID in precondition: {uid}, UID in object meta: {meta.uid}"
            raise bodies.conflict(resource.label, meta.name, why)
        if resource_version and resource_version != meta.resource_version:
            why = "the object has been modified; please apply your changes to the latest version and try again"
            raise bodies.conflict(resource.label, meta.name, why)

    def _delete_namespace(self, old: Revision) -> Revision:
        """Delete everything in a namespace; it goes itself with the last of its objects."""
        if not old.view.metadata.deletion_timestamp:
            body = {
                **old.body,
                "metadata": _marked_deleted(old.body["metadata"], 0),
                "status": {"phase": "Terminating"},
            }
            self.store.put(self.collection(NAMESPACES), self._checked(NAMESPACES, old.key, body))
        for resource in _STORED_NAMESPACED:
            for key in [key for key in self.collection(resource).revisions if key.namespace == old.key.name]:
                self.delete(resource, key, DeleteOptions())
        self._finish_namespace(old.key.name)
        return old

    def _finish_namespace(self, name: str) -> None:
        namespace = self.collection(NAMESPACES).revisions.get(Key("", name))
        if namespace is None or not namespace.view.metadata.deletion_timestamp:
            return
        if any(key.namespace == name for one in _STORED_NAMESPACED for key in self.collection(one).revisions):
            return
        self._remove(NAMESPACES, namespace.key)


_STORED_NAMESPACED = tuple(resource for resource in RESOURCES if resource.is_namespaced and resource.wire is None)


def _stored_version(resource: ResourceType) -> str:
    return resource.api_version if resource.wire is None else "v1"


def _generated_name(base: str) -> str:
    if not base:
        return ""
    suffix = "".join(random.choices(_NAME_SUFFIX_LETTERS, k=_NAME_SUFFIX_LENGTH))
    return base[:_LONGEST_GENERATED_BASE] + suffix


def _without(metadata: Body, fields: tuple[str, ...]) -> Body:
    return {key: value for key, value in metadata.items() if key not in fields}


def _kept_metadata(old: Body, new: Body) -> Body:
    """Return the metadata of an update: what the server owns from `old`, the rest from `new`."""
    owned = {field: old[field] for field in _FIXED_METADATA if field in old}
    free = _without(new, (*_FIXED_METADATA, *_UNSTORED_METADATA))
    return {**free, **owned, "resourceVersion": old["resourceVersion"]}


def _marked_deleted(metadata: Body, grace_s: int) -> Body:
    return {
        **metadata,
        "deletionTimestamp": timestamp(time.time() + min(grace_s, _LONGEST_GRACE_S)),
        "deletionGracePeriodSeconds": grace_s,
    }


async def follow(
    registry: Registry,
    resource: ResourceType,
    look: Callable[[Key], None],
    known: Callable[[], Iterable[Key]] = lambda: (),
) -> None:
    """Call `look` for every object, then for each that changes; after a gap in the history for all and the `known`.

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
