"""Questions to a path, their callers, and their answers.

They are structs: one is made for every call, in an eighth of the time of a dataclass.
"""

import math
import ssl
import time
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

AUTHENTICATED = "system:authenticated"
"""The group that Kubernetes adds to every known user."""


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


JSON = "application/json"

PREMATURE_WAIT_S = 0.01
PREMATURE_TRIES = 10
"""A pod we do not know is waited for: an error would cost it a back-off of a second or more in kube-scheduler."""


class Question(msgspec.Struct, frozen=True):
    """One request: its body, the last part of its path, "" if the path has none, and its caller, where known.

    `is_from_page`: a page in a browser asks, from any site. `wait_s` is how long the call may wait for others to be
    served, None for as long as they take; on the event loop that is little. `if_none_match` has the tags of answers
    that the caller has already, as in the header. `query` is what stands behind the path, as it was sent.
    """

    body: bytes = b""
    name: str = ""
    caller: Identity | None = None
    is_from_page: bool = False
    wait_s: float | None = None
    if_none_match: str = ""
    query: str = ""
    takes_gzip: bool = False


class Answer(msgspec.Struct, frozen=True):
    """An HTTP answer. A body that is an iterator is sent piece by piece; `delay_s` is to pass before it is sent.

    `is_premature` tells that the pod may become known in a moment: kube-scheduler was quicker than our watch.
    `is_busy` tells that others are served, and that the question was not to wait for them any longer.
    `is_growing` tells that its gang may be complete in a moment.
    `is_elsewhere` tells that this replica cannot answer now and another may: the connection is closed after the answer,
    so that a client with keep-alive comes back through the Service.
    """

    body: bytes | Iterator[bytes]
    status: int = 200
    content_type: str = JSON
    delay_s: float = 0.0
    is_premature: bool = False
    is_busy: bool = False
    is_growing: bool = False
    is_elsewhere: bool = False
    headers: tuple[tuple[str, str], ...] = ()

    def may_change(self, tries: int) -> bool:
        """Is it worth the time to ask again, after so many tries for a pod that is not known?"""
        return self.is_premature and (tries < PREMATURE_TRIES or self.is_growing)
