"""The submitter's wishes, the plan that a document becomes, and the parts that pods of every kind are made from.

A job of pods that start together says so in Koordinator's annotations, for a cluster may not have the PodGroup kinds
that controllers use; a template that names a gang itself keeps that and gets none of ours.
"""

import copy
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

import msgspec

from hived.values.errors import UserError
from hived.values.specs import ClusterSpec
from hived_config.words import counted
from hived_extender.jobs.amounts import cluster_capacity
from hived_extender.jobs.annotations import SCHEDULING_SPEC
from hived_extender.jobs.asks import LEAF_CELL_TYPE, PINNED_CELL, PRIORITY, VIRTUAL_CLUSTER, priority_class_name
from hived_extender.jobs.kinds import koordinator, marks, table
from hived_extender.jobs.kinds.description import NoObjects
from hived_extender.jobs.kinds.own import TASK, TASK_MINIMUMS
from hived_extender.jobs.wire import Pod
from hived_jobs.documents import Document, Section
from hived_jobs.policies import NO_RULES, Rules
from hived_jobs.scheduling_specs import check_words

Manifest = dict[str, Any]
"""A Kubernetes object as plain JSON values."""


JOB_NAME = "jobName"
"""Label of an OpenPAI job's pods and record: the name of the job."""

USER_NAME = "userName"
"""Label of an OpenPAI job's pods and record: whose job it is."""

OF_USER = "~"
"""Stands between user and job in the name by which OpenPAI tells jobs apart."""


def full_name(user: str, name: str) -> str:
    """The name by which OpenPAI tells jobs apart."""
    return f"{user}{OF_USER}{name}"


def called(name: str, labels: Mapping[str, str]) -> str:
    """The name by which people call a job: its own, but the full name of an OpenPAI job, which has labels for it."""
    return full_name(labels[USER_NAME], labels[JOB_NAME]) if JOB_NAME in labels and USER_NAME in labels else name


class NoConfigurationError(UserError):
    """A job cannot be planned without the cluster's configuration."""


class TooLargeError(UserError):
    """A job asks for more than it can ever have."""


@dataclass(frozen=True, slots=True)
class PlannedPod:
    """A pod to create, its HiveD priority if that is known by now, and the role that it has in its job."""

    manifest: Manifest
    priority: int | None
    role: str = ""

    @property
    def name(self) -> str:
        """Its name."""
        return str(self.manifest["metadata"]["name"])

    @property
    def priority_class_name(self) -> str:
        """The PriorityClass that agrees with its HiveD priority; "" if that is not known."""
        return "" if self.priority is None else priority_class_name(self.priority)


@dataclass(frozen=True, slots=True)
class PlannedJob:
    """The pods and objects that one document becomes.

    Attributes
    ----------
    pods : in the order in which they are created
    objects : what the pods find each other by (services, host files, keys); created before them
    kind, name, namespace, virtual_cluster, document : of a job that a controller has to follow: its document, as JSON
        has it, is kept in the cluster. Empty and None for plain pods; no virtual cluster where pods have their own
    labels : of its record, beside the usual ones
    sizes : of its roles, where a configuration says them
    names_user : its name has the user's in front, as another user has a job of the plain name
    apart : makes the same job with the user in its name; None where the name is all that tells jobs apart
    rules : what to do when its pods end or go
    width : at most so many of the pods are unfinished at a time; None for all
    is_suspended : no pod is created until the job is resumed
    is_object : the last of `objects` is the job itself, whose controller makes the pods
    source : the document of the file that it was made of, None if it has another source
    """

    pods: Sequence[PlannedPod]
    objects: Sequence[Manifest] = ()
    kind: str = ""
    name: str = ""
    namespace: str = ""
    virtual_cluster: str = ""
    document: Manifest | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    sizes: Mapping[str, "RoleSize"] = field(default_factory=dict)
    names_user: bool = False
    apart: Callable[[], "PlannedJob"] | None = None
    rules: Rules = NO_RULES
    width: int | None = None
    is_suspended: bool = False
    is_object: bool = False
    source: Document | None = field(default=None, compare=False)

    def located(self, message: str) -> str:
        """What an API server says of the job, with the file and the line of the field that it names."""
        return (self.source.place_of(message) if self.source is not None else "") + message

    @property
    def full_name(self) -> str:
        """The name that no other job of its namespace has."""
        return called(self.name, self.labels)

    def first_pods(self) -> Sequence[PlannedPod]:
        """The pods that come first; none of a job that is suspended here, rather than in its object."""
        return self.pods[: 0 if self.is_suspended and not self.is_object else self.width]

    def own_pods(self) -> Sequence[PlannedPod]:
        """The pods to create now; none where a controller makes them."""
        return () if self.is_object else self.first_pods()


