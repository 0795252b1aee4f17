"""Answers of Prometheus to range queries: `kube_pod_container_resource_requests` and what tells more of the same pods.

A pod runs from its first to its last sample, and one step more. Pods that lived less than a step may be missing. With
`kube_pod_created` or samples without a node the time of submission is known, else it is that of the start. With
`kube_pod_owner` pods of one controller are one job.
"""

import re
from collections.abc import Iterator

import msgspec

from hived.errors import UserError
from hived_traces.documents import objects
from hived_traces.draft import Draft
from hived_traces.fields import MAX_LEAVES, Unusable, number
from hived_traces.formats.format import Format
from hived_traces.formats.kubernetes import ALONE
from hived_traces.gangs import SeenPod, jobs_of
from hived_traces.sources import Source

AMOUNTS = ("kube_pod_container_resource_requests", "kube_pod_container_resource_limits")
CREATED = "kube_pod_created"
OWNER = "kube_pod_owner"
PHASE = "kube_pod_status_phase"
DEFAULT_STEP_S = 60.0

Key = tuple[str, str, str]


class _Series(msgspec.Struct):
    metric: dict[str, str]
    values: list[tuple[float, str]] = []


class _Life(msgspec.Struct):
    """One pod: GPUs by container, and the first sample of all, the first and the last one with a node."""

    line: int
    leaves: dict[str, float] = msgspec.field(default_factory=dict)
    first: float = float("inf")
    placed: float = float("inf")
    last: float = 0.0
    owner: str = ""


def _recognises(head: str) -> bool:
    if head.lstrip()[:1] not in ("{", "["):
        return False
    has_series = '"metric"' in head and ('"resultType"' in head or '"values"' in head)
    return has_series or '"errorType"' in head


def _read(source: Source, draft: Draft) -> None:
    series = [(draft.line, each) for each in _series(source, draft)]
    step = _step(series)
    draft.note(f"times are those of samples, {step:g} s apart: a pod may have started or ended so much later")
    names = {name.replace(".", "_").replace("/", "_").replace("-", "_") for name in draft.options.devices}
    lives: dict[Key, _Life] = {}
    created: dict[Key, float] = {}
    owners: dict[Key, str] = {}
    others = 0
    for draft.line, each in series:
        name = each.metric.get("__name__") or (AMOUNTS[0] if "resource" in each.metric else "")
        key = (each.metric.get("namespace", ""), each.metric.get("pod", ""), each.metric.get("uid", ""))
        try:
            if name in AMOUNTS and re.sub(r"\W", "_", each.metric.get("resource", "")) in names:
                _note_amount(lives.setdefault(key, _Life(draft.line)), each)
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
    draft.take(jobs_of(_pods(lives, created, owners, step, draft)), lambda job: job)


def _series(source: Source, draft: Draft) -> Iterator[_Series]:
    """All series of all answers in the file."""
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


def _note_amount(life: _Life, series: _Series) -> None:
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


def _pods(
    lives: dict[Key, _Life], created: dict[Key, float], owners: dict[Key, str], step: float, draft: Draft
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


FORMAT = Format("prometheus", "Prometheus, answers to range queries", _recognises, _read)
