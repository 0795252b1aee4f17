"""The names of jobs, and which jobs are meant by one: the same for the service, its queues, commands and shells.

The full name of a job with an object is `KIND/NAMESPACE/NAME`, of a gang `podgroup/NAMESPACE/NAME`, where the NAME of a
gang of a Workload is `WORKLOAD/GROUP`, with the key of its replica behind if it has one; of an affinity
group `NAMESPACE:NAME`, and of a pod that starts alone `NAMESPACE/POD`. docs/commands.md#names-of-jobs has all forms.
"""

import re
from collections.abc import Iterable, Sequence
from typing import Protocol, TypeVar

from hived_extender.api.waiting import Job

GANG = "podgroup/"
WORKLOAD = "workload/"
QUEUED_GANG = "Gang"
"""The kind as which a gang of plain pods queues."""

DEFAULT_NAMESPACE = "default"
KINDS = ("pod", "job")
"""Kinds that stand before the name of anything that was submitted."""

_KIND_NAMESPACE_NAME = 2  # slashes
_BARE = 3
"""The rank of names without a namespace, which several jobs may have."""

_PARTS = re.compile(r"[/~:]")


class Named(Protocol):
    """Anything with the full name of a job."""

    @property
    def name(self) -> str:
        """The full name."""


J = TypeVar("J", bound=Named)


def is_full(name: str) -> bool:
    """True for the name of a job with an object, or of a gang."""
    count = name.count("/")
    return count == _KIND_NAMESPACE_NAME or (count > _KIND_NAMESPACE_NAME and name.startswith(GANG))


def parts_of(name: str) -> list[str]:
    """The parts of a full name: kind, namespace, user and so on."""
    return _PARTS.split(name)


def namespaces_in(name: str) -> tuple[str, ...]:
    """The namespaces that a name may say, as people write it: what stands before its last part, behind its kind."""
    where, sign, _ = name.partition(":")
    if sign and "/" not in where:
        return (where,)
    first, *rest = without_kind(name).split("/")
    return tuple([first, *rest[:-1]][:_KIND_NAMESPACE_NAME]) if rest else ()


def spoken(name: str) -> tuple[str, ...]:
    """The names by which people call a job with an object: in full, `NAMESPACE/NAME` and `NAME`."""
    _, _, where = name.partition("/")
    return name, where, where.partition("/")[2]


def names_of(name: str, parts: Iterable[str] = ()) -> tuple[tuple[str, ...], ...]:
    """All names that mean a job, in ranks (rule 24.19): of a name the first rank counts at which any job has it.

    First its own; then those of its `parts`, which are pods, groups and gangs; then `NAMESPACE/NAME`, which namespace
    and name tell from all others; then those that several may have, `NAME` and `KIND/NAME`. No other kind is in them.
    """
    parts = tuple(parts)
    pods = tuple(part.partition("/")[2] for part in (name, *parts) if part.count("/") == 1)
    objects = [each for each in (name, *parts) if is_full(each)]
    with_namespace = [each for one in objects for each in _with_namespace(one)]
    named = [f"pod/{pod}" for pod in pods]
    return (name,), parts, tuple(with_namespace), (*(each for one in objects for each in _short(one)), *pods, *named)


def is_called(job: str, name: str) -> bool:
    """Is the name one of those of the job with this full name, and not of a part of it or of its maker?"""
    return any({name, without_kind(name)}.intersection(rank) for rank in names_of(job)) if job else False


def _with_namespace(name: str) -> Iterable[str]:
    """The names of an object with its namespace: `NAMESPACE/NAME`, and after its kind in lower case."""
    kind, _, where = name.partition("/")
    return where, *dict.fromkeys(f"{each}/{where}" for each in _kinds(kind))


def _kinds(kind: str) -> tuple[str, ...]:
    """A kind as people write it. A gang of plain pods, which queues as a Gang, is a podgroup too."""
    return (kind, kind.lower(), *((GANG[:-1],) if kind == QUEUED_GANG else ()))


