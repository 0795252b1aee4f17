"""The election of the leader: it holds a Lease (coordination.k8s.io/v1) in the API server.

The leader writes its name and the time into the Lease every `RENEW_INTERVAL_S`. It trusts in the Lease for `TRUST` of
its duration, counted from before the last successful write was sent, and leads no longer than that. The others count
all of its duration from when they last saw the Lease change. So they never begin before the leader has stopped. Each
counts on its own clock, one that no clock adjustment moves; the times in the Lease are for people.

The Lease is not believed where another account may have written it, so that rights on it do not make two leaders. A
leader names the digest of a number that it alone knows, and publishes the number when it releases the Lease. Only then
does another one begin at once. A Lease that was emptied, cut short or rewritten otherwise is respected for all of its
duration, counted anew. Its leader sees that at its next renewal, and takes it back or stops.

All that is exact only as long as processes are not paused. The API server refuses the writes of a leader that wakes up
from a pause, see `binding`.
"""

import hashlib
import logging
import math
import secrets
import threading
from collections.abc import Callable, Mapping
from typing import Any, Protocol
from urllib.parse import quote

import msgspec

from hived_extender.kube.client import KubeError
from hived_extender.kube.clocks import passed_s as now
from hived_extender.kube.clocks import timestamp

log = logging.getLogger(__name__)

DURATION_S = 4
RENEW_INTERVAL_S = 0.5
POLL_INTERVAL_S = 0.15
TRUST = 0.8
SEEN_BEFORE_S = 2 * RENEW_INTERVAL_S
"""For so long the digest of a leader has to stand there: the leader replaces one that another account wrote."""

UNKNOWN_S = 3 * RENEW_INTERVAL_S
"""A newcomer respects a Lease without a holder for so long: a living leader writes it again."""

DIGEST = "hivedscheduler.microsoft.com/release-digest"
RELEASE = "hivedscheduler.microsoft.com/release"
"""Annotations of the Lease: the digest of the leader's number, and the number once the leader releases it."""

LATE = "the Lease was not renewed in time"

SERVER_FAULT = 500


