"""Rules that hold of gangs, whatever happens, in terms of pods, devices and their authors' demands."""

from collections import Counter
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass

from hived.cells.state import GroupState
from hived.scheduler import check_invariants
from hived.values.errors import UserError
from hived.values.specs import BindInfo
from hived_extender.jobs.bind_info import bind_info
from hived_extender.jobs.kinds.description import GangKey, MatchPolicy, ObjectRef
from hived_extender.machine.gangs.plans import Round
from hived_extender.machine.gangs.rounds import Alone
from hived_extender.machine.pods import PodRecord, PodState
from tests.extender.machine.small_cluster import Json, to_pod
from tests.property.gang_cluster import Api, Replica
from tests.property.gang_jobs import NAMESPACES, NODE_SIZE, Gang, Job, Template
from tests.property.gang_scheduler import KubeScheduler

VC_SIZES = {"a": 8, "b": 4}

Cells = tuple[str, tuple[int, ...]]
"""Node and device indices; no node for a pod without devices."""


class Broken(AssertionError):
    """A rule does not hold."""


@dataclass(frozen=True)
class Picture:
    """The knowledge of a leader: places of pods, answers for waiting ones, and which bound pods say where the
    others of their gang are to be.
    """

    places: Mapping[str, Cells]
    plans: Mapping[GangKey, tuple[str, str, frozenset[str]]]
    promised_by: Mapping[str, str]