def _short(name: str) -> Iterable[str]:
    """The names of an object without its namespace: `NAME`, and after its kind; of a Workload's gang those of both."""
    kind, namespace, short = name.split("/", _KIND_NAMESPACE_NAME)
    workload, slash, _ = short.partition("/")
    kinds = (*_kinds(kind), *KINDS[1:])
    of_workload = (workload, *(f"{each}{workload}" for each in (f"{namespace}/", WORKLOAD, f"{WORKLOAD}{namespace}/")))
    return short, *dict.fromkeys(f"{each}/{short}" for each in kinds), *(of_workload if slash else ())


def short_name(job: str, namespace: str, reader: str) -> str:
    """The name of a job of a namespace, for readers of the namespace `reader`."""
    kind, _, bare = job.partition("/")
    name = bare if kind == "podgroup" or bare.startswith(f"{namespace}/") else job
    for separator in "/:":
        if reader and namespace == reader:
            name = name.removeprefix(reader + separator)
    return name


def index(jobs: Sequence[tuple[J, Iterable[str]]]) -> dict[str, J]:
    """The job that each name means which has a namespace, of jobs with their parts; of several the first."""
    ranked = [(job, names_of(job.name, parts)) for job, parts in jobs]
    found: dict[str, J] = {}
    for rank in range(_BARE):
        for job, names in ranked:
            for name in names[rank]:
                found.setdefault(name, job)
    return found


def known_as(name: str, namespace: str = "") -> list[str]:
    """The full names and those of pods that a name may stand for, most likely first; `namespace` is the caller's."""
    found = _known_as(name, namespace)
    bare = without_kind(name)
    kind, _, where = name.partition("/")
    queued = [GANG + where] if is_full(name) and kind in (QUEUED_GANG, QUEUED_GANG.lower()) else []  # its pods
    return [*found, *queued, *(_known_as(bare, namespace) if bare != name else ())]


def _known_as(name: str, namespace: str) -> list[str]:
    short = name.removeprefix(GANG)
    if namespace:
        return [f"{namespace}/{name}", f"{GANG}{namespace}/{short}", f"{namespace}:{name}", name]
    if name.startswith(GANG):
        return [name] if "/" in short else [name, f"{GANG}{DEFAULT_NAMESPACE}/{short}"]
    if "/" in name:
        return [name, f"{GANG}{name}", name.replace("/", ":", 1), f"{DEFAULT_NAMESPACE}:{name}"]
    return [name, f"{DEFAULT_NAMESPACE}/{name}"]


def without_kind(name: str) -> str:
    """A name as people write it, from `pod/NAME` or `job/NAME` as `hived submit` prints it."""
    kind, slash, bare = name.partition("/")
    return bare if slash and kind in KINDS and "/" not in bare else name


def matching(jobs: Iterable[Job], name: str, namespace: str = "") -> list[Job]:
    """The jobs that a name means, see `names_of`; else those whose full name has it as a part.

    `train` and `me~train` are parts of `me~train/a`.

    With a namespace they are of that one, unless the name has another.
    """
    bare = {name, without_kind(name)}
    wanted = set(known_as(name, namespace))
    if not namespace and "/" not in without_kind(name):  # of whatever namespace
        wanted -= {f"{DEFAULT_NAMESPACE}{sign}{each}" for each in bare for sign in "/:"}
    ranked = [(job, names_of(job.name, (*job.pods, *job.aliases))) for job in jobs]
    if name.startswith("pod/") and namespace:
        pod = f"{namespace}/{without_kind(name)}"
        if found := [job for job, _ in ranked if pod in (job.name, *job.pods)]:
            return found
    for rank in range(_BARE):
        if found := [job for job, names in ranked if not wanted.isdisjoint(names[rank])]:
            return found
    here = [
        (job, names)
        for job, names in ranked
        if not namespace or namespace == job.namespace or any(pod.startswith(f"{namespace}/") for pod in job.pods)
    ]
    for wanted in ({name}, bare):  # a kind that is said counts, where a job has it
        if called := [job for job, names in here if not wanted.isdisjoint(names[_BARE])]:
            return called
    return [job for job, _ in here if name in (*parts_of(job.name), *_of_group(job.name))]


def _of_group(name: str) -> tuple[str, str]:
    """An affinity group without its namespace, and the job `USER~JOB` that it is of."""
    group = name.partition(":")[2]
    return group, group.rpartition("/")[0]
