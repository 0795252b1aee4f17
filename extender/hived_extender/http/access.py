"""Access: one gate, asked by the ASGI shim before it reads a body and by Flask before it looks for a route.

- Health checks are open to all.
- The verbs belong to kube-scheduler, which can show a client certificate and nothing else. Its name is compared with a
  list, without a call, so that scheduling goes on while the API server does not (rule 34.1).
- Everything else, paths that do not exist included, is for users of the cluster: a bearer token (TokenReview) or a
  client certificate names the caller. A SubjectAccessReview says whether the path and the method are allowed, as in
  kube-apiserver. Answers are remembered for seconds; without an answer access is denied (rule 34.2). Tokens are kept
  as keyed digests only and appear in no message.
- Where callers are not known, pages of other sites may not use a browser to call the service. A page may post to any
  address that its browser reaches, and says its own site by `Origin`. By a name of its own that changes its address
  (DNS rebinding) it may read as well: the request's `Host` is that name then. kube-scheduler and command lines send no
  `Origin`, and name the service as clusters do.
"""

import hashlib
import logging
import os
import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import Any, Generic, Protocol, TypeVar
from urllib.parse import urlsplit

import msgspec

from hived_extender.api.paths import FILTER_PATH, HEALTH_PATH, READINESS_PATH
from hived_extender.http.answers import Answer, Identity, unexpired
from hived_extender.http.tls import ServerTls
from hived_extender.jobs.wire import encode
from hived_extender.kube.client import KubeError

log = logging.getLogger(__name__)

CALLER = "hived.caller"
"""The key of WSGI environments under which a server that has verified a client certificate passes its `Identity`. No
header can set it: those become HTTP_*."""


class Call(msgspec.Struct, frozen=True):
    """A request before its body: `certificate` is the identity in the connection's verified client certificate,
    `authorization` is the header.
    """

    method: str
    path: str
    certificate: Identity | None = None
    authorization: str | None = None

    def __repr__(self) -> str:
        return f"Call({self.method!r}, {self.path!r}, {self.certificate!r})"  # secrets stay out of logs

    @property
    def place(self) -> str:
        """The path as Flask reads it, which takes many slashes at its beginning for one."""
        return "/" + self.path.lstrip("/")


@dataclass(frozen=True, slots=True)
class Verdict:
    """The answer instead of the path's own; None lets the call in, of `caller` if known."""

    refusal: Answer | None = None
    caller: Identity | None = field(default=None, compare=False)


GRANTED = Verdict()


def refused(status: int, message: str, *headers: tuple[str, str]) -> Verdict:
    """A JSON string with this status."""
    return Verdict(Answer(encode(message), status, headers=headers))


def unauthenticated(message: str, challenge: str = 'Bearer realm="hived"') -> Verdict:
    """The caller has no valid credentials."""
    return refused(401, f"who is calling? {message}", ("WWW-Authenticate", challenge))


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
        self._users: Memory[bytes, Identity | None] = Memory()
        self._grants: Memory[tuple[Identity, bytes], bool] = Memory()
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
        """True if a user may do this (`resourceAttributes` of a SubjectAccessReview). Raises KubeError."""
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
        """A key of bounded size: paths can be of any length."""
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


class Memory(Generic[K, V]):
    """A bounded table whose entries end; the oldest make room. For any thread."""

    def __init__(self) -> None:
        self._kept: OrderedDict[K, _Remembered[V]] = OrderedDict()
        self._lock = threading.Lock()

    def find(self, key: K) -> _Remembered[V] | None:
        """The value of a key; None if none is kept, or its time is over."""
        kept = self._kept.get(key)
        return kept if kept is not None and time.monotonic() < kept.until else None

    def keep(self, key: K, value: V, seconds: float) -> None:
        """Keep a value for so long."""
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
    """Return why a review failed, in our words: an API server or a proxy may quote the token in its own."""
    if not isinstance(error, KubeError):
        return "the API server's answer is no review"
    if error.status == 0:
        return "the API server gave no answer"
    hint = "; hived's own role needs 'create' on tokenreviews and subjectaccessreviews" if error.status == 403 else ""
    return f"the API server answered {error.status} {error.reason}{hint}"


_INVALID_TOKEN = unauthenticated("the token is not valid", 'Bearer realm="hived", error="invalid_token"')


ROLES = "ask the administrator for one: hived-viewer to look and to plan, hived-admin to change"


def _forbidden(user: Identity, call: Call) -> Verdict:
    what = f"{call.method.lower()!r} on the nonResourceURL {call.place}"
    return refused(403, f"{user.name} may not do this: no role of theirs allows {what}; {ROLES}")


ALLOWED_HOSTS = "ALLOWED_HOSTS"
"""Environment variable with further names of the service, with commas between them."""

