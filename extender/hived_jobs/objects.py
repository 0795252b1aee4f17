"""Jobs that are created as they are: the cluster has their kind, and its controller makes the pods.

Their pod templates get what `hived submit` gives to pods: the scheduler's name, virtual cluster, priority, user, and
the words of a gang where the job's kind means one. What hived reads of the result is told in one sentence.
"""

import time
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from hived.values.errors import UserError
from hived.values.specs import PodRequest
from hived_config.loader import Configuration
from hived_config.reader import closest
from hived_config.words import counted
from hived_extender.jobs.annotations import SCHEDULING_SPEC
from hived_extender.jobs.asks import LEAF_CELL_TYPE, PRIORITY, VIRTUAL_CLUSTER
from hived_extender.jobs.bind_info import asks_in_own_words
from hived_extender.jobs.document import Part
from hived_extender.jobs.interpreter import Interpreter
from hived_extender.jobs.job import Job as SeenJob
from hived_extender.jobs.job import JobState, Role, typed
from hived_extender.jobs.kinds import gates, koordinator, marks, ray, table
from hived_extender.jobs.kinds.batch import pods_at_once
from hived_extender.jobs.kinds.description import NoObjects
from hived_extender.jobs.kinds.kind import job_of, path_of, role_of, root_of
from hived_extender.jobs.kinds.own import TASK, TASK_MINIMUMS
from hived_extender.jobs.needs import need_of
from hived_extender.jobs.wire import ENABLE_LIMIT
from hived_extender.kube.client import KubeClient, KubeError
from hived_jobs import trainer
from hived_jobs.documents import Document, Section
from hived_jobs.submission import (
    WISHES,
    Job,
    Manifest,
    PlannedJob,
    PlannedPod,
    Submission,
    check_template,
    virtual_cluster_of,
)

if TYPE_CHECKING:
    from hived_extender.queues.bounds import QueueBound

_SERVER_FIELDS = (
    "selfLink",
    "uid",
    "resourceVersion",
    "creationTimestamp",
    "deletionTimestamp",
    "generation",
    "managedFields",
)
"""Metadata that an API server writes, and refuses in a new object."""

_WORDS = (VIRTUAL_CLUSTER, PRIORITY, LEAF_CELL_TYPE, TASK, TASK_MINIMUMS)
"""Annotations of pods, beside those of gangs, that `hived submit` writes."""

_MOST_ASKED = 1000
"""Pods of one object that the service is asked about; more of a kind are answered as these are."""


# ---- the pods of kinds that hived does not follow


def _replicas(root: Part) -> list[Role]:
    spec = root.part("spec")
    return [role_of(spec, "pod", spec.whole("replicas", 1))]


def _one_a_node(root: Part) -> list[Role]:
    return [role_of(root.part("spec"), "pod", 1)]


def _runs(root: Part) -> list[Role]:
    spec = root.part("spec").part("jobTemplate").part("spec")
    return [role_of(spec, "pod", pods_at_once(spec))]


def _groups(root: Part) -> list[Role]:
    spec = root.part("spec")
    groups, parts = spec.whole("replicas", 1), spec.part("leaderWorkerTemplate")
    worker = parts.plain("workerTemplate")
    roles = [
        Role("leader", groups, parts.plain("leaderTemplate") if "leaderTemplate" in parts else worker),
        Role("worker", groups * max(parts.whole("size", 1) - 1, 0), worker),
    ]
    return [role for role in roles if role.count]


def _service(root: Part) -> list[Role]:
    return ray.roles_of(root.part("spec").part("rayClusterConfig"))


ROLES: Mapping[tuple[str, str], Callable[[Part], list[Role]]] = {
    ("apps", "StatefulSet"): _replicas,
    ("apps", "ReplicaSet"): _replicas,
    ("apps", "DaemonSet"): _one_a_node,
    ("apps", "Deployment"): _replicas,
    ("batch", "CronJob"): _runs,
    ("leaderworkerset.x-k8s.io", "LeaderWorkerSet"): _groups,
    ("ray.io", "RayService"): _service,
}
"""By group and kind, the pods of kinds that are in no queue as jobs; those that are have theirs in `table`."""

SERVICES = frozenset(ROLES) - {("batch", "CronJob")}
"""Those that do not end."""


def seen_job(manifest: Manifest) -> SeenJob | None:
    """A job object as hived reads it, also of a kind in `ROLES`; None of other kinds. Raises UserError."""
    if table.find_kind(manifest.get("apiVersion"), manifest.get("kind")) is not None:
        return table.read(manifest)
    group = str(manifest.get("apiVersion", "")).rpartition("/")[0]
    reader = ROLES.get((group, str(manifest.get("kind", ""))))
    if reader is None:
        return None
    root = root_of(manifest)
    return job_of(root, reader(root), JobState.RESUMED)


