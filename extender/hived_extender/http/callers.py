"""Callers and their refusals: the values that the gate and the reviews share."""

from dataclasses import dataclass, field

import msgspec

from hived_extender.http.answers import Answer
from hived_extender.http.identities import Identity
from hived_extender.pods.wire import encode

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
