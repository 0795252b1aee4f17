"""Stores of configurations: a ConfigMap that all replicas share, or a file of this one."""

import logging
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import msgspec
from msgspec.structs import replace

from hived.values.errors import UserError
from hived_config.document import ConfigError, read_text
from hived_config.loader import Configuration, load, load_text
from hived_config.openpai import inner_text, is_plainly_own
from hived_extender.kube.client import KubeClient, KubeError
from hived_extender.kube.clocks import timestamp
from hived_extender.kube.metrics import Metrics
from hived_extender.kube.watch import Reflector, Resource
from hived_extender.reconfiguration.versions import (
    ALLOW_DOWNGRADE,
    PREFIX,
    TEXT_KEY,
    Stored,
    Version,
    decode,
    encode,
    waiver,
)

log = logging.getLogger(__name__)

POLL_S = 1.0
"""Between two looks at a file."""

JOIN_S = 1.0
UNKNOWN_TRIES = 10
FENCED = PREFIX + "fenced"
UNKNOWN_WAIT_S = 0.5
"""Between tries to find out whether an unanswered write has happened."""


class CommitConflict(UserError):
    """The store has changed since it was read."""


class UnknownCommit(UserError):
    """The API server gave no answer to a write: it may have happened."""


class NoAnswer(UserError):
    """The API server does not answer at the moment; the same call may succeed later."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The content of the store, and the object that holds it."""

    stored: Stored
    object: Mapping[str, Any] = field(default_factory=dict, repr=False)

    @property
    def manager(self) -> str:
        """The program that has written the text last, as the API server knows it."""
        entries = (self.object.get("metadata") or {}).get("managedFields") or []
        writers = [one for one in entries if f"f:{TEXT_KEY}" in ((one.get("fieldsV1") or {}).get("f:data") or {})]
        return str(max(writers, key=lambda one: one.get("time") or "").get("manager", "")) if writers else ""


class Store(Protocol):
    """Keeps the text for people and the versions that were in force."""

    source: str
    """Its name in messages."""
    downgrade_remedy: str
    """The way to allow a text to lock out running guaranteed work, besides a push that says so."""
    certificate_remedy: str
    """The way to do without a demanded certificate."""
    is_shared: bool
    """True if other replicas read the same, so that only the leader writes, and pushes can be stored."""

    def read(self) -> Snapshot:
        """The content of the store now. Raises NoAnswer or UserError."""

    def commit(self, snapshot: Snapshot, stored: Stored) -> Snapshot:
        """Store this in place of `snapshot`, all or nothing. Raises CommitConflict, UnknownCommit or UserError."""

    def fence(self, snapshot: Snapshot) -> None:
        """Make every commit fail that starts from `snapshot` or from an older one, also one on its way.

        Raises CommitConflict if `snapshot` is not the newest one, NoAnswer or UserError.
        """

    def start(self, on_change: Callable[[Snapshot], None]) -> None:
        """Tell of every change from now on, on another thread; also of the content at the beginning."""

    def stop(self) -> None:
        """Tell of nothing any more."""


class ConfigMapStore:
    """A ConfigMap, which events are written about.

    Its resourceVersion makes sure that of two writes at once one wins and the other is told.
    """

    is_shared = True

    def __init__(self, kube: KubeClient, namespace: str, name: str, metrics: Metrics) -> None:
        self.namespace = namespace
        self.name = name
        self.uid = ""
        self.source = f"ConfigMap {namespace}/{name}"
        self.downgrade_remedy = f"annotate the {self.source} with {ALLOW_DOWNGRADE}=true"
        self.certificate_remedy = waiver(self.source)
        self._kube = kube
        self._metrics = metrics
        self._collection = f"/api/v1/namespaces/{namespace}/configmaps"
        self._path = f"{self._collection}/{name}"
        self._reflector: Reflector[dict[str, Any]] | None = None

    def read(self) -> Snapshot:
        """The content of the store now. Raises UserError (503 if the API server does not answer)."""
        try:
            found = self._kube.get(self._path)
        except KubeError as error:
            raise self._refused("read", error) from error
        return self._snapshot(found)

    def create(self, stored: Stored) -> None:
        """Store this, without regard to earlier content. Raises UserError."""
        new = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": self.name, "namespace": self.namespace}}
        try:
            self._kube.create(self._collection, encode(new, stored))
        except KubeError as error:
            if not error.is_conflict:
                raise self._refused("create", error) from error
            self._kube.replace(self._path, encode(new, stored))

    def commit(self, snapshot: Snapshot, stored: Stored) -> Snapshot:
        """Store this in place of `snapshot`, all or nothing."""
        body = encode(snapshot.object, stored)
        try:
            return self._snapshot(self._kube.replace(self._path, body))
        except KubeError as error:
            if error.status == 409:
                raise CommitConflict(f"{self.source} was changed by another client at the same moment", 409) from error
            if error.status == 0 or error.status >= 500:
                return self._find_out(decode(body))
            raise self._refused("change", error) from error

    def _find_out(self, stored: Stored) -> Snapshot:
        """Find out whether an unanswered write has happened: then `stored` is read back."""
        for _ in range(UNKNOWN_TRIES):
            try:
                now = self.read()
            except UserError:
                time.sleep(UNKNOWN_WAIT_S)
                continue
            if now.stored == stored:
                return now
            try:
                self.fence(now)
            except UserError:
                time.sleep(UNKNOWN_WAIT_S)
                continue
            raise CommitConflict(f"the API server did not answer, and {self.source} was not changed; try again", 503)
        raise UnknownCommit(
            f"the API server does not answer: whether {self.source} was changed will be seen when it does; the service "
            "goes by what it says then",
            503,
        )

    def fence(self, snapshot: Snapshot) -> None:
        """Change an annotation, and with it the resourceVersion that commits name."""
        metadata = snapshot.object["metadata"]
        marks = (metadata.get("annotations") or {}) | {FENCED: str(time.time_ns())}
        try:
            self._kube.replace(self._path, {**snapshot.object, "metadata": {**metadata, "annotations": marks}})
        except KubeError as error:
            if error.is_conflict:
                raise CommitConflict(f"{self.source} was changed by another client at the same moment", 409) from error
            raise self._refused("change", error) from error

    def start(self, on_change: Callable[[Snapshot], None]) -> None:
        """Follow the object."""

        def tell(found: dict[str, Any]) -> None:
            try:
                snapshot = self._snapshot(found)
            except UserError as error:
                log.warning("the configuration cannot be read", extra={"fields": {"reason": error.message}})
                return
            on_change(snapshot)

        def gone(found: dict[str, Any]) -> None:
            log.warning("the configuration is deleted, and stays in force", extra={"fields": {"source": self.source}})

        def listed(items: list[dict[str, Any]]) -> None:
            for found in items:
                tell(found)

        resource: Resource[dict[str, Any]] = Resource(
            self._collection, dict, listed, tell, gone, f"metadata.name={self.name}"
        )
        self._reflector = Reflector(self._kube, resource, self._metrics)
        self._reflector.start()

    def stop(self) -> None:
        """Follow it no more."""
        if self._reflector is not None:
            self._reflector.stop()
            self._reflector.join(JOIN_S)

    def _snapshot(self, found: Mapping[str, Any]) -> Snapshot:
        self.uid = (found.get("metadata") or {}).get("uid", "")
        try:
            return Snapshot(decode(found), found)
        except UserError as error:
            raise UserError(f"{self.source}: {error.message}") from error

    def _refused(self, what: str, error: KubeError) -> UserError:
        hint = ""
        if error.status == 403:
            hint = f"; hived's role in {self.namespace} needs get, list, watch and update on this ConfigMap"
        if error.is_not_found:
            hint = (
                f"; create it: kubectl -n {self.namespace} create configmap {self.name} --from-file=hivedscheduler.yaml"
            )
        kind = NoAnswer if error.may_pass and error.status not in {401, 403} else UserError
        return kind(f"cannot {what} {self.source}: {error}{hint}", 503)


