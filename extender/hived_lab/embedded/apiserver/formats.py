"""Writing answers: objects, lists, tables and the lines of a watch, in the format that the request accepts."""

import base64
import binascii
from collections.abc import Iterable

import msgspec

from hived_lab.embedded.apiserver import statuses, tables
from hived_lab.embedded.apiserver.bodies import Body, encode
from hived_lab.embedded.apiserver.requests import Request
from hived_lab.embedded.apiserver.resources import ResourceType
from hived_lab.embedded.apiserver.store import Change, ChangeType, Key, Revision, watch_frame

_INITIAL_EVENTS_END = {"k8s.io/initial-events-end": "true"}


class _ContinueToken(msgspec.Struct):
    version: int
    namespace: str
    name: str


def continue_token(version: int, last: Key) -> str:
    """Return where the next page of a list begins: after `last`, at the same version."""
    token = msgspec.json.encode(_ContinueToken(version, *last))
    return base64.urlsafe_b64encode(token).decode()


def read_continue_token(text: str) -> tuple[int, Key]:
    """Return what `continue_token` wrote; ApiError (400) if it did not write `text`."""
    try:
        token = msgspec.json.decode(base64.urlsafe_b64decode(text.encode()), type=_ContinueToken)
    except (binascii.Error, ValueError, msgspec.MsgspecError) as error:
        raise statuses.bad_request("continue key is not valid") from error
    return token.version, Key(token.namespace, token.name)


class Format:
    """How one request wants its answer: as objects (in the resource's own form on the wire) or as tables."""

    def __init__(self, resource: ResourceType, request: Request) -> None:
        self._resource = resource
        self._is_table = request.wants_table()
        self._include = request.parameters.text("includeObject") or "Metadata"
        self._has_sent_columns = False

    def one(self, revision: Revision) -> bytes:
        """Return a single object."""
        if self._is_table:
            return encode(self._table([revision], {"resourceVersion": str(revision.version)}))
        return self._json(revision)

    def listed(self, revisions: list[Revision], metadata: Body) -> bytes:
        """Return a list with the `metadata` given; cost O(bytes), objects are not encoded again."""
        if self._is_table:
            return encode(self._table(revisions, metadata))
        head = {"kind": f"{self._resource.kind}List", "apiVersion": self._resource.api_version, "metadata": metadata}
        items = b",".join(self._json(revision) for revision in revisions)
        return encode(head)[:-1] + b',"items":[' + items + b"]}"

    def initial(self, revisions: Iterable[Revision]) -> bytes:
        """Return the lines by which a watch tells what exists already."""
        return b"".join(watch_frame("ADDED", self._watched(revision)) for revision in revisions)

    def changed(self, change: Change, seen_as: ChangeType) -> bytes:
        """Return the line by which a watch tells a change."""
        if self._is_table or self._resource.wire:
            return watch_frame(seen_as.value, self._watched(change.after))
        return change.frame(seen_as)

    def bookmark(self, version: int, ends_initial_list: bool) -> bytes:
        """Return the line that tells how far a watch has come."""
        metadata: Body = {"resourceVersion": str(version)}
        if ends_initial_list:
            metadata["annotations"] = _INITIAL_EVENTS_END
        bare = {"kind": self._resource.kind, "apiVersion": self._resource.api_version, "metadata": metadata}
        return watch_frame("BOOKMARK", encode(self._table([], metadata) if self._is_table else bare))

    def _watched(self, revision: Revision) -> bytes:
        if not self._is_table:
            return self._json(revision)
        row = self._table([revision], {"resourceVersion": str(revision.version)})
        if self._has_sent_columns:
            row["columnDefinitions"] = None
        self._has_sent_columns = True
        return encode(row)

    def _json(self, revision: Revision) -> bytes:
        wire = self._resource.wire
        return encode(wire.to_wire(revision.body)) if wire else revision.json

    def _table(self, revisions: Iterable[Revision], metadata: Body) -> Body:
        rows = ((revision.view, revision.body) for revision in revisions)
        return tables.table(self._resource.printer, rows, self._include, metadata)
