"""A job that is held back, let go and called back beside its own controller, by the calls that queues make."""

from typing import Any

from hived_extender.jobs.job import Job, JobState
from hived_extender.jobs.kinds import marks, table
from hived_extender.jobs.kinds.kind import Verb, Write, path_of
from hived_extender.jobs.kinds.table import job_of_pod
from hived_extender.jobs.wire import Pod
from tests.e2e.controllers.racks import Racks

COUNT = 2
"""Pods with devices that each job here has. There may be others, without."""

KEPT = {"example.com/kept": "yes"}

Json = dict[str, Any]


def named(document: Json) -> Json:
    """The object with a name."""
    return {**document, "metadata": {"name": "train", "namespace": "default"}}


def patched(document: Json) -> Json:
    """The object as the webhook has it stored, but for the mark: where queues are off, hived lets marked jobs go."""
    for operation in table.hold_at_creation(document):
        *outer, key = operation["path"].removeprefix("/").split("/")
        target = document
        for each in outer:
            target = target[each]
        target[key] = operation["value"]
    document["metadata"].get("annotations", {}).pop(marks.HELD, None)
    return document


def found(racks: Racks, document: Json) -> Json:
    """The object as its controller has it now."""
    kind = table.kind_of(document)
    return racks.plane.kube.get(path_of(document["apiVersion"], kind.plural, "default", "train"))


def read(racks: Racks, document: Json) -> Job:
    """The job of that object."""
    return table.read(found(racks, document))


def carry_out(racks: Racks, writes: tuple[Write, ...]) -> None:
    """Make calls of these kinds, which are merge patches all."""
    for write in writes:
        assert write.verb is Verb.PATCH
        racks.plane.kube.patch(write.path, write.body)


def runs(racks: Racks) -> bool:
    """Have all its pods devices?"""
    return len([one for one in racks.bound("train") if one.devices]) == COUNT


COURSE = [JobState.HELD, JobState.RESUMED, JobState.HELD, JobState.RESUMED]
"""Of a job that waits, runs, is called back and runs again."""


def take_its_course(racks: Racks, document: Json) -> list[JobState]:
    """Create it held, let it go, call it back and let it go again; its controller has to follow each time.

    Returns the states of the job, one after the other.
    """
    document = patched(document)
    racks.create(document)
    racks.until(lambda: found(racks, document).get("status"), "its controller to have seen it")
    racks.until(lambda: read(racks, document).state is JobState.HELD, "its controller to say that it is held")
    states = [read(racks, document).state]
    assert racks.pods("train") == []
    carry_out(racks, table.resume(read(racks, document).ref, KEPT))
    racks.until(lambda: runs(racks), "its pods to run")
    states.append(read(racks, document).state)
    carry_out(racks, table.suspend(read(racks, document).ref, KEPT))
    racks.until(lambda: not racks.observer.present() and not racks.used(), "all cells to be free")
    racks.until(lambda: read(racks, document).state is JobState.HELD, "its controller to say that no pod is left")
    states.append(read(racks, document).state)
    carry_out(racks, table.resume(read(racks, document).ref, KEPT))
    racks.until(lambda: runs(racks), "its pods to run again")
    assert found(racks, document)["metadata"]["annotations"]["example.com/kept"] == "yes"
    assert racks.faults() == []
    return [*states, read(racks, document).state]


def owners_of_pods(racks: Racks, document: Json, made: tuple[Json, ...] = ()) -> list[str]:
    """The jobs that its pods belong to by owners and labels, perhaps by way of objects of these kinds that it makes.

    Each job once, by kind and name; "" for a pod of none.
    """
    racks.until(lambda: not _pods(racks), "pods of earlier jobs to be gone, also those without devices")
    racks.create(document)
    racks.until(lambda: runs(racks), "its pods to run")
    job = read(racks, document)
    inner = [one for kind in made for one in _listed(racks, kind)]
    roles = [each for each in inner if table.read(each).ref.job_name == job.roles_in]
    with_roles = table.read(found(racks, document), roles[0] if roles else None).roles
    assert sum(role.count for role in with_roles if _has_devices(role.template)) == COUNT
    managers = {table.read(one).ref.job_name: job.ref.job_name for one in inner}
    found_names = [job_of_pod(one.labels, one.metadata.owners or (), "default") for one in _pods(racks)]
    units = [None if name is None else table.unit_of(name, managers) for name in found_names]
    return list(dict.fromkeys("" if each is None else f"{each.kind}/{each.name}" for each in units))


def _pods(racks: Racks) -> list[Pod]:
    return racks.plane.kube.list_objects("/api/v1/namespaces/default/pods", Pod).items


def _listed(racks: Racks, kind: Json) -> list[Json]:
    path = path_of(kind["apiVersion"], table.kind_of({**kind, "metadata": {}}).plural, "default")
    return [{**kind, **one} for one in racks.plane.kube.get(path)["items"]]


def _has_devices(template: Json) -> bool:
    return any(each.get("resources") for each in template["spec"]["containers"])
