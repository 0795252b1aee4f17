"""Users as Kubernetes names them."""

import math
import ssl
import time
from collections.abc import Mapping
from typing import Any

import msgspec

AUTHENTICATED = "system:authenticated"
"""The group that Kubernetes adds to everybody whom it knows."""


class Identity(msgspec.Struct, frozen=True):
    """A user as Kubernetes names them. A certificate ends at `expires_at` (seconds since 1970), also on connections
    that were made before.
    """

    name: str
    groups: tuple[str, ...] = ()
    uid: str = ""
    extra: tuple[tuple[str, tuple[str, ...]], ...] = ()
    expires_at: float = math.inf


def identity_of(certificate: Mapping[str, Any]) -> Identity | None:
    """The identity in a certificate from `getpeercert`: its common name is the user, its organisations are the groups,
    as in kube-apiserver. None without exactly one common name.
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
