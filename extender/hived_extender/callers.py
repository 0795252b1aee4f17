"""Who calls what, and what they are told if they may not: the values that the gate and the reviews share."""

import math
import ssl
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from hived_extender.routes import Answer
from hived_extender.wire import encode

CALLER = "hived.caller"
"""The key of WSGI environments under which a server that has verified a client certificate passes its `Identity`. No
header can set it: those become HTTP_*."""

AUTHENTICATED = "system:authenticated"
"""The group that Kubernetes adds to everybody whom it knows."""


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


def unexpired(certificate: Identity | None) -> Identity | None:
    """The identity if its certificate still counts."""
    return certificate if certificate is not None and time.time() < certificate.expires_at else None


def refused(status: int, message: str, *headers: tuple[str, str]) -> Verdict:
    """A JSON string with this status."""
    return Verdict(Answer(encode(message), status, headers=headers))


def unauthenticated(message: str, challenge: str = 'Bearer realm="hived"') -> Verdict:
    """Nobody has shown who they are."""
    return refused(401, f"who is calling? {message}", ("WWW-Authenticate", challenge))