# ---- the plan


def plan_as_object(
    document: Document,
    submission: Submission,
    planner: Callable[[Document, Submission], PlannedJob] | None = None,
    *,
    is_namespaced: bool = True,
    fields: Collection[str] = (),
) -> PlannedJob:
    """The object of a document, and the pods that its controller will make, as far as they are known.

    `planner` reads the pods of its kind; `fields` are those of its spec in the cluster, empty if that is not known.
    Raises UserError, with file, line and place.
    """
    checked = None if planner is None else planner(document.copy(), submission)
    root = document.section()
    said = root.section("metadata")
    name, namespace = said.text("name"), said.text("namespace", "") or submission.namespace
    vc = checked.virtual_cluster if checked is not None else virtual_cluster_of(submission)
    job = Job(root.text("kind"), name, namespace, root, submission, vc)
    manifest: Manifest = document.value()  # type: ignore[assignment]  # a mapping, as its kind has been read
    manifest.pop("status", None)
    metadata = manifest["metadata"]
    for key in _SERVER_FIELDS:
        metadata.pop(key, None)
    metadata |= {"name": name, "namespace": namespace}
    if not is_namespaced:
        del metadata["namespace"]
    first = {pod.role: pod.manifest for pod in reversed(checked.pods)} if checked is not None else {}
    for place in template_places(manifest):
        template = value_at(manifest, place)
        check_template(_section_at(document, place), template)
        inner = template["metadata"] = dict(template.get("metadata") or {})
        inner |= {key: dict(inner.get(key) or {}) for key in ("labels", "annotations")}
        pod = first.get(str(place[-2]).lower()) if len(place) > 1 else None
        if pod is None:
            job.ask(inner, template["spec"])
        else:
            _ask_as(pod, inner, template["spec"])
        _name_user(inner, submission.user)
    _mark_others(document, manifest, job, fields)
    pods = checked.pods if checked is not None else _pods_of(manifest, name, namespace, submission)
    return PlannedJob(
        pods,
        objects=(manifest,),
        kind=job.kind,
        name=name,
        namespace=namespace,
        width=checked.width if checked is not None else None,
        is_suspended=_is_suspended(manifest),
        is_object=True,
    )


def _mark_others(document: Document, manifest: Manifest, job: Job, fields: Collection[str]) -> None:
    """Write the user onto the object and the Jobs that it makes, and all words where it has no template of its pods."""
    submission, places = job.submission, template_places(manifest)
    key = str(manifest["apiVersion"]).rpartition("/")[0], job.kind
    if places or key == trainer.KIND:
        _name_user(manifest["metadata"], submission.user)
    if key == ("batch", "CronJob"):
        runs = manifest["spec"]["jobTemplate"]
        runs["metadata"] = dict(runs.get("metadata") or {})
        _name_user(runs["metadata"], submission.user)
    if places:
        return
    if key == trainer.KIND:
        spec = manifest.setdefault("spec", {})
        said: Manifest = {each: trainer.pod_metadata(spec, each) for each in ("labels", "annotations")}
        asked: Manifest = {"labels": {}, "annotations": {}}
        job.ask(asked, {})
        words = asked["annotations"]
        has_place = not fields or trainer.PATCHES in fields or trainer.OVERRIDES in fields
        if submission.user and has_place and not marks.user_said(said["labels"], said["annotations"]):
            words[marks.USER] = submission.user
        if words and SCHEDULING_SPEC not in said["annotations"]:
            trainer.annotate_pods(spec, words, fields)
    elif (submission.virtual_cluster, submission.priority, submission.leaf_cell_type) != (None,) * 3:
        document.warnings.append(
            f"{document.file}: {WISHES} are not written into {job.kind} {job.name}: no pod template was found in it; "
            f"annotate its pods with {VIRTUAL_CLUSTER}, {PRIORITY} and {LEAF_CELL_TYPE}"
        )


def _ask_as(pod: Manifest, metadata: Manifest, spec: Manifest) -> None:
    """Write onto a template what a pod of its role was given."""
    given = pod["metadata"]["annotations"]
    metadata["annotations"] |= {
        key: text for key, text in given.items() if key in _WORDS or key.startswith(koordinator.PREFIX)
    }
    for key in ("schedulerName", "priorityClassName"):
        if key in pod["spec"]:
            spec[key] = pod["spec"][key]


