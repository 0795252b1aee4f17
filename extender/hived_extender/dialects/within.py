"""Our own word for a topology wish, for pods of any dialect; it wins over what they say themselves."""

from dataclasses import replace

from hived_extender.annotations import PREFIX
from hived_extender.dialects.description import Description, Within
from hived_extender.dialects.kinds import Lookup
from hived_extender.dialects.words import Words, json, level
from hived_extender.wire import Pod

NAME = "HiveD"
WITHIN_CELL = PREFIX + "within-cell"
KEYS = frozenset({WITHIN_CELL})
WAITING_S: float | None = None


def describe(pod: Pod, _objects: Lookup) -> Description | None:
    """What the annotation says."""
    within = Words("annotation ", pod.annotations).read(WITHIN_CELL, _within)
    return None if within is None else Description(NAME, within=within)


def prevail(said: list[Description]) -> list[Description]:
    """The same descriptions without the wishes that ours takes the place of."""
    if not any(each.dialect == NAME and each.within for each in said):
        return said
    return [each if each.dialect == NAME else replace(each, within=None) for each in said]


def _within(value: object) -> Within:
    expected = 'a cell type such as RACK, which is required, {"required": "RACK"} or {"preferred": "RACK"}'
    if not str(value).lstrip().startswith("{"):
        return Within(level(value), is_required=True)
    wish = json(value, dict[str, str], expected)
    if wish.keys() == {"required"} and wish["required"]:
        return Within(level(wish["required"]), is_required=True)
    if wish.keys() == {"preferred"}:
        return Within(level(wish["preferred"]), is_required=False)
    raise ValueError(expected)
