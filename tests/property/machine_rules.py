"""Rules that hold of the machine after every stimulus, and when everything has come to rest."""

from collections import Counter

from hived.cells.state import GroupState
from hived.life.status import snapshot
from hived.scheduler import check_invariants
from hived.values.specs import BindInfo
from hived_extender.jobs.annotations import BIND_INFO
from hived_extender.jobs.bind_info import bind_info
from hived_extender.jobs.progress import read_progress
from hived_extender.machine import announcements, bound_pods, preemptions, retries
from hived_extender.machine.effects import (
    AnnotatePod,
    Announce,
    BindPod,
    EvictPod,
    KeepChanged,
    TouchPod,
    WriteStatuses,
)
from hived_extender.machine.machine import Machine
from hived_extender.machine.pods import PodState
from tests.extender.machine.small_cluster import Json, to_pod
from tests.property.machine_cluster import Api
from tests.property.machine_twins import Broken, Machines


def check(machines: Machines, api: Api) -> None:
    """After every stimulus."""
    _check_devices(machines, api)
    _check_under_way(machines)
    core = machines.first.cache.core
    if core is not None:
        check_invariants(core.state)
    if machines.held != set(machines.first._acceptance.starts._starts):
        raise Broken(f"bindings of {sorted(machines.held)} are held back")


def _check_devices(machines: Machines, api: Api) -> None:
    """No device is two pods', be it written, or decided."""
    users: dict[tuple[str, int], str] = {}
    places = written(machines, api)
    for record in machines.first.cache.pods:
        if record.place.info is not None:
            places.setdefault(record.uid, record.place.info)
    for uid, info in places.items():
        for leaf in info.leaf_cell_indices:
            other = users.setdefault((info.node, leaf), uid)
            if other != uid:
                raise Broken(f"device {leaf} of {info.node} is that of {other} and of {uid}")


def _check_under_way(machines: Machines) -> None:
    """The machine knows how much is under way, which is not more than it wants at once."""
    machine, counts = machines.first, Counter(type(sent.effects[0]) for sent in machines.sent)
    told = machine.announcements
    known = {
        TouchPod: (machine._wakes._under_way, retries.AT_ONCE),
        EvictPod: (machine.preemptions._under_way, preemptions.AT_ONCE),
        AnnotatePod: (len(machine.cache.bound.rewrites._under_way), bound_pods.AT_ONCE),
        Announce: (len(told._under_way) + told._orphan_count, announcements.AT_ONCE),
    }
    for kind, (count, most) in known.items():
        if counts[kind] != count or count > most:
            raise Broken(f"{counts[kind]} {kind.__name__} are under way, and known are {count}")
    if counts[KeepChanged] > 1 or counts[WriteStatuses] > 1:
        raise Broken(f"two are under way: {counts}")
    for kind in (EvictPod, AnnotatePod):
        twice = [uid for uid, count in _of_this_term(machines, kind).items() if count > 1]
        if twice:
            raise Broken(f"two {kind.__name__} are under way for each of {twice}")
    writing = _of_this_term(machines, BindPod)
    for record in machine.cache.pods:
        count = record.writing.count
        if count < 0 or (record.state is not PodState.BOUND and count < writing[record.uid]):
            raise Broken(f"{count} bindings of {record.uid} are said to be under way")


def _of_this_term(machines: Machines, kind: type) -> Counter[str]:
    """How many effects of a kind are under way that were decided in this term, by pod."""
    present = [sent.effects[0] for sent in machines.sent if sent.term == machines.first.term]
    return Counter(effect.pod.uid for effect in present if isinstance(effect, kind))


def check_rest(machines: Machines, api: Api) -> None:
    """With nothing under way, and after a long time: nothing is still to come, and pods say what is known of them."""
    machine, texts = machines.first, written(machines, api)
    unbound = [record.uid for record in machine.cache.pods.records(PodState.BINDING)]
    if unbound or machines.held or not machine.announcements.is_quiet:
        raise Broken(f"{unbound} are being bound for ever, {machines.held} held back")
    for record in machine.cache.pods.records(PodState.BOUND):
        info = record.place.info
        if record.progress.times != read_progress(to_pod(api.pods[record.name]), machines.at).times:
            raise Broken(f"{record.uid} is known with the times {record.progress.times}")
        if info is not None and not record.marks.is_changed and texts.get(record.uid) != info:
            raise Broken(f"{record.uid} says {texts.get(record.uid)}, and is known at {info}")


def check_equal(present: Machine, rebuilt: Machine) -> None:
    """A machine that was started has the state of the one that ran."""
    parts = zip(("physical cells", "virtual cells", "groups"), picture(present), picture(rebuilt), strict=True)
    for what, before, after in parts:
        keys = [key for key in before.keys() | after.keys() if before.get(key) != after.get(key)]
        if keys:
            changed = {key: (before.get(key), after.get(key)) for key in keys}
            raise Broken(f"{what}, before and after a restart: {changed}")


def written(machines: Machines, api: Api) -> dict[str, BindInfo]:
    """Where running pods say, with proof, that they run, by uid."""
    found = {}
    for pod in map(to_pod, api.pods.values()):
        meta, is_running = pod.metadata, pod.node and not pod.is_over and BIND_INFO in pod.annotations
        if is_running and machines.prover.proof_of(meta.uid, pod.node, meta.created or "", pod.annotations) is not None:
            found[meta.uid] = bind_info(pod.annotations, meta.uid)
    return found


def picture(machine: Machine) -> tuple[Json, Json, Json]:
    """Physical cells, virtual cells by VC, and groups.

    Left out is what a rebuilt state does not have: which of several virtual cells alike has which, as each pod gets the
    first; the VC and the health that are shown for an opportunistic pod, which depend on when its node was bad; that a
    preemption was cancelled (rules 8.9 and 9.7); and who took the place of a group, which annotations do not say.
    """
    physical, virtual, groups = snapshot(machine.cache.core.state)
    cells = {address: entry[:4] if entry[2] >= 0 else entry[:3] for address, entry in physical.items()}
    own = [(key, entry) for key, entry in virtual.items() if not key.endswith("-opp")]
    kinds = Counter((key.split("|")[0], key.count("/"), *map(str, entry[1:3])) for key, entry in own)
    shapes = {
        name: group
        | {"virtual": sorted(map(len, group["virtual"].values())), "state": group["state"].replace(*_SPARED)}
        | {"lazyPreemptor": ""}
        for name, group in groups.items()
    }
    return cells, dict(kinds), shapes


_SPARED = GroupState.BEING_PREEMPTED.value, GroupState.ALLOCATED.value
