"""Our own words, for pods of any dialect: a topology wish, which wins over all others, and the tasks of a gang."""

from collections.abc import Mapping

from msgspec.structs import replace

from hived_extender.jobs.annotations import PREFIX
from hived_extender.jobs.dialects.description import Description, Lookup, Within
from hived_extender.jobs.dialects.vocabulary import ANNOTATIONS, reads
from hived_extender.jobs.dialects.words import Words, json, level, name, whole
from hived_extender.jobs.wire import Pod

NAME = "HiveD"
WITHIN_CELL = PREFIX + "within-cell"
TASK = PREFIX + "task"
TASK_MINIMUMS = PREFIX + "task-minimums"
KEYS = frozenset({WITHIN_CELL, TASK, TASK_MINIMUMS})
VOCABULARY = reads(ANNOTATIONS, WITHIN_CELL, TASK, TASK_MINIMUMS)


def describe(pod: Pod, _objects: Lookup) -> Description | None:
    """The task, the minimums of tasks and the topology wish of the annotations."""
    if KEYS.isdisjoint(pod.annotations):
        return None
    annotations = Words("annotation ", pod.annotations)
    return Description(
        NAME,
        task=annotations.read(TASK, name),
        task_minimums=annotations.read(TASK_MINIMUMS, _task_minimums),
        within=annotations.read(WITHIN_CELL, _within),
    )


def prevail(said: list[Description]) -> list[Description]:
    """The same descriptions without the wishes that ours takes the place of."""
    if not any(each.dialect == NAME and each.within for each in said):
        return said
    return [each if each.dialect == NAME else replace(each, within=None) for each in said]


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