def _name_user(metadata: Manifest, user: str) -> None:
    labels, annotations = metadata.get("labels") or {}, metadata.get("annotations") or {}
    if not marks.user_of(labels, annotations, ""):
        metadata["annotations"] = {**annotations, marks.USER: user}


def _is_suspended(manifest: Manifest) -> bool:
    try:
        job = seen_job(manifest)
    except UserError:
        return False
    if job is None or marks.is_marked_held(job.annotations):  # hived lets it start
        return False
    return job.state in (JobState.HELD, JobState.LEAVING)


def _pods_of(manifest: Manifest, name: str, namespace: str, submission: Submission) -> list[PlannedPod]:
    """Pods as the controller will make them, for questions about them alone. Raises UserError."""
    job = seen_job(manifest)
    pods = []
    for role in job.roles if job is not None else ():
        for index in range(min(role.count, _MOST_ASKED)):
            given = role.template.get("metadata") or {}
            metadata: Manifest = {"name": f"{name}-{role.name}-{index}", "namespace": namespace}
            metadata |= {key: given.get(key) or {} for key in ("labels", "annotations")}
            pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": role.template["spec"]}
            pods.append(PlannedPod(pod, submission.priority, role.name))
    return pods


Place = tuple[str | int, ...]
"""Keys and numbers of items on the way to a value in a document."""


def template_places(value: object, place: Place = ()) -> list[Place]:
    """The places of all pod templates, which are mappings with `spec.containers`; () is the value itself."""
    if isinstance(value, list):
        return [each for at, item in enumerate(value) for each in template_places(item, (*place, at))]
    if not isinstance(value, dict):
        return []
    spec = value.get("spec")
    if isinstance(spec, dict) and isinstance(spec.get("containers"), list):
        return [place]
    inner = ((key, item) for key, item in value.items() if key not in ("status", "metadata"))
    return [each for key, item in inner for each in template_places(item, (*place, key))]


def _section_at(document: Document, place: Place) -> Section:
    section, steps = document.section(), list(place)
    while steps:
        key = str(steps.pop(0))
        is_list = bool(steps) and isinstance(steps[0], int)
        section = section.sections(key)[int(steps.pop(0))] if is_list else section.section(key)
    return section


def value_at(manifest: Any, place: Place) -> Manifest:
    """The mapping at a place of a document."""
    value: Any = manifest
    for step in place:
        value = value[step]
    assert isinstance(value, dict)
    return value


# ---- its end


WATCH_S = 0.5
"""Between two looks at a job that is waited for."""


def ends(job: PlannedJob) -> bool:
    """Is it an object of a kind that ends, and whose end hived can read?"""
    kind = table.find_kind(job.objects[-1]["apiVersion"], job.kind) if job.is_object else None
    return kind is not None and not kind.serves


def wait_ended(kube: KubeClient, manifest: Manifest) -> JobState | None:
    """Wait for the end of a job object; None if it is deleted. Raises UserError, KubeError."""
    version, metadata = manifest["apiVersion"], manifest["metadata"]
    kind = table.find_kind(version, manifest["kind"])
    assert kind is not None, "it ends"
    path = path_of(version, kind.plural, metadata["namespace"], metadata["name"])
    while True:
        try:
            state = table.read(kube.get(path)).state
        except KubeError as error:
            if not error.is_not_found:
                raise
            return None
        if state.is_over:
            return state
        time.sleep(WATCH_S)


# ---- what hived reads of it


