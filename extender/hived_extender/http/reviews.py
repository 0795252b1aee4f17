"""Questions to the API server: the user of a token (TokenReview), and the user's rights (SubjectAccessReview).

Answers are remembered for seconds. Tokens are kept as keyed digests only and appear in no message.
"""

import hashlib
import logging
import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any, Generic, Protocol, TypeVar

import msgspec

from hived_extender.http.callers import Call, Verdict, refused, unauthenticated
from hived_extender.http.identities import Identity, unexpired
from hived_extender.kube.client import KubeError

log = logging.getLogger(__name__)

TOKEN_REVIEWS = "/apis/authentication.k8s.io/v1/tokenreviews"
ACCESS_REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"

REMEMBER_GRANTED_S = 10.0
REMEMBER_REFUSED_S = 2.0
REMEMBERED_COUNT = 4096
TOKEN_LIMIT = 16 * 1024
"""Bytes. Longer ones are no tokens of Kubernetes, which are some 1 KB."""

K = TypeVar("K")
V = TypeVar("V")


class Creator(Protocol):
    """The part of `KubeClient` that is needed here."""

    def create(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Create an object and return it as answered. Raises KubeError."""


class Reviews:
    """Asks the API server for identities and rights, and remembers the answers for a short while."""

    def __init__(self, kube: Creator) -> None:
        self._kube = kube
        self._key = secrets.token_bytes(32)
        self._users: _Memory[bytes, Identity | None] = _Memory()
        self._grants: _Memory[tuple[Identity, bytes], bool] = _Memory()
        self._is_failing = False

    def remembered(self, call: Call) -> Verdict | None:
        """The verdict if it follows from the call alone or from answers of a moment ago; else None."""
        user = unexpired(call.certificate)
        if user is None:
            token = _bearer_token(call.authorization)
            if token is None:
                return unauthenticated("expected a client certificate or the header 'Authorization: Bearer TOKEN'")
            kept = self._users.find(self._digest(token))
            if kept is None:
                return None
            if kept.value is None:
                return _INVALID_TOKEN
            user = kept.value
        granted = self._grants.find(self._grant_key(user, call))
        if granted is None:
            return None
        return Verdict(caller=user) if granted.value else _forbidden(user, call)

    def ask(self, call: Call) -> Verdict:
        """The verdict; asks the API server unless it is remembered. A review that fails refuses with 503."""
        try:
            verdict = self._ask(call)
        except (KubeError, msgspec.ValidationError) as error:
            why = _reason(error)
            if not self._is_failing:
                log.warning("access cannot be checked", extra={"fields": {"error": why}})
            self._is_failing = True
            return refused(503, f"cannot check who may do this: {why}; try again")
        self._is_failing = False
        return verdict

    def _ask(self, call: Call) -> Verdict:
        user = unexpired(call.certificate)
        if user is None:
            token = _bearer_token(call.authorization)
            user = None if token is None else self._user_of(token)
            if user is None:
                return _INVALID_TOKEN
        key = self._grant_key(user, call)
        granted = self._grants.find(key)
        is_allowed = self._is_allowed(user, call) if granted is None else granted.value
        if granted is None:
            self._grants.keep(key, is_allowed, REMEMBER_GRANTED_S if is_allowed else REMEMBER_REFUSED_S)
        return Verdict(caller=user) if is_allowed else _forbidden(user, call)

    def _user_of(self, token: str) -> Identity | None:
        digest = self._digest(token)
        kept = self._users.find(digest)
        if kept is not None:
            return kept.value
        review = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token}}
        status = msgspec.convert(self._kube.create(TOKEN_REVIEWS, review), _TokenReview).status
        user = status.user.identity() if status.authenticated and status.user.username else None
        self._users.keep(digest, user, REMEMBER_GRANTED_S if user else REMEMBER_REFUSED_S)
        return user

    def may(self, user: Identity, resource: Mapping[str, str]) -> bool:
        """May they do this (`resourceAttributes` of a SubjectAccessReview)? Raises KubeError; nothing is remembered."""
        return self._review(user, {"resourceAttributes": dict(resource)})

    def _is_allowed(self, user: Identity, call: Call) -> bool:
        return self._review(user, {"nonResourceAttributes": {"path": call.place, "verb": call.method.lower()}})

    def _review(self, user: Identity, what: Mapping[str, Any]) -> bool:
        spec: dict[str, Any] = {
            "user": user.name,
            "groups": user.groups,
            "uid": user.uid,
            "extra": dict(user.extra),
            **what,
        }
        review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec}
        status = msgspec.convert(self._kube.create(ACCESS_REVIEWS, review), _AccessReview).status
        return status.allowed and not status.denied

    def _grant_key(self, user: Identity, call: Call) -> tuple[Identity, bytes]:
        """Of bounded size: paths can be as long as somebody likes."""
        return user, self._digest(f"{call.method} {call.place}")

    def _digest(self, text: str) -> bytes:
        return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), key=self._key, digest_size=32).digest()


class _User(msgspec.Struct):
    username: str = ""
    uid: str = ""
    groups: list[str] | None = None
    extra: dict[str, list[str]] | None = None

    def identity(self) -> Identity:
        extra = tuple((key, tuple(values)) for key, values in (self.extra or {}).items())
        return Identity(self.username, tuple(self.groups or ()), self.uid, extra)


class _TokenStatus(msgspec.Struct):
    authenticated: bool = False
    user: _User = msgspec.field(default_factory=_User)


class _TokenReview(msgspec.Struct):
    status: _TokenStatus = msgspec.field(default_factory=_TokenStatus)


class _AccessStatus(msgspec.Struct):
    allowed: bool = False
    denied: bool = False


class _AccessReview(msgspec.Struct):
    status: _AccessStatus = msgspec.field(default_factory=_AccessStatus)


class _Remembered(msgspec.Struct, Generic[V], frozen=True):
    value: V
    until: float


class _Memory(Generic[K, V]):
    """A bounded table whose entries end; the oldest make room. For any thread."""

    def __init__(self) -> None:
        self._kept: OrderedDict[K, _Remembered[V]] = OrderedDict()
        self._lock = threading.Lock()

    def find(self, key: K) -> _Remembered[V] | None:
        kept = self._kept.get(key)
        return kept if kept is not None and time.monotonic() < kept.until else None

    def keep(self, key: K, value: V, seconds: float) -> None:
        with self._lock:
            self._kept.pop(key, None)
            self._kept[key] = _Remembered(value, time.monotonic() + seconds)
            if len(self._kept) > REMEMBERED_COUNT:
                self._kept.popitem(last=False)


def _bearer_token(authorization: str | None) -> str | None:
    scheme, _, token = (authorization or "").partition(" ")
    token = token.strip()
    is_token = scheme.lower() == "bearer" and token and len(token) <= TOKEN_LIMIT and token.isascii()
    return token if is_token and token.isprintable() and " " not in token else None


def _reason(error: Exception) -> str:
    """Why a review failed, in our words: an API server or a proxy may quote the token in its own."""
    if not isinstance(error, KubeError):
        return "the API server's answer is no review"
    if error.status == 0:
        return "the API server gave no answer"
    hint = "; hived's own role needs 'create' on tokenreviews and subjectaccessreviews" if error.status == 403 else ""
    return f"the API server answered {error.status} {error.reason}{hint}"


_INVALID_TOKEN = unauthenticated("the token is not valid", 'Bearer realm="hived", error="invalid_token"')


def _forbidden(user: Identity, call: Call) -> Verdict:
    what = f"{call.method.lower()!r} on the nonResourceURL {call.place}"
    return refused(403, f"{user.name} may not do this: no role of theirs allows {what}")
