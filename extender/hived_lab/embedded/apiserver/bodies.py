"""Objects as they are kept: the JSON that was sent, with all its fields, read and written with limits."""

from typing import Any, TypeVar

import msgspec

from hived_lab.embedded.apiserver.statuses import bad_request

Body = dict[str, Any]

MAX_DEPTH = 64

View = TypeVar("View", bound=msgspec.Struct)


def decode(text: bytes) -> Any:
    """Return the JSON value in `text`; ApiError (400) if it is not JSON or nests deeper than MAX_DEPTH."""
    try:
        value = msgspec.json.decode(text)
    except (ValueError, RecursionError) as error:
        raise bad_request(f"the body is not valid JSON: {error}") from error
    if _is_deeper_than(value, MAX_DEPTH):
        raise bad_request(f"the body nests deeper than {MAX_DEPTH} levels")
    return value


def encode(value: Any) -> bytes:
    """Return `value` as JSON; ApiError (400) if it holds a number that JSON clients could not read back."""
    try:
        return msgspec.json.encode(value)
    except (OverflowError, UnicodeEncodeError, msgspec.MsgspecError) as error:
        raise bad_request(f"the object cannot be stored: {error}") from error


def view_of(body: Any, model: type[View]) -> View:
    """Return `body` as a `model`; ApiError (400) naming the first field of a wrong type."""
    try:
        return msgspec.convert(body, model)
    except msgspec.ValidationError as error:
        raise bad_request(f"the object cannot be read as {model.__name__}: {error}") from error


def without_nulls(value: Any) -> Any:
    """Return a copy of `value` without null members: to Kubernetes null and absent are the same."""
    if isinstance(value, dict):
        return {key: without_nulls(member) for key, member in value.items() if member is not None}
    if isinstance(value, list):
        return [without_nulls(item) for item in value]
    return value


def _is_deeper_than(value: Any, depth: int) -> bool:
    if isinstance(value, dict):
        return depth == 0 or any(_is_deeper_than(member, depth - 1) for member in value.values())
    if isinstance(value, list):
        return depth == 0 or any(_is_deeper_than(item, depth - 1) for item in value)
    return False