class RoleSize(msgspec.Struct, frozen=True, rename="camel"):
    """The size of a role by a configuration: the leaf cells of each pod, and whether it sees their devices."""

    cells: int
    sees_devices: bool = True


@dataclass(frozen=True, slots=True)
class Submission:
    """The submitter's wishes; None leaves the decision to the file.

    `cluster` is None when no configuration could be found: kinds that need it say so, unless a configuration has said
    the `sizes` of their roles before. `namespace` is for what names none. A job that `names_user` has the user in the
    names of its pods.
    """

    user: str
    virtual_cluster: str | None = None
    priority: int | None = None
    scheduler_name: str | None = None
    cluster: ClusterSpec | None = None
    namespace: str = "default"
    sizes: Mapping[str, RoleSize] = field(default_factory=dict)
    names_user: bool = False
    leaf_cell_type: str | None = None

    def scheduler_for(self, virtual_cluster: str) -> str:
        """The scheduler that serves a virtual cluster: OpenPAI runs one kube-scheduler per VC."""
        return self.scheduler_name or f"hivedscheduler-ds-{virtual_cluster.lower()}"


def priority_classes(pods: Sequence[PlannedPod]) -> list[Manifest]:
    """The PriorityClasses of ours that these pods name, each once, highest first."""
    named = {
        pod.priority
        for pod in pods
        if pod.priority is not None and pod.manifest["spec"].get("priorityClassName") == pod.priority_class_name
    }
    return [
        {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": priority_class_name(priority)},
            "value": priority,
            "description": f"Pods of HiveD priority {priority}",
        }
        for priority in sorted(named, reverse=True)
    ]


def scheduling_annotation(spec: Mapping[str, object]) -> dict[str, str]:
    """The annotation that carries a scheduling spec, as JSON text (which is also YAML)."""
    return {SCHEDULING_SPEC: msgspec.json.encode(spec).decode()}


JOB = marks.SUBMITTED
"""Label of everything that a job consists of."""


def name_user(metadata: Manifest, submission: Submission) -> None:
    """Write onto a pod whose it is, unless it says so itself."""
    annotations = metadata["annotations"]
    if submission.user and not marks.user_said(metadata.get("labels") or {}, annotations):
        annotations[marks.USER] = submission.user


WISHES = "--vc, --priority and --gpu-type"
"""The options of a submitter that pods get as annotations."""

SCHEDULER = "hived"
"""The schedulerName of pods whose virtual cluster is not known before they are created."""

MAX_PODS = 150_000
"""No role has more pods than Kubernetes has in its largest clusters."""

_OTHER_SCHEDULERS = ("default-scheduler", "volcano", "scheduler-plugins-scheduler", "koord-scheduler", "kube-batch",
                     "yunikorn", "kai-scheduler")  # fmt: skip
_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_NAME_RULE = "at most 63 small letters, digits and '-', letters or digits at both ends"


@dataclass(frozen=True, slots=True)
class Role:
    """Pods of a job that are alike. `name` is what the job's file calls it, in the form that labels have.

    Attributes
    ----------
    template : {"metadata": ..., "spec": ...}
    section : where it stands, for messages
    restart_policy : of the pods; "" for what the template says
    retries_codes : exit codes, from 128, are for another try (Kubeflow's restartPolicy ExitCode)
    """

    name: str
    replicas: int
    template: Manifest
    section: Section
    restart_policy: str = ""
    retries_codes: bool = False