OF_CLUSTERS = (".svc", ".local", ".localhost", ".internal")
"""Ends of names that no public name server has; `.svc.` may stand within a name too."""

SAFE = frozenset({"GET", "HEAD", "OPTIONS"})

Headers = Iterable[tuple[bytes, bytes]]


def browser_refusal(method: str, headers: Headers, environ: Mapping[str, str] = os.environ) -> str:
    """Return why an open service does not answer a call, "" if it does. Names of `headers` are in small letters."""
    host = origin = b""
    for key, value in headers:
        if key == b"host":
            host = value
        elif key == b"origin":
            origin = value
    if origin and method not in SAFE and urlsplit(origin).netloc.lower() != host.lower():
        return "a page of another site may not call this: its Origin is not this host"
    name = _name_of(host)
    if not name or _is_own(name) or name in environ.get(ALLOWED_HOSTS, "").lower().split(","):
        return ""
    return f"host {name[:60]!r} is no name of this service: add it to the environment variable {ALLOWED_HOSTS}"


def _name_of(host: bytes) -> str:
    try:
        return (urlsplit(b"//" + host).hostname or b"").decode("ascii").lower().rstrip(".")
    except ValueError:
        return "?."


def _is_own(name: str) -> bool:
    """True for an address, or a name that only this machine or the cluster can resolve."""
    if "." not in name or name.endswith(OF_CLUSTERS) or ".svc." in name:
        return True
    try:
        ip_address(name)
    except ValueError:
        return False
    return True


DEFAULT_VERB_CALLERS = ("system:kube-scheduler", "hived-kube-scheduler")
"""kube-scheduler's name in clusters made by kubeadm, and the one that `hived certificates` gives it."""

VERB_PREFIX = FILTER_PATH.rpartition("/")[0] + "/"
OPEN_PATHS = frozenset({HEALTH_PATH, HEALTH_PATH + "/", READINESS_PATH, READINESS_PATH + "/"})


class Gate:
    """Decides about every call. Without arguments it lets everything in."""

    def __init__(self, verb_callers: Collection[str] | None = None, reviews: Reviews | None = None) -> None:
        """`verb_callers` are the names in certificates that may call the verbs, None for any caller; without `reviews`
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
        if verdict is None:
            assert self._reviews is not None  # else it would have been quick
            verdict = self._reviews.ask(call)
        return verdict

    def is_open(self, path: str) -> bool:
        """True if callers of a path are not known, though it is no health check."""
        if path.startswith(VERB_PREFIX):
            return self._verb_callers is None
        return self._reviews is None and path not in OPEN_PATHS

    def bearer_token(self, call: Call) -> str:
        """The token that names the caller of a call, "" where a certificate does, or nothing."""
        by_token = self._reviews is not None and unexpired(call.certificate) is None
        return (_bearer_token(call.authorization) or "") if by_token else ""

    @property
    def knows_callers(self) -> bool:
        """True if the API server is asked for the caller's identity."""
        return self._reviews is not None

    def may_do(self, caller: Identity, resource: Mapping[str, str]) -> bool:
        """True if a caller may do this (`resourceAttributes` of a SubjectAccessReview). Raises KubeError."""
        return self._reviews is not None and self._reviews.may(caller, resource)

    def _verdict_on_verb(self, caller: Identity | None) -> Verdict:
        caller = unexpired(caller)
        if caller is None:
            return unauthenticated(
                "only kube-scheduler may call this, with a client certificate; see tlsConfig of its extender",
                'Certificate realm="hived"',
            )
        if caller.name not in (self._verb_callers or ()):
            return refused(403, f"{caller.name} may not call this: it is none of the allowed client names")
        return GRANTED


class Security(msgspec.Struct, frozen=True):
    """Protection of the extender; none by default.

    Attributes
    ----------
    tls : certificate and key; with a CA for clients the verbs are for holders of a client certificate
    verb_callers : the names in their certificates
    has_reviews : whether the other paths need the API server's permission
    """

    tls: ServerTls | None = None
    verb_callers: Collection[str] = DEFAULT_VERB_CALLERS
    has_reviews: bool = False

    def gate(self, kube: Creator) -> Gate:
        """The gate for this; `kube` asks for reviews."""
        is_mutual = self.tls is not None and self.tls.verifies_clients
        return Gate(self.verb_callers if is_mutual else None, Reviews(kube) if self.has_reviews else None)


GATE = "hived.gate"
"""The name of an application's gate among its extensions."""


class GatedApp(Protocol):
    """A WSGI application that may have a gate among its extensions, as Flask's do."""

    extensions: dict[str, Any]

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any], /) -> Iterable[bytes]:
        """Answer one request."""


def gate_of(app: GatedApp) -> Gate:
    """The gate that an application was made with: the shim uses the same."""
    gate: Gate = app.extensions.get(GATE) or Gate()
    return gate
