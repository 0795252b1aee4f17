"""Rights of callers: one gate, asked by the ASGI shim before it reads a body and by Flask before it looks for a route.

- Health checks are open to all.
- The verbs belong to kube-scheduler, which can show a client certificate and nothing else. Its name is compared with a
  list: no call, so that scheduling goes on while the API server does not.
- Everything else, paths that do not exist included, is for users of the cluster: a bearer token (TokenReview) or a
  client certificate names the caller. A SubjectAccessReview says whether the path and the method are allowed, as in
  kube-apiserver. Verdicts are remembered for seconds; without a verdict nobody comes in.
"""

from collections.abc import Collection, Mapping

import msgspec

from hived_extender.api.paths import FILTER_PATH, HEALTH_PATH, READINESS_PATH
from hived_extender.http.callers import GRANTED, Call, Verdict, refused, unauthenticated
from hived_extender.http.identities import Identity, unexpired
from hived_extender.http.reviews import Creator, Reviews
from hived_extender.http.tls import ServerTls

DEFAULT_VERB_CALLERS = ("system:kube-scheduler", "hived-kube-scheduler")
"""kube-scheduler's name in clusters made by kubeadm, and the one that `hived certificates` gives it."""

VERB_PREFIX = FILTER_PATH.rpartition("/")[0] + "/"
OPEN_PATHS = frozenset({HEALTH_PATH, HEALTH_PATH + "/", READINESS_PATH, READINESS_PATH + "/"})


class Gate:
    """Decides about every call. Without arguments it lets everything in."""

    def __init__(self, verb_callers: Collection[str] | None = None, reviews: Reviews | None = None) -> None:
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
        if verdict is None:
            assert self._reviews is not None  # else it would have been quick
            verdict = self._reviews.ask(call)
        return verdict

    def is_open(self, path: str) -> bool:
        """Is nobody asked who calls a path, though it is no health check?"""
        if path.startswith(VERB_PREFIX):
            return self._verb_callers is None
        return self._reviews is None and path not in OPEN_PATHS

    @property
    def knows_callers(self) -> bool:
        """Whether the API server is asked for the caller's identity."""
        return self._reviews is not None

    def may_do(self, caller: Identity, resource: Mapping[str, str]) -> bool:
        """May a caller do this to an object (`resourceAttributes` of a SubjectAccessReview)? Raises KubeError."""
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
    """How the extender is to be protected; by default not at all.

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
