"""Calls without rights: every path, method and kind of credentials that does not count, on a service with TLS and
`--authorize`.

Each is answered 401 or 403, or ends with the handshake. Only health checks are open.
"""

import ssl
from collections.abc import Mapping
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from itertools import product

from hived_deploy.certificates import Authority
from hived_extender.http.access import OPEN_PATHS
from hived_extender.http.routes import ROUTES
from tests.attacks.attack import Outcome, Run
from tests.attacks.hostile_values import Hostile
from tests.attacks.target import Target

METHODS = ("GET", "POST", "PUT", "DELETE", "PATCH", "HEAD", "OPTIONS")
ODD_PATHS = (
    "/v1/nothing", "/v1/extender/filter/", "/v1/extender/../inspect/clusterstatus", "/V1/INSPECT/CLUSTERSTATUS", "//",
    "/healthz/../metrics", "/healthz%2f..%2fmetrics", "//metrics", "/v1//config", "/metrics?x=/healthz", "/%6detrics",
    "/v1/extender", "/healthz;/metrics", "/readyz/x",
)  # fmt: skip
OTHER = "other-path"
NOBODY = "nobody"
TIMEOUT_S = 20.0


def run(run: Run) -> Outcome:
    """All combinations, of which a lower scale draws some."""
    outcome = Outcome()
    users = {NOBODY: {"username": NOBODY}, OTHER: {"username": OTHER, "groups": ["system:masters-not"]}}
    with Target(run, "strangers", is_secured=True, users=users, rights={OTHER: ["get /v1/elsewhere"]}) as target:
        _Strangers(target, outcome).call_all(run)
        if why := target.fault():
            outcome.fault(why)
    return outcome


class _Strangers:
    """Callers by kind, each with a connection that is kept as long as it goes."""

    def __init__(self, target: Target, outcome: Outcome) -> None:
        self._target, self._outcome = target, outcome
        files = target.files
        files.client("foreign", "hived-kube-scheduler", by=Authority.create())
        files.client("unknown", "somebody")
        files.client("old", "hived-kube-scheduler", days=-1)
        self._kinds: dict[str, tuple[str, Mapping[str, str]]] = {
            "no token": ("", {}),
            "a garbage token": ("", {"Authorization": "Bearer garbage"}),
            "an expired token": ("", {"Authorization": "Bearer eyJhbGciOiJSUzI1NiJ9.eyJleHAiOjF9.AAAA"}),
            "a token of nobody": ("", {"Authorization": f"Bearer {NOBODY}"}),
            "a token for another path": ("", {"Authorization": f"Bearer {OTHER}"}),
            "a password": ("", {"Authorization": "Basic YWRtaW46YWRtaW4="}),
            "headers of a proxy": ("", {"X-Remote-User": "admin", "X-Remote-Group": "system:masters"}),
            "a foreign certificate": ("foreign", {}),
            "a certificate of somebody": ("unknown", {}),
            "an expired certificate": ("old", {}),
        }
        self._connections: dict[str, HTTPConnection] = {}

    def call_all(self, run: Run) -> None:
        """Every path with every method as everybody."""
        paths = [*sorted({route.path for route in ROUTES}), *ODD_PATHS]
        calls = list(product(self._kinds, paths, METHODS))
        chosen = Hostile(run.seed).random.sample(calls, run.count(len(calls), least=100))
        for number, (kind, path, method) in enumerate(chosen):
            self._call(kind, path.replace("{name}", "a"), method)
            if number % 500 == 499:
                run.say(f"  {number + 1} of {len(chosen)} calls")
        for connection in self._connections.values():
            connection.close()

    def _call(self, kind: str, path: str, method: str) -> None:
        if path in OPEN_PATHS:
            return
        self._outcome.tried += 1
        client, headers = self._kinds[kind]
        try:
            connection = self._connections.setdefault(kind, self._connected(client))
            connection.request(method, path, b"{}" if method in ("POST", "PUT", "PATCH") else None, dict(headers))
            response = connection.getresponse()
            body = response.read()
        except (OSError, HTTPException) as error:
            self._connections.pop(kind).close()
            self._outcome.refused += 1
            if client not in ("foreign", "old"):
                self._outcome.fault(f"{method} {path} with {kind}: {type(error).__name__} {error}")
            return
        if response.will_close:
            self._connections.pop(kind).close()
        if response.status in (401, 403):
            self._outcome.refused += 1
        elif response.status >= 500:
            self._outcome.fault(f"{method} {path} with {kind}: {response.status} {body[:200]!r}")
        else:
            self._outcome.let_in.append(f"{method} {path} with {kind}: {response.status} {body[:200]!r}")

    def _connected(self, client: str) -> HTTPConnection:
        context: ssl.SSLContext = self._target.files.context(client)
        return HTTPSConnection("127.0.0.1", self._target.port, timeout=TIMEOUT_S, context=context)
