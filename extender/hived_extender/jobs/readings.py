"""The annotations of a pod, read before the lock is taken.

Users who may create pods write these texts, so reading takes little time whatever the text. JSON, which hived and
its tools write, takes microseconds. Other text is read as YAML, for a twentieth of a core at most; what may take longer
than a millisecond, or comes too often, is read by a thread, round-robin over namespaces. Until then the pod is not
read yet. Outcomes are kept. Signed annotations are read at once: they are JSON. An error is a value here: it is
raised by whoever needs the answer.
"""

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from hived.values.errors import UserError
from hived.values.specs import BindInfo, PodSpec
from hived_extender.jobs.annotations import SCHEDULING_SPEC, SPEC_LIMIT, is_quickly_read, read_json_spec, read_spec
from hived_extender.jobs.bind_info import Promise, Proof, Prover, asks_in_own_words, bind_info, peers_of, spec_text
from hived_extender.jobs.wire import PodMetadata

SHARE = 0.05
"""The share of a core that YAML may take: for short texts of each namespace, and again for all long texts together."""

MOST_PENDING = 256
"""Pods of a namespace whose texts wait to be read; a further one is not read until it is asked about again."""

UNPROVEN = UserError("nothing proves that hived bound it: its devices count as used by others")

KEPT_TEXTS = 1024

BURST_S = 0.5
MOST_NAMESPACES = 4096

T = TypeVar("T")


class Reading(msgspec.Struct, frozen=True):
    """The annotations of one pod.

    `spec` is the request in our own annotation, with the group's name as written, and `text` its source; `is_own` is
    False where other words count. One that `is_pending` has not been read yet. `proof` is there
    if hived has bound the pod: then `place` says where it runs, and `peers` are the places that were decided together.
    """

    spec: PodSpec | UserError
    text: str = ""
    is_own: bool = True
    is_pending: bool = False
    proof: Proof | None = None
    place: BindInfo | UserError = UNPROVEN
    peers: Sequence[Promise] | UserError = ()

    @property
    def is_signed(self) -> bool:
        """Does a digest prove that hived has bound the pod? Where proofs are not asked for, none does."""
        return self.proof is not None and bool(self.proof.digest)


def ready(value: T | UserError) -> T:
    """The value. Raises the error if that is what it is."""
    if isinstance(value, UserError):
        raise UserError(value.message, value.code)
    return value