@dataclass(frozen=True, slots=True)
class Job:
    """The part that all pods of a job share.

    Attributes
    ----------
    virtual_cluster : "" if the pods' own words or their namespace decide
    priority_class : of pods whose template names none
    scheduler : the schedulerName that the job itself names
    annotations : of every pod
    """

    kind: str
    name: str
    namespace: str
    root: Section
    submission: Submission
    virtual_cluster: str = ""
    priority_class: str = ""
    scheduler: str = ""
    annotations: Mapping[str, str] = field(default_factory=dict)

    def pod(
        self,
        role: Role,
        name: str,
        labels: Mapping[str, str],
        annotations: Mapping[str, str] | None = None,
        hostname: str = "",
        subdomain: str = "",
    ) -> PlannedPod:
        """One pod of a role, its template completed; a host name that the template has stays."""
        written = role.template.get("metadata") or {}
        spec: Manifest = copy.deepcopy(role.template["spec"])
        said = {**self.annotations, **(annotations or {})}
        if koordinator.GANG_NAME in said:  # else the template has words of its own, perhaps for its task too
            said[TASK] = role.name
        metadata: Manifest = {
            **{
                key: value for key, value in written.items() if key not in ("name", "generateName", "creationTimestamp")
            },
            "name": name,
            "namespace": self.namespace,
            "labels": {**(written.get("labels") or {}), **labels, JOB: self.name, marks.SUBMITTED_KIND: self.kind},
            "annotations": {**(written.get("annotations") or {}), **said},
        }
        name_user(metadata, self.submission)
        if role.restart_policy:
            spec["restartPolicy"] = role.restart_policy
        self.ask(metadata, spec)
        if hostname:
            spec.setdefault("hostname", hostname)
        if subdomain:
            spec.setdefault("subdomain", subdomain)
        manifest = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
        return PlannedPod(manifest, self.submission.priority, role.name)

    def ask(self, metadata: Manifest, spec: Manifest) -> None:
        """Write onto a pod which virtual cluster, priority, devices and scheduler it is to have, where that is known.

        One with a scheduling spec of its own keeps to that: the service reads nothing else. Raises UserError for a type
        of devices beside a pinned cell.
        """
        spec["schedulerName"] = self._scheduler_of(spec)
        if SCHEDULING_SPEC in metadata["annotations"]:
            return
        priority, said = self.submission.priority, dict[str, str]()
        if self.submission.leaf_cell_type is not None:
            if PINNED_CELL in metadata["labels"] or PINNED_CELL in metadata["annotations"]:
                raise UserError(f"{self.kind} {self.name}: {PINNED_CELL} says which cell to use: leave --gpu-type out")
            said[LEAF_CELL_TYPE] = self.submission.leaf_cell_type
        if self.virtual_cluster:
            said[VIRTUAL_CLUSTER] = self.virtual_cluster
        if priority is not None:
            said[PRIORITY] = str(priority)
            spec["priorityClassName"] = priority_class_name(priority)
        elif self.priority_class:
            spec.setdefault("priorityClassName", self.priority_class)
        for key in said:  # may be a label as well, which must not say otherwise
            metadata["labels"].pop(key, None)
        metadata["annotations"] |= said

    def planned(self, document: Document, pods: Sequence[PlannedPod], **more: Any) -> PlannedJob:
        """Return the plan, of which `more` are fields; warns about every key of the document that was not read."""
        self.root.warn_unknown()
        wishes = self.submission.virtual_cluster, self.submission.priority, self.submission.leaf_cell_type
        if wishes != (None,) * 3 and any(SCHEDULING_SPEC in pod.manifest["metadata"]["annotations"] for pod in pods):
            self.root.warn("spec", f"{WISHES} do not change pods with the annotation {SCHEDULING_SPEC}")
        return PlannedJob(
            pods,
            kind=self.kind,
            name=self.name,
            namespace=self.namespace,
            virtual_cluster=self.virtual_cluster,
            document=_stored_form(document, self),
            **more,
        )

    def object(self, api_version: str, kind: str, name: str, **fields: Any) -> Manifest:
        """Something beside the pods that goes with the job."""
        metadata = {"name": name, "namespace": self.namespace, "labels": {JOB: self.name}}
        return {"apiVersion": api_version, "kind": kind, "metadata": metadata, **fields}

    def headless_service(
        self, name: str, selector: Mapping[str, str], ports: Sequence[Mapping[str, Any]] = (), is_early: bool = False
    ) -> Manifest:
        """A service that gives the selected pods names in DNS; `is_early`: before they are ready."""
        spec: Manifest = {"clusterIP": "None", "selector": dict(selector)}
        if ports:
            spec["ports"] = list(ports)
        if is_early:
            spec["publishNotReadyAddresses"] = True
        return self.object("v1", "Service", name, spec=spec)

    def _scheduler_of(self, spec: Mapping[str, Any]) -> str:
        written = str(spec.get("schedulerName") or self.scheduler)
        if self.submission.scheduler_name or not written or written in _OTHER_SCHEDULERS:
            by_vc = self.submission.scheduler_for(self.virtual_cluster) if self.virtual_cluster else SCHEDULER
            return self.submission.scheduler_name or by_vc
        return written