def read_configuration(path: Path) -> str:
    """The scheduler's own document in a file, which may be OpenPAI's: that has the passwords of others in it.

    Raises ConfigError if it cannot be read. One that is no sound YAML is returned as it is.
    """
    return _own_document(read_text(path, str(path)), path)


def _own_document(text: str, path: Path) -> str:
    # To compose the YAML of 16,384 nodes takes 0.2 s, and a start asks three times.
    if not is_plainly_own(text):
        with suppress(ConfigError):
            return inner_text(text, str(path))
    return text


class FileStore:
    """A file, which its owner changes; its versions are the ones that this process has seen."""

    is_shared = False
    downgrade_remedy = "restart the service, which takes the file as it is"
    certificate_remedy = ""

    def __init__(self, path: Path) -> None:
        self.source = f"file {path}"
        self._path = path
        self._stored = Stored("")
        self._is_stopping = threading.Event()
        self._thread: threading.Thread | None = None

    def read(self) -> Snapshot:
        """The content of the file now. Raises UserError if it cannot be read."""
        try:
            text = read_configuration(self._path)
        except ConfigError as error:
            raise UserError(str(error)) from error
        return Snapshot(replace(self._stored, text=text))

    def commit(self, snapshot: Snapshot, stored: Stored) -> Snapshot:
        """Remember the configuration in force; the file itself is its owner's."""
        self._stored = stored
        return Snapshot(stored)

    def fence(self, snapshot: Snapshot) -> None:
        """There are no other writers."""

    def start(self, on_change: Callable[[Snapshot], None]) -> None:
        """Look at the file every second."""
        self._thread = threading.Thread(target=self._poll, args=(on_change,), name="configuration file", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Look no more."""
        self._is_stopping.set()
        if self._thread is not None:
            self._thread.join(JOIN_S)

    def _poll(self, on_change: Callable[[Snapshot], None]) -> None:
        found = read = seen = ""
        while True:
            with suppress(ConfigError):  # one that is being replaced, or gone, counts as unchanged
                found = read_text(self._path, str(self._path))
            if found != read:
                read, text = found, _own_document(found, self._path)
                if text != seen:
                    seen = text
                    on_change(Snapshot(replace(self._stored, text=text)))
            if self._is_stopping.wait(POLL_S):
                return


class ConfigMapName(msgspec.Struct, frozen=True):
    """The ConfigMap with the configuration."""

    namespace: str
    name: str


class Origin(msgspec.Struct, frozen=True):
    """The source of the configuration: the one in force at the start, and the store that is followed later."""

    store: Store
    configuration: Configuration
    version: Version


def file_origin(file: Path) -> Origin:
    """A file that its owner changes. Raises UserError if it cannot be used."""
    text = read_configuration(file)  # first: a write in between is taken up as a change
    configuration = load(file)
    return Origin(FileStore(file), configuration, Version(1, timestamp(), "", f"read from {file}", text))


def config_map_origin(kube: KubeClient, namespace: str, name: str, metrics: Metrics | None = None) -> Origin:
    """The configuration in force by the ConfigMap, or the one given at first. Raises UserError if it cannot be used."""
    store = ConfigMapStore(kube, namespace, name, metrics or Metrics())
    stored = store.read().stored
    version = stored.newest or Version(1, timestamp(), "", "found at the first start", stored.text)
    return Origin(store, load_text(version.text, store.source), version)
