"""Pods as Kubernetes and Prometheus tell them, put together to jobs.

The output of `kubectl get pods -o json` and `kubectl get events -o json`, also as lines of a watch and in one file. A
pod that has not ended is counted up to the latest time in the file. Events tell when pods that are gone were scheduled
and killed; only those of hived tell their GPUs. One job are the pods of an affinity group, of a gang of another
dialect, or of a controller whose pods work together, such as a PyTorchJob.

Answers of Prometheus to range queries: `kube_pod_container_resource_requests` and what tells more of the same pods. A
pod runs from its first to its last sample, and one step more. Pods that lived less than a step may be missing. With
`kube_pod_created` or samples without a node the time of submission is known, else it is that of the start. With
`kube_pod_owner` pods of one controller are one job.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from hived.values.errors import UserError
from hived.values.specs import PodSpec
from hived_extender.jobs.amounts import DEVICE_REQUESTS, DeviceRequests, all_requested
from hived_extender.jobs.annotations import SCHEDULING_SPEC, read_spec
from hived_extender.jobs.kinds import table
from hived_extender.jobs.wire import Pod, PodMetadata, PodStatus
from hived_simulator.traces.draft import Draft
from hived_simulator.traces.fields import MAX_LEAVES, Unusable, instant, number
from hived_simulator.traces.files import Format, Source, objects
from hived_simulator.traces.jobs import Job, Pods, most_at_once


class SeenPod(msgspec.Struct, frozen=True):
    """A pod that ran from `started_s` to `ended_s`, and was created at `created_s`, in seconds since 1970.

    gang : the name that all pods of its gang have; "" for a pod by itself
    shape : the pods of the whole gang, if the pod tells them
    """

    name: str
    tenant: str
    leaf_count: int
    created_s: float
    started_s: float
    ended_s: float
    gang: str = ""
    shape: tuple[Pods, ...] = ()
    user: str = ""
    leaf_type: str = ""
    priority: int | None = None
    within_cell: str = ""
    status: str = ""
    is_gang: bool = True


def jobs_of(pods: Iterable[SeenPod]) -> Iterator[Job]:
    """A job for each gang, and for each pod that is in none, in the order of their first pods.

    A gang runs from the start of its first pod to the end of its last one. Where no pod tells its shape, it has as many
    pods as ran at once: a pod that took another one's place does not count twice.
    """
    gangs: dict[str, list[SeenPod]] = defaultdict(list)
    for place, pod in enumerate(pods):
        gangs[pod.gang or f"\n{place}"].append(pod)
    for members in gangs.values():
        first = min(members, key=lambda pod: (pod.created_s, pod.name))
        started = min(pod.started_s for pod in members)
        yield Job(
            first.gang or first.name,
            first.tenant,
            first.created_s,
            round(max(pod.ended_s for pod in members) - started, 6),
            first.shape or _at_once(members),
            user=first.user,
            started_s=started,
            leaf_type=first.leaf_type,
            priority=first.priority,
            is_gang=first.is_gang,
            within_cell=first.within_cell,
            status=first.status,
        )


def _at_once(members: list[SeenPod]) -> tuple[Pods, ...]:
    """By size, the most pods that ran at one moment."""
    sizes: dict[int, list[tuple[float, float, int]]] = defaultdict(list)
    for pod in members:
        sizes[pod.leaf_count].append((pod.started_s, pod.ended_s, 1))
    return tuple(Pods(max(most_at_once(spans), 1), size) for size, spans in sorted(sizes.items()))


ALONE = frozenset(("ReplicaSet", "ReplicationController", "StatefulSet", "DaemonSet", "Job", "Node", ""))
"""Controllers whose pods start and end each by itself."""

_PLACEMENT = re.compile(
    r"node \S+, leaf cells (?P<cells>\d+(?:,\d+)*)"
    r"(?:, virtual cluster (?P<vc>[^,]+))?(?:, affinity group (?P<group>.+))?"
)


class _Kind(msgspec.Struct):
    """The kind of an object; `type` and `object` if it is a change of one, as a watch tells it."""

    kind: str = ""
    type: str = ""
    object: msgspec.Raw = msgspec.Raw(b"")


class _Involved(msgspec.Struct):
    kind: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""


class _Event(msgspec.Struct, rename="camel"):
    """An event of either API; `regarding` and `note` are the names of the newer one."""

    reason: str = ""
    message: str = ""
    note: str = ""
    involved_object: _Involved | None = None
    regarding: _Involved | None = None
    first_timestamp: str | None = None
    last_timestamp: str | None = None
    event_time: str | None = None
    metadata: PodMetadata = msgspec.field(default_factory=PodMetadata)


class _Life(msgspec.Struct):
    """The known facts of one pod; times in seconds since 1970."""

    line: int
    name: str
    namespace: str
    pod: Pod | None = None
    phase: str = ""
    created: float | None = None
    started: float | None = None
    ended: float | None = None
    placement: str = ""


class _NoObjects:
    """Objects of gangs are not in the file."""

    def get(self, kind: str, namespace: str, name: str, /) -> None:
        """None."""


def _recognises(head: str) -> bool:
    if head.lstrip()[:1] not in ("{", "["):
        return False
    return re.search(r'"kind": *"(List|PodList|Pod|EventList|Event)"', head) is not None


def _read(source: Source, draft: Draft) -> None:
    draft.tenant_key("", ("", "namespace"))
    draft.note(f"GPUs are the devices {', '.join(draft.options.devices)}, or leaf cells by hived's annotation")
    lives: dict[str, _Life] = {}
    latest = _Latest()
    decoders = {kind: msgspec.json.Decoder(kind) for kind in (_Kind, Pod, _Event)}
    for raw in objects(source, draft, ("items",)):
        try:
            _take(raw, decoders, lives, latest, draft)
        except Unusable as why:
            draft.leave_out(why)
        except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
            draft.leave_out(Unusable("not as Kubernetes has it", "entry", str(error)))
    draft.take(jobs_of(_seen(lives.values(), latest.time, draft)), lambda job: job)


class _Latest:
    time = 0.0

    def read(self, text: str | None, draft: Draft) -> float | None:
        """Seconds since 1970, None for no text. Raises Unusable if it is no time."""
        if not text:
            return None
        found = instant(text, "time", draft.zone)
        self.time = max(self.time, found)
        return found


def _take(raw: msgspec.Raw, decoders: Any, lives: dict[str, _Life], latest: _Latest, draft: Draft) -> None:
    """Note what an object tells; others than pods and events are passed over."""
    kind: _Kind = decoders[_Kind].decode(raw)
    is_deleted = kind.type == "DELETED"
    if bytes(kind.object):
        raw = kind.object
        kind = decoders[_Kind].decode(raw)
    if kind.kind in ("Pod", "") and not _is_event(raw):
        _note_pod(decoders[Pod].decode(raw), is_deleted, lives, latest, draft)
    elif kind.kind in ("Event", ""):
        _note_event(decoders[_Event].decode(raw), lives, latest, draft)
    else:
        draft.remark(f"objects of kind {kind.kind[:60]}, passed over")


def _is_event(raw: msgspec.Raw) -> bool:
    data = bytes(raw)
    return b'"involvedObject"' in data or b'"regarding"' in data


def _life(lives: dict[str, _Life], uid: str, namespace: str, name: str, draft: Draft) -> _Life:
    return lives.setdefault(uid or f"{namespace}/{name}", _Life(draft.line, name, namespace))


def _note_pod(pod: Pod, is_deleted: bool, lives: dict[str, _Life], latest: _Latest, draft: Draft) -> None:
    meta, status = pod.metadata, pod.status or PodStatus()
    created = latest.read(meta.created, draft)
    bound = [each for each in status.conditions or () if each.type == "PodScheduled" and each.status == "True"]
    since = latest.read(bound[0].changed, draft) if bound else None
    started = since or latest.read(status.started, draft)
    ends = [
        end
        for each in status.containers or ()
        if pod.has_completed and each.state and each.state.terminated
        if (end := latest.read(each.state.terminated.finished, draft)) is not None
    ]
    if (
        not ends
        and (pod.has_completed or is_deleted)
        and (end := latest.read(meta.deletion_timestamp, draft)) is not None
    ):
        ends = [end]
    life = _life(lives, meta.uid, meta.namespace, meta.name, draft)
    life.pod, life.phase = pod, status.phase or ""
    life.created = created or life.created
    life.started = started or life.started
    if ends:
        life.ended = max(ends)


def _note_event(event: _Event, lives: dict[str, _Life], latest: _Latest, draft: Draft) -> None:
    involved = event.involved_object or event.regarding
    if involved is None or involved.kind != "Pod":
        return
    times = [event.first_timestamp, event.event_time, event.metadata.created, event.last_timestamp]
    found = [time for text in times if (time := latest.read(text, draft)) is not None]
    if not found:
        raise Unusable("event without a time")
    life = _life(lives, involved.uid, involved.namespace, involved.name, draft)
    if life.pod is None:
        life.created = found[0] if life.created is None else min(life.created, found[0])
    if event.reason == "Scheduled":
        life.started = life.started or found[0]
        if match := _PLACEMENT.fullmatch(event.message or event.note):
            life.placement = match[0]
    elif event.reason in ("Killing", "Preempted", "Evicted") and life.ended is None:
        life.ended = found[-1]


def _seen(lives: Iterable[_Life], last: float, draft: Draft) -> Iterator[SeenPod]:
    for life in lives:
        draft.line = life.line
        try:
            if life.started is None or life.created is None:
                raise Unusable("never ran")
            if life.ended is None:
                draft.remark("pods that still ran, or whose end is not told, counted up to the latest time of the file")
            span = (life.created, life.started, last if life.ended is None else life.ended)
            if span[2] <= span[1]:
                raise Unusable("never ran")
            pod = _of_pod(life, life.pod, span, draft) if life.pod else _of_events(life, span)
        except (Unusable, UserError, msgspec.MsgspecError) as error:
            draft.leave_out(error if isinstance(error, Unusable) else Unusable("not readable", "pod", str(error)))
            continue
        yield pod


def _of_events(life: _Life, span: tuple[float, float, float]) -> SeenPod:
    match = _PLACEMENT.fullmatch(life.placement)
    if match is None:
        raise Unusable("only events tell of the pod, none of them its GPUs", "pod", f"{life.namespace}/{life.name}")
    group = match["group"] or ""
    leaves = match["cells"].count(",") + 1
    tenant = match["vc"] or life.namespace
    return SeenPod(f"{life.namespace}/{life.name}", tenant, leaves, *span, gang=group, user=life.namespace)


def _of_pod(life: _Life, pod: Pod, span: tuple[float, float, float], draft: Draft) -> SeenPod:
    key = draft.options.tenant_column
    name, namespace = f"{life.namespace}/{life.name}", life.namespace
    text = pod.annotations.get(SCHEDULING_SPEC)
    said = table.describe(pod, _NoObjects())
    gang = str(said.gang) if said is not None and said.gang else ""
    if text:
        spec = read_spec(text)
        seen = of_spec(name, spec, span)
        if gang and sum(pods.count for pods in seen.shape) == 1:
            seen = msgspec.structs.replace(seen, gang=gang, shape=())  # hived has split the gang into single pods
        tenant = namespace if key else spec.virtual_cluster
        return msgspec.structs.replace(seen, user=namespace, status=life.phase, tenant=tenant)
    leaves = _devices(pod, draft)
    if not leaves:
        raise Unusable("asks for no GPU")
    owner = pod.owner
    if not gang and owner is not None and owner.kind not in ALONE:
        gang = f"{namespace}/{owner.name}"
    tenant = said.queue if said is not None and said.queue and not key else namespace
    return SeenPod(name, tenant, leaves, *span, gang=gang, user=namespace, status=life.phase)


def _devices(pod: Pod, draft: Draft) -> int:
    """Devices that a pod asks for, or that it did before the admission webhook took them away."""
    found = sum(all_requested(pod, set(draft.options.devices)).values())
    if not found and (text := pod.annotations.get(DEVICE_REQUESTS)):
        found = msgspec.json.decode(text, type=DeviceRequests).total
    return round(min(found, MAX_LEAVES + 1.0))


def of_spec(name: str, spec: PodSpec, span: tuple[float, float, float]) -> SeenPod:
    """A pod with our annotation, which was created, started and ended at these times."""
    return SeenPod(
        name,
        spec.virtual_cluster,
        spec.leaf_cell_count,
        *span,
        gang=spec.group.name,
        shape=tuple(Pods(member.pod_count, member.leaf_cell_count) for member in spec.group.members),
        leaf_type=spec.leaf_cell_type,
        priority=spec.priority,
        within_cell=spec.within_cell,
        is_gang=not spec.elastic,
    )


KUBERNETES = Format("kubernetes", "Kubernetes, pods and events as JSON", _recognises, _read)


AMOUNTS = ("kube_pod_container_resource_requests", "kube_pod_container_resource_limits")
CREATED = "kube_pod_created"
OWNER = "kube_pod_owner"
DEFAULT_STEP_S = 60.0

Key = tuple[str, str, str]


class _Series(msgspec.Struct):
    metric: dict[str, str]
    values: list[tuple[float, str]] = []


class _Sampled(msgspec.Struct):
    """One pod: GPUs by container, and the first sample of all, the first and the last one with a node."""

    line: int
    leaves: dict[str, float] = msgspec.field(default_factory=dict)
    first: float = float("inf")
    placed: float = float("inf")
    last: float = 0.0
    owner: str = ""


def _has_series(head: str) -> bool:
    if head.lstrip()[:1] not in ("{", "["):
        return False
    has_series = '"metric"' in head and ('"resultType"' in head or '"values"' in head)
    return has_series or '"errorType"' in head


def _read_series(source: Source, draft: Draft) -> None:
    series = [(draft.line, each) for each in _series(source, draft)]
    step = _step(series)
    draft.note(f"times are those of samples, {step:g} s apart: a pod may have started or ended so much later")
    names = {name.replace(".", "_").replace("/", "_").replace("-", "_") for name in draft.options.devices}
    lives: dict[Key, _Sampled] = {}
    created: dict[Key, float] = {}
    owners: dict[Key, str] = {}
    others = 0
    for draft.line, each in series:
        name = each.metric.get("__name__") or (AMOUNTS[0] if "resource" in each.metric else "")
        key = (each.metric.get("namespace", ""), each.metric.get("pod", ""), each.metric.get("uid", ""))
        try:
            if name in AMOUNTS and re.sub(r"\W", "_", each.metric.get("resource", "")) in names:
                _note_amount(lives.setdefault(key, _Sampled(draft.line)), each)
            elif name == CREATED and each.values:
                created[key] = number(each.values[-1][1], "value")
            elif name == OWNER:
                owners[key] = _owner(each)
            else:
                others += 1
        except Unusable as why:
            draft.leave_out(why)
    if others:
        draft.note(f"series of other metrics or resources, passed over: {others}")
    if not lives:
        raise UserError(
            f"{source.name}: has no series of {AMOUNTS[0]} for {', '.join(sorted(names))}; query "
            f'{AMOUNTS[0]}{{resource="nvidia_com_gpu"}} over the range'
        )
    draft.take(jobs_of(_sampled_pods(lives, created, owners, step, draft)), lambda job: job)


def _series(source: Source, draft: Draft) -> Iterator[_Series]:
    decoder = msgspec.json.Decoder(_Series)
    for raw in objects(source, draft):
        try:
            for each in _results(raw, source.name):
                yield decoder.decode(each)
        except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
            draft.leave_out(Unusable("no series of samples: is it the answer of a range query?", "entry", str(error)))


class _Data(msgspec.Struct):
    result: list[msgspec.Raw] = []


class _Answer(msgspec.Struct):
    """An answer as it comes, or only its `data`, or only one series."""

    status: str = "success"
    error: str = ""
    data: _Data | None = None
    result: list[msgspec.Raw] | None = None


def _results(raw: msgspec.Raw, name: str) -> list[msgspec.Raw]:
    answer = msgspec.json.decode(raw, type=_Answer)
    if answer.status != "success":
        raise UserError(f"{name}: Prometheus answered {answer.error[:200]!r}; query again")
    if answer.data is not None:
        return answer.data.result
    return [raw] if answer.result is None else answer.result


def _step(series: list[tuple[int, _Series]]) -> float:
    """Seconds between samples: the least that there are between two of one series."""
    gaps = (
        later[0] - sooner[0]
        for _, each in series
        for sooner, later in zip(each.values, each.values[1:], strict=False)
        if later[0] > sooner[0]
    )
    return min(gaps, default=DEFAULT_STEP_S)


def _note_amount(life: _Sampled, series: _Series) -> None:
    if not series.values:
        raise Unusable("series without samples")
    most = max(number(value, "value") for _, value in series.values)
    container = series.metric.get("container", "")
    life.leaves[container] = max(life.leaves.get(container, 0.0), most)
    begin, end = series.values[0][0], series.values[-1][0]
    life.first = min(life.first, begin)
    if series.metric.get("node", "-"):
        life.placed, life.last = min(life.placed, begin), max(life.last, end)


def _owner(series: _Series) -> str:
    kind, name = series.metric.get("owner_kind", ""), series.metric.get("owner_name", "")
    return "" if kind in ALONE or kind in ("<none>", "None") else name


def _sampled_pods(
    lives: dict[Key, _Sampled], created: dict[Key, float], owners: dict[Key, str], step: float, draft: Draft
) -> Iterator[SeenPod]:
    draft.tenant_key("namespace", ("namespace",))
    for key, life in lives.items():
        draft.line = life.line
        namespace, name, _ = key
        leaves = round(min(sum(life.leaves.values()), MAX_LEAVES + 1.0))
        if leaves <= 0 or life.last == 0:
            draft.leave_out(Unusable("asks for no GPU" if leaves <= 0 else "never ran"))
            continue
        since = min(life.first, created.get(key, life.first))
        owner = owners.get(key, "")
        yield SeenPod(
            f"{namespace}/{name}",
            namespace,
            leaves,
            since,
            life.placed,
            life.last + step,
            gang=f"{namespace}/{owner}" if owner else "",
            user=namespace,
        )


PROMETHEUS = Format("prometheus", "Prometheus, answers to range queries", _has_series, _read_series)
