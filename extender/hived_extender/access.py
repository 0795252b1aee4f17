"""Who may call what: one gate, asked by the ASGI shim before it reads a body and by Flask before it looks for a route.

- Health checks are open to all.
- The verbs belong to kube-scheduler, which can show a client certificate and nothing else. Its name is compared with a
  list: no call, so that scheduling goes on while the API server does not.
- Everything else, paths that do not exist included, is for users of the cluster: a bearer token (TokenReview) or a
  client certificate says who calls, a SubjectAccessReview whether the path and the method are allowed, as in
  kube-apiserver. Verdicts are remembered for seconds; without a verdict nobody comes in.

Tokens are kept as keyed digests only and appear in no message.
"""

import hashlib
import logging
import math
import secrets
import ssl
import threading
import time
from collections import OrderedDict
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

import msgspec

from hived_extender.kube import KubeError
from hived_extender.routes import HEALTH_PATH, READINESS_PATH, Answer
from hived_extender.tls import ServerTls
from hived_extender.wire import FILTER_PATH, encode

log = logging.getLogger(__name__)

DEFAULT_VERB_CALLERS = ("system:kube-scheduler", "hived-kube-scheduler")
"""kube-scheduler's name in clusters made by kubeadm, and the one that `hived certificates` gives it."""

CALLER = "hived.caller"
"""The key of WSGI environments under which a server that has verified a client certificate passes its `Identity`. No
header can set it: those become HTTP_*."""

VERB_PREFIX = FILTER_PATH.rpartition("/")[0] + "/"
OPEN_PATHS = frozenset({HEALTH_PATH, HEALTH_PATH + "/", READINESS_PATH, READINESS_PATH + "/"})

TOKEN_REVIEWS = "/apis/authentication.k8s.io/v1/tokenreviews"
ACCESS_REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"

REMEMBER_GRANTED_S = 10.0
REMEMBER_REFUSED_S = 2.0
REMEMBERED_COUNT = 4096
TOKEN_LIMIT = 16 * 1024
"""Bytes. Longer ones are no tokens of Kubernetes, which are some 1 KB."""

AUTHENTICATED = "system:authenticated"
"""The group that Kubernetes adds to everybody whom it knows."""

K = TypeVar("K")
V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class Identity:
    """A user as Kubernetes names them. A certificate ends at `expires_at` (seconds since 1970), also on connections
    that were made before.
    """

    name: str
    groups: tuple[str, ...] = ()
    uid: str = ""
    extra: tuple[tuple[str, tuple[str, ...]], ...] = ()
    expires_at: float = math.inf


@dataclass(frozen=True, slots=True)
class Call:
    """What is known of a request before its body: `certificate` tells whose verified client certificate came with the
    connection, `authorization` is the header.
    """

    method: str
    path: str
    certificate: Identity | None = None
    authorization: str | None = field(default=None, repr=False)

    @property
    def place(self) -> str:
        """The path as Flask reads it, which takes many slashes at its beginning for one."""
        return "/" + self.path.lstrip("/")


@dataclass(frozen=True, slots=True)
class Verdict:
    """What to answer instead of the path's own answer; None lets the call in."""

    refusal: Answer | None = None


GRANTED = Verdict()