class Texts:
    """Reads annotations; thread-safe. `on_read` is called, without locks, with pods that could not be read at once."""

    def __init__(self, prover: Prover, on_read: Callable[[Any], None]) -> None:
        self._prover = prover
        self._on_read = on_read
        self._lock = threading.Condition()
        self._pending: OrderedDict[str, OrderedDict[str, _Pending]] = OrderedDict()  # by namespace and uid
        self._count = 0
        self._outcomes: OrderedDict[str, PodSpec | UserError] = OrderedDict()  # of YAML
        self._spent: dict[str, tuple[float, float]] = {}  # seconds that YAML took by then, by namespace
        self._thread: threading.Thread | None = None
        self._is_closing = False

    def read_annotations(self, meta: PodMetadata, *, node: str = "", pod: Any = None, payer: str = "") -> Reading:
        """The annotations of a pod on `node`; `on_read` gets `pod` if that cannot be made out at once.

        `payer` is whose time it takes to read YAML, "" for the pod's namespace.

        Cost: microseconds for JSON and for texts that were read lately, up to a millisecond for others.
        """
        annotations: Mapping[str, str] = meta.annotations or {}
        text = annotations.get(SCHEDULING_SPEC, "")
        is_own = asks_in_own_words(annotations)
        proof = self._prover.proof_of(meta.uid, node, meta.created or "", annotations) if node else None
        if proof is not None:
            spec = self._spec(text) or self._read_now(text)
            return Reading(spec, text, is_own, proof=proof, place=_place(meta, node), peers=_peers(annotations))
        if node:
            return Reading(UNPROVEN, text, is_own)
        found = self._spec(text) or self._spec_in_turn(meta, text, pod, payer or meta.namespace)
        return Reading(_NOT_YET, text, is_own, is_pending=True) if found is None else Reading(found, text, is_own)

    def close(self) -> None:
        """Read nothing later any more."""
        with self._lock:
            self._is_closing = True
            self._lock.notify_all()
        if self._thread is not None:
            self._thread.join()

    def _spec(self, text: str) -> PodSpec | UserError | None:
        """The spec or the error in a text, None if reading it would take longer than microseconds."""
        try:
            found = read_json_spec(text)
        except UserError as error:
            return error
        if found is not None:
            return found
        with self._lock:
            if text in self._outcomes:
                self._outcomes.move_to_end(text)
            return self._outcomes.get(text)

    def _read_now(self, text: str) -> PodSpec | UserError:
        try:
            outcome: PodSpec | UserError = read_spec(text)
        except UserError as error:
            outcome = error
        if len(text) <= SPEC_LIMIT:
            with self._lock:
                self._outcomes[text] = outcome
                if len(self._outcomes) > KEPT_TEXTS:
                    self._outcomes.popitem(last=False)
        return outcome

    def _spec_in_turn(self, meta: PodMetadata, text: str, pod: Any, payer: str) -> PodSpec | UserError | None:
        """Read YAML now if that is quick, and others of the namespace did not have much of it; else later: None."""
        if is_quickly_read(text) and self._may_read(payer):
            began = time.perf_counter()
            outcome = self._read_now(text)
            with self._lock:
                spent_s, since = self._spent.get(payer, (0.0, began))
                self._spent[payer] = spent_s + time.perf_counter() - began, since
            return outcome
        self._read_later(meta, text, pod, payer)
        return None

    def _may_read(self, payer: str) -> bool:
        """May texts of a namespace still be read at once? A share of the time adds up to `BURST_S`."""
        now = time.perf_counter()
        with self._lock:
            spent_s, since = self._spent.pop(payer, (0.0, now))
            spent_s = max(spent_s - (now - since) * SHARE, 0.0)
            self._spent[payer] = spent_s, now
            if len(self._spent) > MOST_NAMESPACES:
                del self._spent[next(iter(self._spent))]  # who has read nothing for the longest
            return spent_s < BURST_S

    def _read_later(self, meta: PodMetadata, text: str, pod: Any, payer: str) -> None:
        with self._lock:
            pods = self._pending.setdefault(payer, OrderedDict())
            known = pods.get(meta.uid)
            if known is not None or len(pods) < MOST_PENDING:
                self._count += known is None
                pods[meta.uid] = _Pending(text, pod or (known and known.pod))
            if self._thread is None and not self._is_closing:
                self._thread = threading.Thread(target=self._run, name="slow texts", daemon=True)
                self._thread.start()
            self._lock.notify_all()

    def _run(self) -> None:
        while (pending := self._next()) is not None:
            began = time.perf_counter()
            self._read_now(pending.text)
            if pending.pod is not None:
                self._on_read(pending.pod)
            pause_s = (time.perf_counter() - began) * (1 / SHARE - 1)
            with self._lock:
                self._lock.wait_for(lambda: self._is_closing, pause_s)

    def _next(self) -> "_Pending | None":
        """The first pod of the namespace whose turn it is, once there is one; None at the end."""
        with self._lock:
            self._lock.wait_for(lambda: self._is_closing or self._count > 0)
            if self._is_closing:
                return None
            namespace, pods = self._pending.popitem(last=False)
            _, pending = pods.popitem(last=False)
            self._count -= 1
            if pods:
                self._pending[namespace] = pods  # behind the others
            return pending


class _Pending(msgspec.Struct, frozen=True):
    """A text to be read, of this pod, None if only a question was about it."""

    text: str
    pod: Any


_NOT_YET = UserError(f"Pod annotation {SCHEDULING_SPEC} is not read yet: its YAML is long, and has to wait its turn")


def as_asked(reading: Reading) -> str:
    """The text to be kept with a pod that is bound: its own if that is JSON, else the same in JSON."""
    if isinstance(reading.spec, UserError) or read_json_spec(reading.text) is not None:
        return reading.text
    return spec_text(reading.spec)


def _place(meta: PodMetadata, node: str) -> BindInfo | UserError:
    label = f"{meta.uid}({meta.namespace}/{meta.name})"
    try:
        info = bind_info(meta.annotations or {}, label)
    except UserError as error:
        return error
    return info if info.node == node else UserError(f"[{label}]: it runs on {node}, but was placed on {info.node}")


def _peers(annotations: Mapping[str, str]) -> list[Promise] | UserError:
    try:
        return peers_of(annotations)
    except UserError as error:
        return error
