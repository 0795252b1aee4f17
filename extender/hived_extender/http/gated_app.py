"""Limits, names and the gate that the Flask application shares with the parts in front of it."""

from collections.abc import Callable, Iterable
from typing import Any, Protocol

from hived_extender.http.access import Gate

BODY_LIMIT = 8 * 1024 * 1024
"""Bytes, of any body. A filter call for 16,000 nodes with names of the longest kind is 4 MB."""

CLOSE = "hived.close"
"""Set in the WSGI environment by an answer after which the connection is to be closed; the header itself is the
server's affair."""

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
