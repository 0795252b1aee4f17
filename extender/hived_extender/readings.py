"""What the annotations of a pod say, made out before anybody takes the lock.

Whoever may create pods writes what stands there, so reading takes little time whatever the text. JSON, which hived and
its tools write, takes microseconds. Other text is read as YAML; what may take longer than a millisecond is read by a
thread of its own, a namespace in turn, for a twentieth of a core at most. Until then the pod is not read yet. The
outcome of a text is kept. An error is a value here: it is raised by whoever needs the answer.
"""

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeVar

from hived.errors import UserError
from hived.specs import BindInfo, PodSpec
from hived_extender.annotations import SCHEDULING_SPEC, bind_info, is_quickly_read, read_spec
from hived_extender.gangs.annotations import Promise, asks_in_own_words, peers_of
from hived_extender.proofs import Proof, Prover
from hived_extender.wire import PodMetadata

SHARE = 0.05
"""Of a core, for texts that are slow to read."""

MOST_PENDING = 256
"""Pods of a namespace whose texts wait to be read; one more is not read before somebody asks about it again."""

UNPROVEN = UserError("nothing proves that hived bound it: its devices count as used by others")

KEPT_TEXTS = 1024
KEPT_SLOW_TEXTS = 256

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Reading:
    """What one pod's annotations say.

    `spec` is what they ask for in our own words, with the group's name as written, and `text` what that was read from;
    `is_own` is False where other words count. One that `is_pending` has not been read yet. `proof` is there
    if hived has bound the pod: then `place` says where it runs, and `peers` are the places that were decided together.
    """

    spec: PodSpec | UserError
    text: str = ""
    is_own: bool = True
    is_pending: bool = False
    proof: Proof | None = None
    place: BindInfo | UserError = UNPROVEN
    peers: Sequence[Promise] | UserError = ()


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
        self._outcomes: OrderedDict[str, PodSpec | UserError] = OrderedDict()  # of slow texts
        self._thread: threading.Thread | None = None
        self._is_closing = False

    def read(self, meta: PodMetadata, *, node: str = "", pod: Any = None) -> Reading:
        """What the annotations of a pod on `node` say; `on_read` gets `pod` if that cannot be made out at once.

        Cost: microseconds for JSON and for texts that were read lately, up to a millisecond for others.
        """
        annotations: Mapping[str, str] = meta.annotations or {}
        text = annotations.get(SCHEDULING_SPEC, "")
        is_own = asks_in_own_words(annotations)
        spec = _kept_spec(text) if is_quickly_read(text) else self._slow_spec(meta, text, pod)
        if spec is None:
            return Reading(_NOT_YET, text, is_own, is_pending=True)
        proof = self._prover.proof_of(meta.uid, node, meta.created or "", annotations) if node else None
        if proof is None:
            return Reading(spec, text, is_own)
        return Reading(spec, text, is_own, proof=proof, place=_place(meta, node), peers=_peers(annotations))

    def close(self) -> None:
        """Read nothing later any more."""
        with self._lock:
            self._is_closing = True
            self._lock.notify_all()
        if self._thread is not None:
            self._thread.join()

    def _slow_spec(self, meta: PodMetadata, text: str, pod: Any) -> PodSpec | UserError | None:
        """None if the text is to be read later, in its turn."""
        with self._lock:
            if text in self._outcomes:
                self._outcomes.move_to_end(text)
                return self._outcomes[text]
            pods = self._pending.setdefault(meta.namespace, OrderedDict())
            known = pods.get(meta.uid)
            if known is not None or len(pods) < MOST_PENDING:
                self._count += known is None
                pods[meta.uid] = _Pending(text, pod or (known and known.pod))
            if self._thread is None and not self._is_closing:
                self._thread = threading.Thread(target=self._run, name="slow texts", daemon=True)
                self._thread.start()
            self._lock.notify_all()
        return None

    def _run(self) -> None:
        while (pending := self._next()) is not None:
            began = time.perf_counter()
            outcome = _spec_of(pending.text)
            with self._lock:
                self._outcomes[pending.text] = outcome
                if len(self._outcomes) > KEPT_SLOW_TEXTS:
                    self._outcomes.popitem(last=False)
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


@dataclass(frozen=True, slots=True)
class _Pending:
    """A text to be read, of this pod, None if only a question was about it."""

    text: str
    pod: Any


_NOT_YET = UserError(f"Pod annotation {SCHEDULING_SPEC} is not read yet: its YAML is long, and has to wait its turn")


def _spec_of(text: str) -> PodSpec | UserError:
    try:
        return read_spec(text)
    except UserError as error:
        return error


@lru_cache(maxsize=KEPT_TEXTS)
def _kept_spec(text: str) -> PodSpec | UserError:
    return _spec_of(text)


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
