"""Every way the API server says no, as Kubernetes `Status` objects.

Clients act on `code` and `reason`, people read `message`; the wording follows the real API server where tools match it.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from hived.errors import UserError


@dataclass(frozen=True, slots=True)
class Cause:
    """One thing wrong with one field of an object."""

    field: str
    message: str
    reason: str = "FieldValueInvalid"


class ApiError(UserError):
    """A request that cannot be served; `status()` is the body of the answer and `code` its HTTP status."""

    def __init__(self, code: int, reason: str, message: str, details: Mapping[str, Any] | None = None) -> None:
        super().__init__(message, code)
        self.reason = reason
        self.details = details

    def status(self) -> dict[str, Any]:
        """Return the `Status` object, JSON-ready."""
        status: dict[str, Any] = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
            "reason": self.reason,
            "code": self.code,
        }
        if self.details:
            status["details"] = dict(self.details)
        return status


def success(**details: str) -> dict[str, Any]:
    """Return the `Status` that answers a deletion, a binding or an eviction; empty details are left out."""
    status = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}
    told = {key: text for key, text in details.items() if text}
    return {**status, "details": told} if told else status


def bad_request(message: str) -> ApiError:
    """The request cannot be understood."""
    return ApiError(400, "BadRequest", message)


def forbidden(what: str, name: str, why: str) -> ApiError:
    """The request is understood, and refused on principle."""
    return ApiError(403, "Forbidden", f'{what} "{name}" is forbidden: {why}', {"name": name, "kind": what})


def not_found(what: str, name: str) -> ApiError:
    """There is no such object."""
    return ApiError(404, "NotFound", f'{what} "{name}" not found', {"name": name, "kind": what})


def unknown_path() -> ApiError:
    """There is no such path."""
    return ApiError(404, "NotFound", "the server could not find the requested resource")


def method_not_allowed(method: str) -> ApiError:
    """The path exists, the verb does not."""
    message = f"the server does not allow the method {method} on the requested resource"
    return ApiError(405, "MethodNotAllowed", message)


def not_acceptable(offered: str) -> ApiError:
    """None of the formats that the client accepts is served."""
    return ApiError(406, "NotAcceptable", f"only the following media types are offered: {offered}")


def already_exists(what: str, name: str) -> ApiError:
    """An object of that name exists."""
    return ApiError(409, "AlreadyExists", f'{what} "{name}" already exists', {"name": name, "kind": what})


def conflict(what: str, name: str, why: str) -> ApiError:
    """The object is not in the state that the request takes for granted."""
    message = f'Operation cannot be fulfilled on {what} "{name}": {why}'
    return ApiError(409, "Conflict", message, {"name": name, "kind": what})


def expired(message: str) -> ApiError:
    """The version that the request builds on is no longer known."""
    return ApiError(410, "Expired", message)


def too_large(limit: int) -> ApiError:
    """The body is longer than is read."""
    return ApiError(413, "RequestEntityTooLarge", f"limit is {limit} bytes")


def unsupported_media_type(message: str) -> ApiError:
    """The body is in a format that is not read."""
    return ApiError(415, "UnsupportedMediaType", message)


def invalid(kind: str, name: str, causes: Iterable[Cause], group: str = "") -> ApiError:
    """The object is well formed but breaks rules of its kind; every broken rule is listed."""
    causes = list(causes)
    told = dict.fromkeys(f"{cause.field}: {cause.message}" for cause in causes)
    listed = ", ".join(told)
    if len(told) > 1:
        listed = f"[{listed}]"
    details = {
        "name": name,
        **({"group": group} if group else {}),
        "kind": kind,
        "causes": [{"reason": cause.reason, "message": cause.message, "field": cause.field} for cause in causes],
    }
    what = f"{kind}.{group}" if group else kind
    return ApiError(422, "Invalid", f'{what} "{name}" is invalid: {listed}', details)