class Creator(Protocol):
    """The part of `KubeClient` that is needed here."""

    def create(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Create an object and return it as answered. Raises KubeError."""


def identity_of(certificate: Mapping[str, Any]) -> Identity | None:
    """Whose certificate this is, `certificate` being what `getpeercert` returns: its common name is the user, its
    organisations are the groups, as in kube-apiserver. None without exactly one common name.
    """
    subject = [pair for part in certificate.get("subject", ()) for pair in part]
    names = [value for key, value in subject if key == "commonName"]
    if len(names) != 1 or not names[0]:
        return None
    groups = tuple(value for key, value in subject if key == "organizationName")
    expires_at = float(ssl.cert_time_to_seconds(certificate["notAfter"]))
    return Identity(names[0], (*groups, AUTHENTICATED), expires_at=expires_at)


class Gate:
    """Decides about every call. Without arguments it lets everything in."""

    def __init__(self, verb_callers: Collection[str] | None = None, reviews: "Reviews | None" = None) -> None:
        """`verb_callers` are the names in certificates that may call the verbs, None for anybody; without `reviews`
        the other paths are open.
        """
        self._verb_callers = None if verb_callers is None else frozenset(verb_callers)
        self._reviews = reviews

    def quick(self, call: Call) -> Verdict | None:
        """The verdict if it can be given at once; None if the API server has to be asked."""
        path = call.place
        if path.startswith(VERB_PREFIX):
            return GRANTED if self._verb_callers is None else self._verdict_on_verb(call.certificate)
        if self._reviews is None or path in OPEN_PATHS:
            return GRANTED
        return self._reviews.remembered(call)

    def decide(self, call: Call) -> Verdict:
        """The verdict, which may take calls to the API server: never on the event loop, never under a lock."""
        verdict = self.quick(call)
        if verdict is None and self._reviews is not None:
            verdict = self._reviews.ask(call)
        return verdict or GRANTED

    def _verdict_on_verb(self, caller: Identity | None) -> Verdict:
        caller = _unexpired(caller)
        if caller is None:
            return _unauthenticated(
                "only kube-scheduler may call this, with a client certificate; see tlsConfig of its extender",
                'Certificate realm="hived"',
            )
        if caller.name not in (self._verb_callers or ()):
            return _refused(403, f"{caller.name} may not call this: it is none of the allowed client names")
        return GRANTED


@dataclass(frozen=True, slots=True)
class Security:
    """How the extender is to be protected; by default not at all.

    Attributes
    ----------
    tls : certificate and key; with a CA for clients the verbs are for holders of a client certificate
    verb_callers : the names in their certificates
    has_reviews : whether the other paths are for those to whom the API server allows them
    """

    tls: ServerTls | None = None
    verb_callers: Collection[str] = DEFAULT_VERB_CALLERS
    has_reviews: bool = False

    def gate(self, kube: Creator) -> Gate:
        """The gate for this; `kube` asks for reviews."""
        is_mutual = self.tls is not None and self.tls.verifies_clients
        return Gate(self.verb_callers if is_mutual else None, Reviews(kube) if self.has_reviews else None)


class Reviews:
    """Asks the API server who somebody is and what they may do, and remembers the answers for a short while."""

    def __init__(self, kube: Creator) -> None:
        self._kube = kube
        self._key = secrets.token_bytes(32)
        self._users: _Memory[bytes, Identity | None] = _Memory()
        self._grants: _Memory[tuple[Identity, str, str], bool] = _Memory()
        self._is_failing = False

    def remembered(self, call: Call) -> Verdict | None:
        """The verdict if it follows from the call alone or from answers of a moment ago; else None."""
        user = _unexpired(call.certificate)
        if user is None:
            token = _bearer_token(call.authorization)
            if token is None:
                return _unauthenticated("expected a client certificate or the header 'Authorization: Bearer TOKEN'")
            kept = self._users.find(self._digest(token))
            if kept is None:
                return None
            if kept.value is None:
                return _INVALID_TOKEN
            user = kept.value
        granted = self._grants.find((user, call.method, call.place))
        if granted is None:
            return None
        return GRANTED if granted.value else _forbidden(user, call)

    def ask(self, call: Call) -> Verdict:
        """The verdict, by asking what is not remembered. A review that fails refuses with 503."""
        try:
            verdict = self._ask(call)
        except (KubeError, msgspec.ValidationError) as error:
            why = _reason(error)
            if not self._is_failing:
                log.warning("access cannot be checked", extra={"fields": {"error": why}})
            self._is_failing = True
            return _refused(503, f"cannot check who may do this: {why}; try again")
        self._is_failing = False
        return verdict

    def _ask(self, call: Call) -> Verdict:
        user = _unexpired(call.certificate)
        if user is None:
            token = _bearer_token(call.authorization)
            user = None if token is None else self._user_of(token)
            if user is None:
                return _INVALID_TOKEN
        key = (user, call.method, call.place)
        granted = self._grants.find(key)
        is_allowed = self._is_allowed(*key) if granted is None else granted.value
        if granted is None:
            self._grants.keep(key, is_allowed, REMEMBER_GRANTED_S if is_allowed else REMEMBER_REFUSED_S)
        return GRANTED if is_allowed else _forbidden(user, call)

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

    def _is_allowed(self, user: Identity, method: str, path: str) -> bool:
        spec: dict[str, Any] = {
            "user": user.name,
            "groups": user.groups,
            "uid": user.uid,
            "extra": dict(user.extra),
            "nonResourceAttributes": {"path": path, "verb": method.lower()},
        }
        review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec}
        status = msgspec.convert(self._kube.create(ACCESS_REVIEWS, review), _AccessReview).status
        return status.allowed and not status.denied

    def _digest(self, token: str) -> bytes:
        return hashlib.blake2b(token.encode("utf-8", "surrogateescape"), key=self._key, digest_size=32).digest()


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


@dataclass(frozen=True, slots=True)
class _Kept(Generic[V]):
    value: V
    until: float


class _Memory(Generic[K, V]):
    """A bounded table whose entries end; the oldest make room. For any thread."""

    def __init__(self) -> None:
        self._kept: OrderedDict[K, _Kept[V]] = OrderedDict()
        self._lock = threading.Lock()

    def find(self, key: K) -> _Kept[V] | None:
        kept = self._kept.get(key)
        return kept if kept is not None and time.monotonic() < kept.until else None

    def keep(self, key: K, value: V, seconds: float) -> None:
        with self._lock:
            self._kept.pop(key, None)
            self._kept[key] = _Kept(value, time.monotonic() + seconds)
            if len(self._kept) > REMEMBERED_COUNT:
                self._kept.popitem(last=False)


def _unexpired(certificate: Identity | None) -> Identity | None:
    return certificate if certificate is not None and time.time() < certificate.expires_at else None


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


def _refused(status: int, message: str, *headers: tuple[str, str]) -> Verdict:
    return Verdict(Answer(encode(message), status, headers=headers))


def _unauthenticated(message: str, challenge: str = 'Bearer realm="hived"') -> Verdict:
    return _refused(401, f"who is calling? {message}", ("WWW-Authenticate", challenge))


_INVALID_TOKEN = _unauthenticated("the token is not valid", 'Bearer realm="hived", error="invalid_token"')


def _forbidden(user: Identity, call: Call) -> Verdict:
    what = f"{call.method.lower()!r} on the nonResourceURL {call.place}"
    return _refused(403, f"{user.name} may not do this: no role of theirs allows {what}")