class LeaseApi(Protocol):
    """The calls to the API server; `kube.KubeClient` is one. Everything raises KubeError."""

    def get(self, path: str, item_type: type[Any]) -> Any:
        """Read one object."""

    def create(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Create an object in a collection."""

    def replace(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Replace an object if its version is still the one given."""


class _LeaseSpec(msgspec.Struct, rename="camel"):
    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    acquire_time: str | None = None
    renew_time: str | None = None
    lease_transitions: int | None = None


class _LeaseMetadata(msgspec.Struct, rename="camel"):
    resource_version: str = ""
    annotations: dict[str, str] | None = None


class _Lease(msgspec.Struct):
    metadata: _LeaseMetadata = msgspec.field(default_factory=_LeaseMetadata)
    spec: _LeaseSpec = msgspec.field(default_factory=_LeaseSpec)


class LeaseName(msgspec.Struct, frozen=True):
    """The name of a Lease, and our `identity`, unique among the replicas, also after a restart."""

    namespace: str
    name: str
    identity: str
    duration_s: int = DURATION_S


class Elector:
    """Tries to hold a Lease, on a thread of its own, from `start` to `stop`.

    `on_gained` is called with a function that tells at any time whether that term goes on; `on_standing`, when a term
    ends and whenever the reason changes, with why this replica does not lead. Both are called on the elector's thread
    and must return at once. `may_lead` is asked before each round: a broken replica releases the Lease.
    """

    def __init__(
        self,
        kube: LeaseApi,
        lease: LeaseName,
        on_gained: Callable[[Callable[[], bool]], None],
        on_standing: Callable[[str], None],
        may_lead: Callable[[], bool] = lambda: True,
    ) -> None:
        self._kube = kube
        self._lease = lease
        self._collection = f"/apis/coordination.k8s.io/v1/namespaces/{quote(lease.namespace, safe='')}/leases"
        self._path = f"{self._collection}/{quote(lease.name, safe='')}"
        self._on_gained = on_gained
        self._on_standing = on_standing
        self._may_lead = may_lead
        self._seen = _Lease()
        self._seen_at = -math.inf
        self._exists = False
        self._is_current = False  # is `_seen` what the API server has, as far as we know?
        self._own_version = ""  # of the Lease as we wrote it last
        self._is_unsure = False  # our last write was not answered
        self._number = secrets.token_hex(16)
        self._held: _Held | None = None  # who was last seen to hold the Lease
        self._term: _Term | None = None
        self._standing = ""
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="election", daemon=True)

    def start(self) -> None:
        """Begin to stand for election."""
        self._thread.start()

    def stop(self) -> None:
        """Stand no more, and if this replica leads, let the next one lead at once. Waits for a call under way."""
        self._stop.set()
        if self._thread.ident is not None:
            self._thread.join()
            self._resign("this replica is stopping")

    @property
    def is_alive(self) -> bool:
        """False if the thread has ended by itself; this replica will never lead again then."""
        return self._thread.ident is None or self._thread.is_alive() or self._stop.is_set()

    def _run(self) -> None:
        while not self._stop.is_set():
            if self._may_lead():
                self._stand()
            else:
                self._resign("this replica is broken")
            self._stop.wait(RENEW_INTERVAL_S if self._term is not None else self._until_next_look())

    def _stand(self) -> None:
        """One round: look at the Lease unless we know it, write it if it is ours or free."""
        trusted_until = -math.inf
        try:
            if self._term is None or not self._is_current:
                self._look()
            if self._may_take:
                sent = now()
                self._write()
                trusted_until = sent + TRUST * self._lease.duration_s
                standing = LATE
            else:
                standing = f"{self._holder} leads"
                if self._term is not None:
                    self._term.end()
        except KubeError as error:
            # Written by us after all, although no answer came, or by another replica: the next look tells.
            self._is_current = False
            standing = f"the Lease {self._lease.namespace}/{self._lease.name} is out of reach: {error}"
        self._conclude(trusted_until, standing)

    def _conclude(self, trusted_until: float, standing: str) -> None:
        if self._term is not None and not self._term.holds():
            self._lose(standing)
        if trusted_until > now():
            if self._term is None:
                self._gain(trusted_until)
            else:
                self._term.prolong(trusted_until)
        elif self._term is None and standing != self._standing:
            self._tell(standing)

    def _gain(self, trusted_until: float) -> None:
        self._term = _Term(trusted_until)
        log.info("elected", extra={"fields": {"identity": self._lease.identity}})
        self._on_gained(self._term.holds)

    def _lose(self, standing: str) -> None:
        if self._term is not None:
            self._term.end()
            self._term = None
        self._tell(standing)

    def _resign(self, standing: str) -> None:
        if self._term is not None:
            self._lose(standing)
            self._release()

    def _tell(self, standing: str) -> None:
        self._standing = standing
        log.warning("not leading", extra={"fields": {"identity": self._lease.identity, "reason": standing}})
        self._on_standing(standing)

    def _until_next_look(self) -> float:
        """Seconds; a Lease that runs out before the next look is looked at in that moment."""
        left_s = self._seen_at + self._respected_s - now()
        return left_s if 0 < left_s < POLL_INTERVAL_S else POLL_INTERVAL_S

    @property
    def _holder(self) -> str:
        return self._seen.spec.holder_identity or ""

    @property
    def _is_ours(self) -> bool:
        """True if we hold the Lease by our own write, and not because another account wrote our name."""
        is_known = self._leads or self._is_unsure or self._seen.metadata.resource_version == self._own_version
        return self._holder == self._lease.identity and is_known

    @property
    def _leads(self) -> bool:
        return self._term is not None and self._term.holds()

    @property
    def _may_take(self) -> bool:
        """True if the Lease is ours, or without a holder. One that was emptied during our term is ours."""
        return self._is_ours or (self._leads and not self._holder) or now() >= self._seen_at + self._respected_s

    @property
    def _respected_s(self) -> float:
        """Seconds for which the Lease as last seen is respected after it last changed."""
        if self._holder:
            return max(self._seen.spec.lease_duration_seconds or 0, self._lease.duration_s)
        if not self._seen.metadata.resource_version or self._is_released:
            return 0.0
        return UNKNOWN_S if self._held is None else self._held.duration_s

    @property
    def _is_released(self) -> bool:
        """Has the holder that we knew released the Lease?"""
        number = (self._seen.metadata.annotations or {}).get(RELEASE, "")
        return self._held is not None and self._held.knows(number, self._seen_at)

    def _look(self) -> None:
        try:
            lease: _Lease = self._kube.get(self._path, _Lease)
        except KubeError as error:
            if not error.is_not_found:
                raise
            if self._exists:  # taken away: its holder may not know yet
                self._exists, self._seen_at = False, now()
        else:
            if lease.metadata.resource_version != self._seen.metadata.resource_version:
                self._note(lease)
            self._exists = True
        self._is_current = True

    def _note(self, lease: _Lease) -> None:
        """Remember the Lease, and who holds it by which digest since when."""
        self._seen, self._seen_at = lease, now()
        if self._holder != self._lease.identity:
            self._is_unsure = False
        if not self._holder:
            return
        digest = (lease.metadata.annotations or {}).get(DIGEST, "")
        duration_s = max(lease.spec.lease_duration_seconds or 0, self._lease.duration_s)
        known = self._held
        since = known.since if known is not None and (known.name, known.digest) == (self._holder, digest) else now()
        self._held = _Held(self._holder, digest, since, duration_s)

    def _write(self) -> None:
        moment = timestamp(digits=6)
        spec = self._seen.spec
        transitions = spec.lease_transitions or 0
        self._put(
            {
                "holderIdentity": self._lease.identity,
                "leaseDurationSeconds": self._lease.duration_s,
                "acquireTime": (spec.acquire_time if self._is_ours else None) or moment,
                "renewTime": moment,
                "leaseTransitions": transitions if self._is_ours else transitions + 1,
            },
            {DIGEST: _digest(self._number)},
        )

    def _release(self) -> None:
        """Release the Lease, so that the next leader need not wait until it runs out. Best effort."""
        moment = timestamp(digits=6)
        spec = {"holderIdentity": "", "leaseDurationSeconds": 1, "acquireTime": moment, "renewTime": moment}
        note = {RELEASE: self._number}
        try:
            if not self._is_current:
                self._look()
            if self._exists and self._is_ours:
                self._put(spec | {"leaseTransitions": self._seen.spec.lease_transitions or 0}, note)
                self._number = secrets.token_hex(16)
        except KubeError as error:
            log.warning("the Lease runs out by itself", extra={"fields": {"reason": str(error)}})

    def _put(self, spec: Mapping[str, Any], annotations: Mapping[str, str]) -> None:
        metadata: dict[str, Any] = {"name": self._lease.name, "namespace": self._lease.namespace}
        metadata["annotations"] = annotations
        body = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": spec}
        try:
            if self._exists:
                metadata["resourceVersion"] = self._seen.metadata.resource_version
                stored = self._kube.replace(self._path, body)
            else:
                stored = self._kube.create(self._collection, body)
        except KubeError as error:
            self._is_unsure = error.status == 0 or error.status >= SERVER_FAULT
            raise
        self._note(msgspec.convert(stored, _Lease))
        self._own_version, self._is_unsure = self._seen.metadata.resource_version, False
        self._exists = self._is_current = True


class _Held(msgspec.Struct, frozen=True):
    """A holder, its digest and since when that was seen there, and how long its Lease is to be respected."""

    name: str
    digest: str
    since: float
    duration_s: float

    def knows(self, number: str, at: float) -> bool:
        """True if this is the holder's number, by a digest that stood there long enough to be the holder's."""
        is_old = at - self.since >= SEEN_BEFORE_S
        return is_old and bool(number) and _digest(number) == self.digest


class _Term:
    """A time of leading. It is over for good once it was found to be, as work may have stopped by then."""

    def __init__(self, trusted_until: float) -> None:
        self._trusted_until = trusted_until
        self._is_over = False

    def holds(self) -> bool:
        """True while the term goes on; from any thread."""
        if now() >= self._trusted_until:
            self._is_over = True
        return not self._is_over

    def prolong(self, trusted_until: float) -> None:
        """The Lease was renewed; too late for a term that is over."""
        self._trusted_until = trusted_until

    def end(self) -> None:
        """The Lease is not ours any more, or will not be in a moment."""
        self._is_over = True


def _digest(number: str) -> str:
    return hashlib.sha256(number.encode()).hexdigest()