def reading(job: PlannedJob, configuration: Configuration | None) -> str:
    """Return the reading of a job in one sentence: its pods, virtual cluster, priority, and whether it queues."""
    from hived_extender.machine.certificates import (  # noqa: PLC0415  # loads the core; help does without
        asks_of,
        with_minimum,
    )

    kind = job.kind
    try:
        seen = seen_job(job.objects[-1]) if job.is_object else _made_of_pods(job)
    except UserError as error:
        return f"hived cannot read it: {error.message}"
    if seen is None:
        count = len(template_places(job.objects[-1]))
        if not count:
            return f"hived reads nothing of a {kind}: no pod template was found in it"
        return (
            f"hived does not follow a {kind}: {counted(count, 'pod template')} found, whose pods it "
            "will schedule as they come"
        )
    is_followed = job.is_object and table.find_kind(job.objects[-1]["apiVersion"], kind) is not None
    if seen.roles_in is not None:
        return f"hived reads its pods from the {seen.roles_in.kind} {seen.roles_in.name} that its controller makes"
    pods = counted(sum(role.count for role in seen.roles), "pod")
    if configuration is None:
        return f"hived reads {pods}"
    rules = configuration.rules
    interpreter = Interpreter(configuration.cluster, rules, NoObjects())
    is_queued = is_followed and rules.queueing.is_enabled and marks.may_queue(seen.labels, seen.annotations)
    parts = [seen.roles] if is_queued else [(role,) for role in seen.roles]  # a queue has cells of one kind for all
    read = [msgspec.structs.replace(seen, manager=None, roles=roles) for roles in parts]
    try:
        needs = [need for each in read if (need := need_of(each, interpreter)) is not None]
    except UserError as error:
        return f"hived cannot place it: {error.message.removeprefix(f'{seen.ref}: ')}"
    if not needs:
        near = "".join(f"; {said}" for said in near_devices(job, configuration))
        return f"hived reads {pods} without devices: they take no cells, and wait in no queue{near}"
    spec, requests = needs[0].spec, [PodRequest("", "", "", need.spec) for need in needs]
    is_gang = is_queued or all(_names_gang(interpreter, pod) for need in needs for pod, _ in need.pods)
    asks = asks_of(requests, spec.leaf_cell_type, is_gang=is_gang)
    least = needs[0].minimum if is_queued else None
    asks = asks if least is None else with_minimum(asks, least.count, least.total)
    has_queues, is_gated = rules.queueing.is_enabled, _are_gated(seen)
    if is_queued or (has_queues and is_gated):
        end = f"waits in the queue of {spec.virtual_cluster}"
    elif has_queues and kind == "CronJob":
        end = f"makes Jobs which wait in the queue of {spec.virtual_cluster}"
    elif is_gated:
        end = "is held: hived starts it once it may"
    elif seen.state in (JobState.HELD, JobState.LEAVING):
        end = "is suspended: " + (
            "hived starts it once it may"
            if marks.is_marked_held(seen.annotations)
            else f"hived release {typed(job.name, job.namespace)} starts it"
        )
    else:
        end = "starts as soon as there is room"
    return f"hived reads {asks} in virtual cluster {spec.virtual_cluster}, priority {spec.priority}; it {end}"


def _made_of_pods(job: PlannedJob) -> SeenJob:
    """A job whose pods hived makes, with those that come first."""
    found: dict[str, list[Manifest]] = {}
    for pod in job.first_pods():
        found.setdefault(pod.role, []).append(pod.manifest)
    metadata = {"name": job.name, "namespace": job.namespace}
    root = root_of({"apiVersion": "v1", "kind": job.kind, "metadata": metadata})
    return job_of(root, [Role(name, len(pods), pods[0]) for name, pods in found.items()], JobState.RESUMED)


def _are_gated(job: SeenJob) -> bool:
    """Do all of its pods have the gate of queues?"""
    return all(gates.is_gated(Part("template.", role.template).part("spec")) for role in job.roles)


def near_devices(job: PlannedJob, configuration: Configuration) -> list[str]:
    """A sentence for each resource of the pods whose name is nearly that of a device."""
    devices, found = configuration.rules.resources_in(configuration.cluster).values(), dict[str, str]()
    for pod in job.pods:
        for container in Part("", pod.manifest).part("spec").parts("containers"):
            resources = container.part("resources")
            for name in (*resources.part("limits"), *resources.part("requests")):
                if "/" in name and name not in devices and name != ENABLE_LIMIT:
                    found[name] = closest(name, {*devices})
    return [f"{name} is no device, did you mean {near}?" for name, near in found.items() if near]


def bound_in_queue(job: PlannedJob, configuration: Configuration, trees: Collection[str]) -> "QueueBound | None":
    """Return what a queue gives a planned job, as `queues.bounds.bound_of`; None if it does not queue."""
    from hived_extender.queues.bounds import bound_of  # noqa: PLC0415  # loads numpy; help does without

    if not job.is_object or table.find_kind(job.objects[0]["apiVersion"], job.kind) is None:
        return None
    cluster = configuration.cluster
    try:
        seen = seen_job(job.objects[0])
    except UserError:
        return None
    interpreter = Interpreter(cluster, configuration.rules, NoObjects())
    return None if seen is None else bound_of(seen, interpreter, cluster, trees)


def _names_gang(interpreter: Interpreter, pod: Any) -> bool:
    if asks_in_own_words(pod.annotations):
        return sum(member.pod_count for member in interpreter.own_spec(pod).group.members) > 1
    said = interpreter.describe(pod)
    return said is not None and said.gang is not None