def read_job(root: Section, submission: Submission, queue: tuple[Section, str] | None = None) -> Job:
    """The job of a document, whose outermost section is `root`.

    `queue` is where it may name one, which counts if a virtual cluster has that name.

    Raises UserError for a name that Kubernetes would not take, or a `--vc` that does not exist.
    """
    root.skip("apiVersion", "status")
    metadata = root.section("metadata")
    metadata.skip()
    name = metadata.text("name")
    if not _NAME.fullmatch(name):
        raise metadata.refuse("name", f"found {name!r}, expected {_NAME_RULE}")
    return Job(
        kind=root.text("kind"),
        name=name,
        namespace=metadata.text("namespace", submission.namespace),
        root=root,
        submission=submission,
        virtual_cluster=virtual_cluster_of(submission, queue),
    )


def virtual_cluster_of(submission: Submission, queue: tuple[Section, str] | None = None) -> str:
    """The virtual cluster of the command line, else that of the queue, "" without any; see `read_job`."""
    known = submission.cluster.virtual_clusters if submission.cluster else None
    if submission.virtual_cluster is not None:
        if known is not None and submission.virtual_cluster not in known:
            names = ", ".join(sorted(known))
            raise UserError(
                f"virtual cluster {submission.virtual_cluster} does not exist; the configuration has {names}"
            )
        return submission.virtual_cluster
    if queue is None or queue[1] not in queue[0]:
        return ""
    section, key = queue
    name = section.text(key)
    if known is not None and name in known:
        return name
    section.warn(key, f"not honoured: queue {name} is no virtual cluster of the configuration")
    return ""


def check_leaf_cell_type(name: str, cluster: ClusterSpec) -> None:
    """Raise UserError if the cluster has no leaf cells of this type."""
    types = cluster_capacity(cluster).by_type
    if name not in types:
        raise UserError(f"GPU type {name} does not exist; the configuration has {', '.join(sorted(types))}")


class _Port(msgspec.Struct, rename="camel"):
    name: str | None = None
    container_port: int | None = None


class _Container(msgspec.Struct, rename="camel"):
    name: str
    env: list[dict[str, Any]] | None = None
    ports: list[_Port] | None = None
    volume_mounts: list[dict[str, Any]] | None = None


class _TemplateSpec(msgspec.Struct, rename="camel"):
    containers: Annotated[list[_Container], msgspec.Meta(min_length=1)]
    init_containers: list[_Container] | None = None
    volumes: list[dict[str, Any]] | None = None
    scheduler_name: str | None = None
    hostname: str | None = None
    subdomain: str | None = None


class _TemplateMetadata(msgspec.Struct):
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None


class _Template(msgspec.Struct):
    """The part of a template that is read or changed here; the API server judges the rest."""

    spec: _TemplateSpec
    metadata: _TemplateMetadata | None = None


def read_role(section: Section, name: str, replicas: int | None = 1, **more: Any) -> Role:
    """A role from where its template stands, as many pods as `replicas` says there, else the number given.

    Raises UserError if the template has no containers.
    """
    plain = section.plain("template")
    check_template(section, plain, "template")
    count = section.whole("replicas", replicas, maximum=MAX_PODS) if replicas is not None else 1
    return Role(_label(name), count, plain, section, **more)


