"""Random histories of tenants who go past their quotas by every road, on a service that leads and is restarted.

    python -m tests.property.quota_cheats --events 100000 --seed 1

Jobs of queues, plain and opportunistic pods, affinity groups, gangs, pods that claim owners, labels of others' leaves;
pods end in any order, trees are edited below their use, replicas change. After each event the use that the API server
and the holds show is within every `max` and `max-jobs`, or has not grown since its quota was lowered. Every so often
the count is compared with one that is made anew, and at the end nothing is counted.
"""

import sys
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from random import Random

from hived.values.decisions import Bind
from hived.values.errors import UserError
from hived_extender.jobs.quotas.tree import LABELS, QuotaTree
from hived_extender.machine.quota_bound import Charge
from hived_extender.machine.stimuli import Hold, HoldDropped, HoldsLookedAt, HoldState, QuotasFollowed
from tests.driver import history_parser, seeds
from tests.extender.jobs.quotas.trees import GPU, quota, tree
from tests.extender.machine.small_cluster import Json, spec_text
from tests.extender.machine.small_gangs import koordinator
from tests.extender.machine.small_jobs import SmallJobCluster, hold

MAX_JOBS = "kube-queue/max-jobs"
PRIORITY = "hivedscheduler.microsoft.com/priority"
LEAVES = {"t": "ns", "u": "other"}
EVENTS_EACH = 60
RECOUNTED_EVERY = 7


class BrokenError(AssertionError):
    """A quota was passed, or a count is wrong."""


