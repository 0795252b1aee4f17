"""YuniKorn: the task groups of an application start together; its id names it, or else its only task group.

A task group may have a minimum of 0, as KubeRay writes for workers that an autoscaler adds. One pod of the application
has to list the task groups. YuniKorn holds places for later pods. We do not, so all pods of the task groups have to be
created without waiting for each other.
"""

from typing import Annotated

import msgspec

from hived.values.errors import UserError
from hived_extender.jobs.annotations import MAX_COUNT
from hived_extender.jobs.document import Part, json, name
from hived_extender.jobs.kinds.description import Description, GangKey, Lookup, agreed
from hived_extender.jobs.kinds.kind import ANNOTATIONS, EITHER, LABELS, Dialect, Source, ignores, reads
from hived_extender.jobs.wire import Pod

TASK_GROUP = "yunikorn.apache.org/task-group-name"
TASK_GROUPS = "yunikorn.apache.org/task-groups"
APPLICATION = "yunikorn.apache.org/app-id"
OLD_APPLICATION = "applicationId"
_KEYS = frozenset({TASK_GROUP, TASK_GROUPS})
_VOCABULARY = (
    *reads(ANNOTATIONS, TASK_GROUP, TASK_GROUPS),
    *reads(EITHER, APPLICATION),
    *reads(LABELS, OLD_APPLICATION),
    *ignores(
        ANNOTATIONS,
        "about placeholder pods, of which hived has none",
        "yunikorn.apache.org/schedulingPolicyParameters",
        "yunikorn.apache.org/placeholder",
    ),
    *ignores(EITHER, "a queue of its own tree", "yunikorn.apache.org/queue"),
    *ignores(ANNOTATIONS, "set by its webhook", "yunikorn.apache.org/user.info"),
    *ignores(ANNOTATIONS, "priorities say who leaves", "yunikorn.apache.org/allow-preemption"),
)


class _TaskGroup(msgspec.Struct, rename="camel"):
    name: Annotated[str, msgspec.Meta(min_length=1)]
    min_member: Annotated[int, msgspec.Meta(ge=0, le=MAX_COUNT)]


def _describe(pod: Pod, _objects: Lookup) -> Description | None:
    if _KEYS.isdisjoint(pod.annotations):
        return None
    annotations = Part("annotation ", pod.annotations)
    task = annotations.read(TASK_GROUP, name)
    minimums = annotations.read(TASK_GROUPS, _task_groups)
    application = _application(pod) or (task if minimums is None or len(minimums) == 1 else None)
    if application is None:
        raise UserError(f"annotation {TASK_GROUPS} says nothing of which application: set label {APPLICATION}")
    if task is not None and minimums is not None and task not in minimums:
        raise UserError(
            f"annotation {TASK_GROUP} is {task!r}: expected a name of annotation {TASK_GROUPS}: {', '.join(minimums)}"
        )
    return Description(
        YUNIKORN.name,
        gang=GangKey(pod.metadata.namespace, application),
        minimum=None if minimums is None else sum(minimums.values()) or None,
        task=task,
        task_minimums=minimums,
    )


def _application(pod: Pod) -> str | None:
    labels, annotations = Part("label ", pod.labels), Part("annotation ", pod.annotations)
    return agreed(
        {
            f"label {APPLICATION}": labels.read(APPLICATION, name),
            f"label {OLD_APPLICATION}": labels.read(OLD_APPLICATION, name),
            f"annotation {APPLICATION}": annotations.read(APPLICATION, name),
        }
    )


def _task_groups(value: object) -> dict[str, int]:
    expected = 'a JSON list of task groups, each once, such as [{"name": "workers", "minMember": 3}]'
    groups = json(value, list[_TaskGroup], expected)
    minimums = {group.name: group.min_member for group in groups}
    if not groups or len(minimums) < len(groups):
        raise ValueError(expected)
    return minimums


YUNIKORN = Dialect("YuniKorn", _VOCABULARY, _describe, _KEYS)
SOURCE = Source(dialects=(YUNIKORN,))
