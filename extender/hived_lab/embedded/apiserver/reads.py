"""Lists and watches: the objects that a request selects, of one version or from a version on."""

from bisect import bisect_right
from collections.abc import Iterable

from hived_lab.embedded.apiserver import statuses
from hived_lab.embedded.apiserver.bodies import Body, encode
from hived_lab.embedded.apiserver.formats import Format, continue_token, read_continue_token
from hived_lab.embedded.apiserver.registry import Registry
from hived_lab.embedded.apiserver.requests import Request, Response, Target
from hived_lab.embedded.apiserver.selectors import parse_fields, parse_labels
from hived_lab.embedded.apiserver.statuses import ApiError, Cause
from hived_lab.embedded.apiserver.store import Collection, Key, Revision, watch_frame
from hived_lab.embedded.apiserver.watching import Filter, Watch

_DEFAULT_WATCH_S = 1800


class Reads:
    """The lists and watches over one registry; for the parameters see `Rest`."""

    def __init__(self, registry: Registry, bookmark_interval_s: float, expired_as_status: bool) -> None:
        self._registry = registry
        self._bookmark_interval_s = bookmark_interval_s
        self._expired_as_status = expired_as_status
        self._is_stopping = False

    def stop(self) -> None:
        """End all watches."""
        self._is_stopping = True
        self._registry.store.wake_all()

    def list(self, request: Request, target: Target) -> Response:
        """Return a list, or a page of it, of one version."""
        written = Format(target.resource, request)
        parameters = request.parameters
        collection = self._registry.collection(target.resource)
        version, after = self._list_version(request, collection)
        accepts = self._filter(request, target)
        revisions = collection.snapshot(version)
        keys = sorted(key for key, revision in revisions.items() if accepts(revision))
        if after is not None:
            keys = keys[bisect_right(keys, after) :]
        limit = parameters.number("limit") or len(keys)
        metadata: Body = {"resourceVersion": str(version)}
        if len(keys) > limit:
            metadata["continue"] = continue_token(version, keys[limit - 1])
            if not parameters.text("labelSelector") and not parameters.text("fieldSelector"):
                metadata["remainingItemCount"] = len(keys) - limit
        return Response(200, written.listed([revisions[key] for key in keys[:limit]], metadata))

    def _list_version(self, request: Request, collection: Collection) -> tuple[int, Key | None]:
        """Return the version that a list shows and the key that the last page ended with."""
        parameters = request.parameters
        if token := parameters.text("continue"):
            version, after = read_continue_token(token)
            self._require_known(collection, version)
            return version, after
        version = request.parameters.number("resourceVersion") or 0
        match = parameters.text("resourceVersionMatch")
        if match not in ("", "Exact", "NotOlderThan") or (match and not parameters.text("resourceVersion")):
            cause = Cause("resourceVersionMatch", f"Forbidden: {match!r} does not fit the other parameters")
            raise statuses.invalid("ListOptions", "", [cause])
        if version > self._registry.store.version or match == "Exact":
            self._require_known(collection, version)
        return (version if match == "Exact" else self._registry.store.version), None

    def _require_known(self, collection: Collection, version: int) -> None:
        if version > self._registry.store.version:
            raise statuses.expired(f"resource version {version} is not of this server: it has been restarted since")
        collection.changes_since(version)

    def _filter(self, request: Request, target: Target) -> Filter:
        strategy, namespace = target.resource.strategy, target.namespace
        labels = parse_labels(request.parameters.text("labelSelector"))
        known = frozenset(strategy.fields(target.resource.view()))
        fields = parse_fields(request.parameters.text("fieldSelector"), known)

        def accepts(revision: Revision) -> bool:
            if namespace is not None and revision.key.namespace != namespace:
                return False
            if labels is not None and not labels(revision.view.metadata.labels):
                return False
            return fields is None or fields(strategy.fields(revision.view))

        return accepts

    def watch(self, request: Request, target: Target) -> Watch:
        """Return a watch, which begins with the objects that exist if the request asks for them."""
        parameters, store = request.parameters, self._registry.store
        written = Format(target.resource, request)
        accepts = self._filter(request, target)
        collection = self._registry.collection(target.resource)
        version = request.parameters.number("resourceVersion") or 0
        is_streaming_list = parameters.flag("sendInitialEvents")
        if is_streaming_list and parameters.text("resourceVersionMatch") != "NotOlderThan":
            cause = Cause("resourceVersionMatch", "Forbidden: sendInitialEvents requires NotOlderThan")
            raise statuses.invalid("ListOptions", "", [cause])
        initial, timeout_s = b"", float(parameters.number("timeoutSeconds") or _DEFAULT_WATCH_S)
        try:
            if version:
                self._require_known(collection, version)
            if is_streaming_list or (not version and not parameters.text("sendInitialEvents")):
                initial = written.initial(self._accepted(collection, accepts))
            if is_streaming_list or not version:
                version = store.version
        except ApiError as gone:
            if self._expired_as_status:
                raise
            initial, timeout_s, version = watch_frame("ERROR", encode(gone.status())), 0.0, store.version
        has_bookmarks = parameters.flag("allowWatchBookmarks") and timeout_s > 0
        return Watch(
            collection=collection,
            version=version,
            current_version=lambda: store.version,
            initial=initial,
            accepts=accepts,
            render=written.changed,
            timeout_s=timeout_s,
            bookmark=written.bookmark if has_bookmarks else None,
            bookmark_interval_s=self._bookmark_interval_s,
            ends_initial_list=is_streaming_list,
            is_stopping=lambda: self._is_stopping,
        )

    def selected(self, request: Request, target: Target) -> Iterable[Revision]:
        """Return the objects of a collection that the selectors of a request choose, in order."""
        return self._accepted(self._registry.collection(target.resource), self._filter(request, target))

    def _accepted(self, collection: Collection, accepts: Filter) -> Iterable[Revision]:
        return [revision for _, revision in sorted(collection.revisions.items()) if accepts(revision)]