class Cheats:
    """One history; `log` has all that happened."""

    def __init__(self, seed: int) -> None:
        self.random = Random(f"cheats {seed}")
        self.cluster = SmallJobCluster()
        self.log: list[str] = []
        self._number = 0
        self._holds: dict[str, Hold] = {}
        self._sizes: dict[str, int] = {}  # GPUs of each pod
        self._jobs: dict[str, str] = {}  # what a pod is counted as
        self._whole: dict[str, int] = {}  # GPUs of groups, which have all of them from their first pod on
        self._before: dict[str, tuple[float, int]] = {}
        self._tree = self._random_tree()
        self._follow()

    def run(self, events: int = EVENTS_EACH) -> None:
        """Play it, and let everything end."""
        acts: list[Callable[[], None]] = [
            *(self.plain, self.own_words, self.group, self.gang, self.claimed, self.queued, self.comes),
            *(self.ask, self.ask, self.ask, self.ask, self.end, self.end, self.drop, self.edit, self.restart),
        ]
        for event in range(events):
            act = self.random.choice(acts)
            self.log.append(act.__name__)
            with suppress(UserError):
                act()
            self._call_back()
            self.check()
            if event % RECOUNTED_EVERY == 0:
                self._compare()
        for name in list(self._holds):
            self.cluster.tell(HoldDropped(self._holds.pop(name).key))
        for pod in list(self.cluster.kube.pods.values()):
            self.cluster.delete(pod)
        if self._charges():
            raise BrokenError(f"counted although nothing runs: {self._charges()}")

    # Events

    def plain(self) -> None:
        """A pod, often opportunistic, often with the label of some leaf."""
        labels = {LABELS[0]: self.random.choice(("t", "u", "nobody"))} if self.random.random() < 0.3 else {}
        notes = {PRIORITY: "-1"} if self.random.random() < 0.4 else {}
        gpus = self.random.choice((1, 2, 4))
        name = self._new("p", gpus)
        self.cluster.pod(name, gpus, notes, labels, namespace=self.random.choice(list(LEAVES.values())))

    def own_words(self) -> None:
        """A pod whose containers ask for no device."""
        gpus = self.random.choice((1, 2, 4))
        self.cluster.create(self._new("w", gpus), spec_text(leaf_cells=gpus, priority=self.random.choice((-1, 0, 5))))

    def group(self) -> None:
        """The pods of an affinity group, not all of which are there."""
        gpus, pods = self.random.choice((1, 2)), self.random.randint(2, 3)
        group = self._new("g", 0)
        self._whole[group] = gpus * pods
        for _ in range(self.random.randint(1, pods)):
            name = self._new("g", gpus, group)
            self.cluster.create(name, spec_text(leaf_cells=gpus, group=group, pods=pods))

    def gang(self) -> None:
        """The pods of a gang of a dialect, or one more than it needs."""
        gpus, pods = self.random.choice((1, 2)), self.random.randint(2, 3)
        gang = self._new("k", 0)
        for _ in range(pods + self.random.randint(0, 1)):
            self.cluster.pod(self._new("k", gpus, gang), gpus, koordinator(gang, pods))

    def claimed(self) -> None:
        """A pod that names a job as its owner: one that waits, runs, or does not exist."""
        gpus, owner = self.random.choice((1, 2)), self.random.choice([*self._holds, "none"])
        self.cluster.come(self._new("c", gpus, f"job {owner}"), owner, gpus)

    def queued(self) -> None:
        """A queue lets a job go."""
        name = self._new("j", 0)
        wanted = hold(name, self.random.randint(1, 3), self.random.choice((1, 2)), priority=self.random.choice((-1, 0)))
        gpus = sum(one.pod_count * one.leaf_cell_count for one in wanted.spec.group.members)
        wanted = Hold(wanted.key, wanted.job, wanted.spec, queue="root/t", request={GPU: float(gpus)})
        if isinstance(self.cluster.hold(wanted), Bind):
            self._holds[name] = wanted

    def comes(self) -> None:
        """A pod of a job that was let go."""
        if self._holds:
            name = self.random.choice(list(self._holds))
            size = self._holds[name].spec.leaf_cell_count
            self.cluster.come(self._new("q", size, f"job {name}"), name, size)

    def ask(self) -> None:
        """kube-scheduler asks about pods."""
        waiting = sorted(name for name, pod in self.cluster.kube.pods.items() if not pod["spec"]["nodeName"])
        for name in self.random.sample(waiting, min(len(waiting), 3)):
            self.log.append(f"{name}: {self.cluster.ask(name)}")

    def end(self) -> None:
        """A pod is gone."""
        if self.cluster.kube.pods:
            self.cluster.delete(self.cluster.kube.pods[self.random.choice(sorted(self.cluster.kube.pods))])

    def drop(self) -> None:
        """A queue calls a job back, or it is over."""
        if self._holds:
            name = self.random.choice(list(self._holds))
            self.cluster.tell(HoldDropped(self._holds.pop(name).key))

    def edit(self) -> None:
        """Another tree."""
        self._tree = self._random_tree()
        self._follow()

    def restart(self) -> None:
        """Another process leads; its queues hold the cells of jobs again before others get any."""
        self.cluster = self.cluster.restarted_jobs()
        self.cluster.tell(QuotasFollowed(None, is_known=False))
        self.ask()
        for wanted in self._holds.values():
            with suppress(UserError):
                self.cluster.hold(wanted)
        self._follow()

    def _call_back(self) -> None:
        """The queue of a job that has lost its cells calls it back."""
        states: dict[str, HoldState] = self.cluster.tell(HoldsLookedAt())
        for name, wanted in list(self._holds.items()):
            if wanted.key not in states or states[wanted.key].is_lost:
                del self._holds[name]
                self.cluster.tell(HoldDropped(wanted.key))

    # What has to hold

    def check(self) -> None:
        """No quota is passed, but by what ran when it was lowered."""
        used = self._used()
        for leaf in self._tree.leaves():
            gpus, jobs = used[leaf.short_name]
            was_gpus, was_jobs = self._before.get(leaf.short_name, (0.0, 0))
            if gpus > max(leaf.max[GPU], was_gpus):
                raise BrokenError(f"{leaf.name} uses {gpus} of {leaf.max[GPU]} GPUs, before {was_gpus}")
            if leaf.max_jobs is not None and jobs > max(leaf.max_jobs, was_jobs):
                raise BrokenError(f"{leaf.name} runs {jobs} of {leaf.max_jobs} jobs, before {was_jobs}")
        self._before = used

    def _used(self) -> dict[str, tuple[float, int]]:
        """GPUs and jobs of each leaf, by the nodes of pods and the jobs that cells were held for."""
        used: dict[str, Counter[str]] = {name: Counter() for name in LEAVES}
        leaf_of = {namespace: name for name, namespace in LEAVES.items()}
        for name in self.cluster.decided():
            pod: Json = self.cluster.kube.pods[name]
            jobs, job = used[leaf_of[pod["metadata"]["namespace"]]], self._jobs[name]
            jobs[job] = self._whole.get(job, jobs[job] + self._sizes[name])
        for name, wanted in self._holds.items():
            used["t"][f"job {name}"] = max(used["t"][f"job {name}"], int(wanted.request[GPU]))
        return {name: (float(jobs.total()), len(jobs)) for name, jobs in used.items()}

    def _compare(self) -> None:
        """Counting all changes is as good as counting anew."""
        known = self._charges()
        self._follow(QuotasFollowed(None))
        self._follow()
        anew = self._charges()
        if known != anew:
            raise BrokenError(f"counted {known}, and anew {anew}")

    def _charges(self) -> list[Charge]:
        machine = self.cluster.service.machine
        assert machine.cache.core is not None
        found = machine.holds.quotas.charges(machine.cache.core)
        return sorted((_plain(one) for one in found), key=str)

    def _random_tree(self) -> QuotaTree:
        leaves = []
        for name, namespace in LEAVES.items():
            most: dict[str, int] = {GPU: self.random.choice((2, 4, 6, 8, 16))}
            if self.random.random() < 0.5:
                most[MAX_JOBS] = self.random.randint(1, 4)
            leaves.append(quota(name, {}, most, namespaces=[namespace]))
        return tree(*leaves, total=64)

    def _follow(self, told: QuotasFollowed | None = None) -> None:
        self.cluster.tell(told or QuotasFollowed(self._tree))

    def _new(self, kind: str, gpus: int, job: str = "") -> str:
        self._number += 1
        name = f"{kind}{self._number}"
        self._sizes[name], self._jobs[name] = gpus, job or name
        return name


def _plain(charge: Charge) -> Charge:
    """Its groups in order."""
    return Charge(charge.leaf, charge.job, charge.amounts, charge.guaranteed, tuple(sorted(charge.lent)))


def main() -> None:
    done: list[int] = []
    options = history_parser("tests.property.quota_cheats", __doc__, "events", 100_000, seed=1).parse_args()
    for seed in seeds(options, lambda: len(done) * EVENTS_EACH, lambda: "0 quotas passed"):
        history = Cheats(seed)
        try:
            history.run()
        except BrokenError as broken:
            sys.exit("\n".join([*history.log, f"seed {seed}: {broken}"]))
        done.append(seed)


if __name__ == "__main__":
    main()
