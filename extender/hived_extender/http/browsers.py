"""Browsers where nobody is asked who calls: a page of any site may not use them to call a service that is open.

A page may post to any address that its browser reaches, and says its own site by `Origin`. By a name of its own that
changes its address (DNS rebinding) it may read as well: the request's `Host` is that name then. kube-scheduler and
command lines send no `Origin`, and name the service as clusters do.
"""

import os
from collections.abc import Iterable, Mapping
from ipaddress import ip_address
from urllib.parse import urlsplit

ALLOWED_HOSTS = "ALLOWED_HOSTS"
"""Environment variable with further names of the service, with commas between them."""

OF_CLUSTERS = (".svc", ".local", ".localhost", ".internal")
"""Ends of names that no public name server has; `.svc.` may stand within a name too."""

SAFE = frozenset({"GET", "HEAD", "OPTIONS"})

Headers = Iterable[tuple[bytes, bytes]]


def refusal(method: str, headers: Headers, environ: Mapping[str, str] = os.environ) -> str:
    """Why an open service does not answer a call, "" if it does. Names of `headers` are in small letters."""
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
    """Is it an address, or a name that only this machine or the cluster can resolve?"""
    if "." not in name or name.endswith(OF_CLUSTERS) or ".svc." in name:
        return True
    try:
        ip_address(name)
    except ValueError:
        return False
    return True
