"""HiveD's own annotations, for pods of any dialect: a topology wish, which overrides others, and a gang's tasks."""

from collections.abc import Mapping

from msgspec.structs import replace

from hived_extender.jobs.annotations import PREFIX
from hived_extender.jobs.document import Part, json, name, whole
from hived_extender.jobs.kinds.description import Description, Lookup, Within, level
from hived_extender.jobs.kinds.kind import ANNOTATIONS, Dialect, Source, reads
from hived_extender.jobs.wire import Pod

WITHIN_CELL = PREFIX + "within-cell"
TASK = PREFIX + "task"
TASK_MINIMUMS = PREFIX + "task-minimums"
_KEYS = frozenset({WITHIN_CELL, TASK, TASK_MINIMUMS})


def _describe(pod: Pod, _objects: Lookup) -> Description | None:
    if _KEYS.isdisjoint(pod.annotations):
        return None
    annotations = Part("annotation ", pod.annotations)
    return Description(
        HIVED.name,
        task=annotations.read(TASK, name),
        task_minimums=annotations.read(TASK_MINIMUMS, _task_minimums),
        within=annotations.read(WITHIN_CELL, _within),
    )


def override_wishes(said: list[Description]) -> list[Description]:
    """The descriptions without the topology wishes that ours overrides (rule 23.7)."""
    if not any(each.dialect == HIVED.name and each.within for each in said):
        return said
    return [each if each.dialect == HIVED.name else replace(each, within=None) for each in said]


def _task_minimums(value: object) -> Mapping[str, int]:
    expected = 'a JSON object with whole numbers, such as {"server": 1, "worker": 3}'
    minimums = json(value, dict[str, int], expected)
    try:
        return {name(task): whole(least) for task, least in minimums.items()}
    except ValueError:
        raise ValueError(expected) from None


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


HIVED = Dialect("HiveD", reads(ANNOTATIONS, WITHIN_CELL, TASK, TASK_MINIMUMS), _describe, _KEYS)
SOURCE = Source(dialects=(HIVED,))
