"""The few forms of JSON schema that `schema.py` is written in."""

from typing import Any

from hived_config.reader import INT32_MAX

Schema = dict[str, Any]

TEXT_TYPES = ["string", "number", "boolean"]
"""What text may look like: the loader keeps `4` and `no` as written where a name is wanted."""


def _more(rule: str, words: Schema) -> Schema:
    """Further words of JSON schema, and a default that is a rule if there is one."""
    return words | ({"x-default": rule} if rule else {})


def text(description: str, pattern: str = "", is_nullable: bool = True, rule: str = "", **more: Any) -> Schema:
    """A name or other text, which YAML may take for a number or a boolean."""
    limits = {"pattern": pattern} if pattern else {}
    return {"description": description, "type": [*TEXT_TYPES, *(["null"] * is_nullable)], **limits, **_more(rule, more)}


def integer(
    description: str, minimum: int, maximum: int = INT32_MAX, is_nullable: bool = False, rule: str = "", **more: Any
) -> Schema:
    """A whole number within bounds."""
    kind: Any = ["integer", "null"] if is_nullable else "integer"
    return {"description": description, "type": kind, "minimum": minimum, "maximum": maximum, **_more(rule, more)}


def choice(description: str, *choices: str, rule: str = "", **more: Any) -> Schema:
    """One of these words, or nothing."""
    return {"description": description, "enum": [*choices, None], **_more(rule, more)}


def list_of(description: str, items: Schema, is_nullable: bool = True, rule: str = "", **more: Any) -> Schema:
    """A list of such items."""
    kind: Any = ["array", "null"] if is_nullable else "array"
    return {"description": description, "type": kind, "items": items, **_more(rule, more)}


def mapping(
    description: str, values: Schema, is_nullable: bool = True, names: str = "", rule: str = "", **more: Any
) -> Schema:
    """A mapping whose keys are names of the user's own."""
    kind: Any = ["object", "null"] if is_nullable else "object"
    limits = {"propertyNames": {"pattern": names}} if names else {}
    return {"description": description, "type": kind, "additionalProperties": values, **limits, **_more(rule, more)}


def record(
    description: str, properties: dict[str, Schema], required: tuple[str, ...] = (), is_nullable: bool = False
) -> Schema:
    """A mapping with these keys and no others."""
    return {
        "description": description,
        "type": ["object", "null"] if is_nullable else "object",
        "properties": properties,
        "required": list(required),
        "additionalProperties": False,
    }


def reference(name: str) -> Schema:
    """What stands under `definitions`."""
    return {"$ref": f"#/definitions/{name}"}