def check_template(section: Section, template: Manifest, key: str = "") -> None:
    """Warn of misspelt words, and of a scheduler that hived does not serve.

    Raises UserError unless it is a pod template with containers, and for a scheduling spec that cannot be read.
    """
    try:
        scheduler = msgspec.convert(template, _Template).spec.scheduler_name
    except msgspec.ValidationError as error:
        raise section.refuse(key, f"expected a pod template: {error}") from error
    if scheduler in _OTHER_SCHEDULERS:
        section.warn(key, f"schedulerName {scheduler} would not be served by hived; another one takes its place")
    written = section.section(key) if key else section
    written.skip()
    metadata = written.section("metadata")
    metadata.skip()
    check_words(metadata)


def has_gang(roles: Iterable[Role]) -> bool:
    """True if a template itself names the gang of its pods, in our annotations or any dialect's."""
    return any(_names_gang(role.template) for role in roles)


def _names_gang(template: Manifest) -> bool:
    metadata = {"name": "template", "namespace": "template", **(template.get("metadata") or {})}
    try:
        pod = msgspec.convert({"metadata": metadata, "spec": template["spec"]}, Pod)
        said = table.describe(pod, NoObjects())
    except (msgspec.ValidationError, UserError):
        return True  # whatever it tries to say, the pods' events will tell
    return SCHEDULING_SPEC in pod.annotations or (said is not None and (said.gang is not None or bool(said.missing)))


def gang_of(
    job: Job,
    roles: Sequence[Role],
    minimum: int | None = None,
    place: tuple[Section, str] | None = None,
    task_minimums: Mapping[str, int] | None = None,
    waiting_s: int = 0,
) -> dict[str, str]:
    """The annotations that make a job's pods one gang of at least `minimum`, by default all of them.

    Empty for a single pod, and if the templates have words of their own. Raises UserError, naming the `place` of the
    minimum, if there are fewer pods than that.
    """
    total = sum(role.replicas for role in roles)
    if minimum is not None and minimum > total and place is not None:
        raise place[0].refuse(
            place[1], f"found {minimum}, but the job has {counted(total, 'pod')} and would never start"
        )
    if has_gang(roles) or total < 2:
        return {}
    words = {
        koordinator.GANG_NAME: job.name,
        koordinator.MINIMUM: str(total if minimum is None else max(1, minimum)),
        koordinator.TOTAL: str(total),
    }
    if waiting_s:
        words[koordinator.WAITING_TIME] = f"{waiting_s}s"
    if task_minimums:
        words[TASK_MINIMUMS] = msgspec.json.encode(dict(task_minimums)).decode()
    return words


def add_env(spec: Manifest, env: Mapping[str, Any], containers: str = "") -> None:
    """Set variables in every container (or the one of that name, if there is one) that does not set them itself.

    A value that is no text is put as it is: {"valueFrom": ...}.
    """
    every = [*spec["containers"], *(spec.get("initContainers") or ())]
    chosen = [one for one in spec["containers"] if one.get("name") == containers] or every
    for container in chosen:
        known = container["env"] = list(container.get("env") or ())
        names = {one.get("name") for one in known}
        for name, value in env.items():
            if name not in names:
                known.append({"name": name, **(value if isinstance(value, dict) else {"value": str(value)})})


def mount(spec: Manifest, name: str, path: str, source: Mapping[str, Any]) -> None:
    """Add a volume and mount it in every container."""
    spec["volumes"] = [*(spec.get("volumes") or ()), {"name": name, **source}]
    for container in [*spec["containers"], *(spec.get("initContainers") or ())]:
        container["volumeMounts"] = [*(container.get("volumeMounts") or ()), {"name": name, "mountPath": path}]


def _stored_form(document: Document, job: Job) -> Manifest:
    """A job's document as it is kept in the cluster: plain JSON, its name and namespace as they were understood."""
    value = document.value()
    assert isinstance(value, dict)
    value["metadata"] = {**value["metadata"], "name": job.name, "namespace": job.namespace}
    value.pop("status", None)
    return value


def _label(name: str) -> str:
    return re.sub(r"[^a-z0-9-]+", "-", name.lower()).strip("-")