class Rules:
    """`templates` are of all pods that there ever were, by uid."""

    def __init__(self, api: Api, templates: Mapping[str, Template], scheduler: KubeScheduler) -> None:
        self._api = api
        self._templates = templates
        self._scheduler = scheduler
        self._rounds: list[set[str]] = []
        self._unaccepted: list[dict[str, str]] = []  # of pods that started together, their nodes by uid
        self._bound: set[str] = set()
        self._had: dict[str, set[Cells]] = {}  # all places that a pod ever had

    def check(self, leader: Replica, before: set[str], *, is_new: bool = False) -> None:
        """After something happened to pods of which those of `before` had places; `is_new`: the leader is."""
        if leader.service.fault:
            raise Broken(leader.service.fault)
        check_invariants(leader.core.state)
        self._check_places(leader)
        self._check_reservations(leader)
        if not is_new:
            self._check_starts(leader, before)
        self._check_accepted(leader)
        self._check_bound()
        for uid, cells in places(leader).items():
            self._had.setdefault(uid, set()).add(cells)

    def _check_starts(self, leader: Replica, before: set[str]) -> None:
        """A gang starts with its minimum, and together with those of its job, or not at all.

        What it loses later does not count against it; but if its policy wants the minimum of every round, the next one
        has to make it whole again.
        """
        after = placed(leader)
        new = after - before
        nodes = {record.uid: record.place.node for record in records(leader)}
        for job in {self._templates[uid].job for uid in new if self._templates[uid].gang}:
            self._rounds.append({uid for uid in new if self._templates[uid].job is job})
            self._unaccepted.append({uid: nodes[uid] for uid in sorted(self._rounds[-1])})
            for gang in job.gangs.values():
                lack = self._lack(leader, job.namespace, gang, before, after)
                if lack:
                    raise Broken(f"{sorted(self._rounds[-1])} started, but {gang.name} {lack}")
        self._rounds = [kept for each in self._rounds if len(kept := each & after) > 1]

    def _check_accepted(self, leader: Replica) -> None:
        """No pod is bound before kube-scheduler has taken the nodes of all pods that started together with it.

        A pod that has lost its place, or has got another, is not among them any more.
        """
        accepted, left = self._scheduler.accepted, []
        nodes = {record.uid: record.place.node for record in records(leader)}
        placed_now = placed(leader)
        for uid in accepted.keys() - placed_now:
            del accepted[uid]
        bound = {pod["metadata"]["uid"] for pod in self._api.pods.values() if pod["spec"]["nodeName"]}
        for round_ in self._unaccepted:
            kept = {uid: node for uid, node in round_.items() if uid in placed_now and node in ("", nodes[uid])}
            lacking = [uid for uid, node in kept.items() if uid not in accepted or node not in ("", *accepted[uid])]
            if lacking and kept.keys() & bound:
                raise Broken(f"{sorted(kept.keys() & bound)} bound, but {lacking} started as well and are not accepted")
            if lacking:
                left.append(kept)
        self._unaccepted = left

    def _check_bound(self) -> None:
        """Pods are bound to nodes that kube-scheduler allowed."""
        for pod in self._api.pods.values():
            if pod["spec"]["nodeName"] and pod["metadata"]["uid"] not in self._bound:
                self._bound.add(pod["metadata"]["uid"])
                self._scheduler.check_bound(pod)

    def held(self, leader: Replica) -> list[str]:
        """Pods that have a place and are not bound; none at rest."""
        unbound = {pod["metadata"]["uid"] for pod in self._api.pods.values() if not pod["spec"]["nodeName"]}
        return sorted(unbound & placed(leader))

    def _lack(self, leader: Replica, namespace: str, gang: Gang, before: set[str], after: set[str]) -> str:
        """The part of its demand that a gang lacks; "" if nothing."""
        of_gang = [
            record
            for record in records(leader)
            if (of := self._templates[record.uid]).gang == gang.name and of.job.namespace == namespace
        ]
        ended = leader.service.machine.cache.gangs.ended
        succeeded = [
            self._templates[uid]
            for uid, each in ended.items()
            if each.has_succeeded and each.description.gang == GangKey(namespace, gang.name)
        ]
        policy = gang.policy
        if policy is MatchPolicy.ONCE_SATISFIED and (succeeded or any(record.uid in before for record in of_gang)):
            return ""
        counted = [
            self._templates[record.uid]
            for record in of_gang
            if record.uid in after and not (policy is MatchPolicy.ONLY_WAITING and record.seen.is_running)
        ]
        if policy is MatchPolicy.WAITING_RUNNING_SUCCEED:
            counted += succeeded
        tasks = Counter(each.task for each in counted)
        if len(counted) < gang.minimum:
            return f"has {len(counted)} of {gang.minimum}"
        short = {task: tasks[task] for task, least in gang.task_minimums.items() if tasks[task] < least}
        return f"has too few of {short}" if short else ""

    def _check_places(self, leader: Replica) -> None:
        """No device is two pods'; what is written, known and held of a pod is the same."""
        if leader.service.metrics.recovery_failures._value.get():
            raise Broken("a bound pod was not accounted for")
        users: dict[tuple[str, int], str] = {}
        for uid, (node, cells) in written(self._api).items():
            for cell in cells:
                other = users.setdefault((node, cell), uid)
                if other != uid:
                    raise Broken(f"device {cell} of {node} is {other}'s and {uid}'s")
        for record in records(leader):
            if not record.state.has_node or record.request is None:
                continue
            group = record.request.spec.group.name
            if record.place.info is None or group not in leader.core.state.groups:
                raise Broken(f"{record.uid} is {record.state.value}, and the core knows nothing of it")
            held = leader.core.bind_info_of(group)
            if record.is_of_dialect and _cells(held) != _cells(record.place.info):
                raise Broken(f"{record.uid} is to be at {_cells(record.place.info)}, but holds {_cells(held)}")
            text = written(self._api).get(record.uid)
            if record.state is PodState.BOUND and text is not None and text != _cells(record.place.info):
                raise Broken(f"{record.uid} says {text} and is known at {_cells(record.place.info)}")

    def _check_reservations(self, leader: Replica) -> None:
        """Whatever is reserved is so for pods that are still to start just like that."""
        cache = leader.service.machine.cache
        wanted = {}
        for record in records(leader):
            if record.state.is_placed:
                continue
            if not record.is_of_dialect:
                wanted |= {record.request.spec.group.name: None} if record.request is not None else {}
                continue
            try:
                step = cache.rounds.step(record)
            except UserError:
                continue
            if isinstance(step, Alone) and step.request is not None:
                wanted[step.request.spec.group.name] = None
            elif isinstance(step, Round):
                wanted |= {part.request.spec.group.name: part.request for part in step.parts}
        for name, group in leader.core.state.groups.items():
            if group.state is GroupState.PREEMPTING:
                if name not in wanted:
                    raise Broken(f"cells are reserved for {name}, which is not to start")
                request = wanted[name]
                if request is not None and request.spec.group != group.spec.group:
                    raise Broken(f"cells are reserved for {name} as it was")
            elif name.startswith("podgroup/"):
                raise Broken(f"{name} was not split")

    # Rest

    def check_nobody_could_start(self, leader: Replica, jobs: Iterable[Job], objects: Container[ObjectRef]) -> None:
        """With all nodes healthy and nothing under way, every job waits for pods, its object or cells of its VC.

        Counted plainly, and only where that is easy: jobs with a guarantee of which no pod has started or ended yet,
        and pods for which nobody else is needed.
        """
        for job in jobs:
            mine = [pod for pod in self._api.pods.values() if self._templates[pod["metadata"]["uid"]].job is job]
            waiting = [self._templates[pod["metadata"]["uid"]] for pod in mine if not pod["spec"]["nodeName"]]
            is_held = any(pod["spec"].get("schedulingGates") for pod in mine if not pod["spec"]["nodeName"])
            if not job.gangs or job.priority < 0 or is_held or any(ref not in objects for ref in job.objects):
                continue
            if len(waiting) == len(mine) and all(_is_complete(gang, waiting) for gang in job.gangs.values()):
                if self._fit(leader, job, [each.gpus for each in waiting]):
                    raise Broken(f"{job.name} could start, but waits")
            elif any(pod["spec"]["nodeName"] and not _is_over(pod) for pod in mine) and _lets_in_anybody(job):
                for each in waiting:
                    if self._fit(leader, job, [each.gpus]):
                        raise Broken(f"{each.name} could join its gang, but waits")

    def _fit(self, leader: Replica, job: Job, sizes: Iterable[int]) -> bool:
        """Do pods of these sizes fit in what the job's VC has left of its nodes, those of lower priority aside?"""
        used: Counter[str] = Counter()
        groups = {}
        for record in records(leader):
            request, info = record.request, record.place.info
            if record.state.has_node and request is not None and info is not None:
                spec = request.spec
                if spec.virtual_cluster == NAMESPACES[job.namespace] and spec.priority >= job.priority:
                    groups[spec.group.name] = info
        for info in groups.values():
            for place in (place for member in info.members for place in member):
                used[place.node] += len(place.leaf_cell_indices)
        free = sorted((NODE_SIZE - count for count in used.values()), reverse=True)
        free += [NODE_SIZE] * (VC_SIZES[NAMESPACES[job.namespace]] // NODE_SIZE - len(free))
        for size in sorted(sizes, reverse=True):
            index = next((index for index, left in enumerate(free) if left >= size), None)
            if index is None:
                return False
            free[index] -= size
        return True

    # Take-overs

    def check_successor(self, leader: Replica, before: Picture) -> None:
        """A new leader has every pod where it was, and the rest of a gang of which one pod was bound.

        A pod that was refused at its place after its mates were bound may be there once more: they still say so. It may
        have been given another since, of which nothing is written.
        """
        after = picture(leader)
        bound = written(self._api).keys() | {
            pod["metadata"]["uid"] for pod in self._api.pods.values() if pod["spec"]["nodeName"] and not _is_over(pod)
        }
        for uid, cells in after.places.items():
            is_promised = uid not in bound and after.promised_by.get(uid) in bound
            may_be_back = uid not in before.places or is_promised
            if before.places.get(uid) != cells and not (may_be_back and cells in self._had.get(uid, ())):
                raise Broken(f"{uid} was at {before.places.get(uid)}, and is at {cells} after a take-over")
        for together in [*self._rounds, *({uid} for uid in bound & before.places.keys())]:
            lost = (together & before.places.keys()) - after.places.keys()
            lost -= {uid for uid in lost if before.promised_by.get(uid, uid) not in bound | {uid}}  # nobody says so now
            if lost and together & bound:
                raise Broken(f"{sorted(together & bound)} are bound, and {sorted(lost)} have no place any more")
        if after.places.keys() == before.places.keys() and after.plans != before.plans:
            raise Broken(f"the plan was {before.plans}, and is {after.plans} after a take-over")
        self._rounds = [kept for each in self._rounds if len(kept := each & after.places.keys()) > 1]


def _is_complete(gang: Gang, templates: Iterable[Template]) -> bool:
    tasks = Counter(each.task for each in templates if each.gang == gang.name)
    enough = all(tasks[task] >= least for task, least in gang.task_minimums.items())
    return enough and tasks.total() >= gang.minimum


def _lets_in_anybody(job: Job) -> bool:
    """Once its gang has started, and there is only one."""
    return [gang.policy for gang in job.gangs.values()] == [MatchPolicy.ONCE_SATISFIED]


def records(replica: Replica) -> list[PodRecord]:
    """All pods that the replica knows."""
    return list(replica.service.machine.cache.pods)


def placed(replica: Replica) -> set[str]:
    """Pods that have a place, or may take any."""
    return {record.uid for record in records(replica) if record.state.is_placed}


def places(replica: Replica) -> dict[str, Cells]:
    """Where they are."""
    return {
        record.uid: _cells(record.place.info) if record.place.info is not None else ("", ())
        for record in records(replica)
        if record.state.is_placed
    }


def picture(replica: Replica) -> Picture:
    """See `Picture`."""
    plans = {}
    gangs = replica.service.machine.cache.gangs
    for gang in gangs.all():
        plan = gangs.plan(gang.key)
        if placed(replica).issuperset(gang.members):
            continue
        plans[gang.key] = plan.refusal, plan.forming, plan.round.uids if plan.round is not None else frozenset()
    promised_by = {record.uid: by for record in records(replica) if (by := record.place.promised_by)}
    return Picture(places(replica), plans, promised_by)


def written(api: Api) -> dict[str, Cells]:
    """The places of bound pods with devices that are not over, as their annotations have them."""
    found = {}
    for pod in api.pods.values():
        if pod["spec"]["nodeName"] and not _is_over(pod):
            notes = to_pod(pod).annotations
            uid = pod["metadata"]["uid"]
            if any(key.endswith("pod-bind-info") for key in notes):
                found[uid] = _cells(bind_info(notes, uid))
    return found


def _cells(info: BindInfo) -> Cells:
    return info.node, info.leaf_cell_indices


def _is_over(pod: Json) -> bool:
    return pod["status"]["phase"] in ("Succeeded", "Failed")
