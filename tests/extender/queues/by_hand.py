"""The turns of queues on a service whose every step the test takes itself: no thread, no clock, nothing in between."""

import dataclasses
from typing import cast

from msgspec.structs import replace

from hived.values.specs import GroupSpec, MemberSpec, PodSpec
from hived_config.rules import Queueing
from hived_extender.jobs.bind_info import Prover
from hived_extender.jobs.job import Job, JobState
from hived_extender.jobs.needs import Need, SeenJob
from hived_extender.jobs.wire import Pod
from hived_extender.kube.client import KubeClient
from hived_extender.machine.stimuli import HoldsLookedAt
from hived_extender.queues.announcing import JobEvents
from hived_extender.queues.publishing import Publisher
from hived_extender.queues.queued_jobs import Action, Change
from hived_extender.queues.table import written
from hived_extender.queues.turns import Shared, Turns
from tests.extender.machine.small_jobs import SmallJobCluster, job

GPUS = 4


class QueuesByHand:
    """Jobs of virtual cluster a, which owns two nodes of four GPUs. All pods are of four GPUs."""

    def __init__(self) -> None:
        self.cluster = SmallJobCluster()
        self.now = 100.0
        self.jobs: dict[str, SeenJob] = {}  # as the API server has them
        self.pods: dict[str, list[str]] = {}
        self.news: dict[str, None] = {}  # jobs of which the desk has yet to hear
        self.unwritable: list[str] = []  # jobs that the API server lets nobody suspend
        self.deaf: list[str] = []  # jobs whose pods go on although they are suspended
        self.turns = self._new_turns()

    # The owner and the controllers

    def create(
        self, name: str, pods: int = 2, priority: int = 0, template: Pod | None = None, *, ahead_s: float = 0.0
    ) -> None:
        """A job comes, held back. The API server's clock is so far ahead."""
        ref = job(name)
        spec = PodSpec(
            "a", priority, GPUS, GroupSpec(ref.key, (MemberSpec(pods, GPUS),)), leaf_cell_type="GPU",
            ignore_suggested_nodes=False,
        )  # fmt: skip
        self.now += 1
        held = Job(ref, "1", self.now + ahead_s, {}, {}, (), JobState.HELD)
        self.jobs[name] = SeenJob(held, Need(spec, {}, "ann", pods=((template, pods),) if template is not None else ()))
        self.news[name] = None

    def make_pods(self, name: str) -> None:
        """The controller of a job that was let go makes its pods."""
        need = self.jobs[name].need
        assert need is not None
        self.pods[name] = [f"{name}-{number}" for number in range(need.spec.group.members[0].pod_count)]
        for pod in self.pods[name]:
            self.cluster.come(pod, name, GPUS)

    def place_pods(self, name: str) -> None:
        """kube-scheduler asks about them."""
        for pod in self.pods[name]:
            self.cluster.ask(pod)

    def bring_pods(self, name: str) -> None:
        """The pods of a job are made and placed."""
        self.make_pods(name)
        self.place_pods(name)

    def delete(self, name: str) -> None:
        """A job is deleted."""
        del self.jobs[name]
        self.news[name] = None

    def end(self, name: str) -> None:
        """A job ends."""
        self._set(name, JobState.SUCCEEDED)

    def scale(self, name: str, pods: int) -> None:
        """The job needs so many pods from now on."""
        seen = self.jobs[name]
        assert seen.need is not None
        spec = seen.need.spec
        group = GroupSpec(spec.group.name, (MemberSpec(pods, GPUS),))
        need = replace(seen.need, spec=dataclasses.replace(spec, group=group))
        self.jobs[name], self.news[name] = replace(seen, need=need), None

    def suspend(self, name: str) -> None:
        """The owner of a job holds it back; its pods are gone."""
        self.delete_pods(name)
        self._set(name, JobState.HELD)

    def write_again(self, name: str, earlier: SeenJob) -> None:
        """The owner of a job lets it go with the state that was written onto it earlier."""
        self.jobs[name] = earlier
        self._set(name, JobState.RESUMED)

    def delete_pods(self, name: str) -> None:
        """The service hears that the pods of a job are gone."""
        for pod in self.pods.pop(name, []):
            self.cluster.drop(pod)

    def end_pod(self, name: str) -> None:
        """A pod has ended, and is not made anew."""
        self.cluster.drop(name)
        self.pods[name.rpartition("-")[0]].remove(name)

    # The desk

    def look(self) -> None:
        """What a turn of `QueueController` does; calls on jobs are made at once."""
        self.take_turn()
        for action in self.turns.take_actions(64):
            is_refused = action.change is Change.SUSPEND and action.job.name in self.unwritable
            if not is_refused:
                self.write(action)
            self.turns.wrote(action, "annotations are too long" if is_refused else "")
        self.cluster.by_hand.handle(HoldsLookedAt(()))  # what turns have asked for goes with the next stimulus
        self.cluster.by_hand.settle()

    def take_turn(self) -> None:
        """The same without the calls."""
        self.now += 1
        for name in self.news:
            self.turns.job_seen(job(name).job_name, self.jobs.get(name))
        self.news.clear()
        self.turns.pods_changed(self.cluster.service.machine.cache.jobs.take_changed())
        self.turns.follow_pods()
        self.turns.take_turn()

    def begin_anew(self) -> None:
        """Turns of another configuration or tree follow those of now."""
        before, self.turns = self.turns, self._new_turns((self.turns,))
        before.leave_off(self.turns)

    def restart(self) -> None:
        """Another process leads."""
        self.cluster = self.cluster.restarted_jobs()
        self.turns = self._new_turns()

    def let_go(self) -> list[str]:
        """The jobs that may have pods."""
        return [name for name, seen in self.jobs.items() if seen.job.state is JobState.RESUMED]

    def run(self, *names: str) -> None:
        """Jobs come and run."""
        for name in names:
            self.create(name, 1)
        self.look()
        for name in names:
            self.bring_pods(name)
        self.look()

    def order(self) -> list[str]:
        """The jobs that wait."""
        return [key.split("/")[2] for key in self.turns.queues.order("a")]

    def _set(self, name: str, state: JobState) -> None:
        seen = self.jobs[name]
        self.jobs[name] = replace(seen, job=replace(seen.job, state=state))
        self.news[name] = None

    def _new_turns(self, earlier: tuple[Turns, ...] = ()) -> Turns:
        machine = self.cluster.service.machine
        core = machine.cache.core
        assert core is not None
        kube = cast(KubeClient, self.cluster.kube)
        shared = Shared(Prover(), Publisher(kube, lambda: self.now), lambda: self.now, JobEvents())
        turns = Turns(machine, core, Queueing(is_enabled=True), None, shared)
        self.news.clear()
        for seen in self.jobs.values():
            turns.job_seen(seen.job.ref.job_name, seen, is_first=True, earlier=earlier)
        return turns

    def write(self, action: Action) -> None:
        """The API server carries a call out."""
        name = action.job.name
        seen = self.jobs.get(name)
        if seen is None:
            return
        state = seen.job.state
        if action.change is Change.RESUME:
            state = JobState.RESUMED
        elif action.change is Change.SUSPEND:
            state = JobState.HELD
            if name not in self.deaf:
                self.delete_pods(name)
        annotations = written(action.kept, action.job.uid, Prover())
        self.jobs[name] = replace(seen, job=replace(seen.job, state=state, annotations=annotations))
        self.news[name] = None
