"""Queues as a part of the machine, of which the test has each piece of a turn and each call carried out."""

from collections.abc import Callable, Collection, Mapping
from typing import Any, cast
from unittest.mock import Mock

from msgspec.structs import replace

from hived.values.errors import UserError
from hived.values.specs import GroupSpec, MemberSpec, PodSpec
from hived_config.rules import Queueing
from hived_extender.jobs.bind_info import Prover
from hived_extender.jobs.job import Job, JobState
from hived_extender.jobs.kinds.marks import HELD
from hived_extender.jobs.needs import Need
from hived_extender.kube.client import KubeClient
from hived_extender.kube.metrics import Metrics
from hived_extender.machine.effects import CallJob, Errand
from hived_extender.machine.stimuli import Deposed, TakeTurn, TimeCame, TurnAsked, Wrote
from hived_extender.queues.controller import QueueController
from hived_extender.queues.queued_jobs import Change
from hived_extender.queues.table import Kept, read_kept
from tests.extender.machine.small_jobs import SmallJobCluster, job

GPUS = 4
STATES = {Change.RESUME: JobState.RESUMED, Change.SUSPEND: JobState.HELD}


class ControllerByHand:
    """Jobs of virtual cluster a, which owns two nodes of four GPUs; each asks for whole nodes, and makes no pods."""

    def __init__(self, monkeypatch: Any) -> None:
        self.cluster = SmallJobCluster()
        self.kube = Mock()
        self.queues = QueueController(self.cluster.service, cast(KubeClient, self.kube), Prover(), Metrics())
        for watch in (self.queues._trees, self.queues._classes, self.queues._followed, self.queues._objects):
            monkeypatch.setattr(watch, "wait_until_listed", lambda timeout_s: True)
        monkeypatch.setattr(self.queues.jobs, "_read_need", lambda one: self.needs[one.ref.name])
        self.needs: dict[str, Need] = {}
        self.jobs: dict[str, Job] = {}  # as the API server has them
        self.version = 0
        self.is_behind = False
        self.configure(Queueing(is_enabled=True))

    def configure(self, queueing: Queueing) -> None:
        """Another configuration comes into force."""
        interpreter = self.cluster.service.machine.interpreter
        interpreter.configure(self.cluster.state.spec, replace(interpreter.rules, queueing=queueing))
        self.cluster.service.tell(TurnAsked())

    def lead_again(self, meanwhile: Callable[[], None]) -> None:
        """The replica loses its lease, and gets it back."""
        self.cluster.by_hand.handle(Deposed("follows"))
        meanwhile()
        self.cluster.lead()

    def create(self, name: str, pods: int = 1, priority: int = 0) -> None:
        """A job comes, which was suspended at its creation."""
        ref = job(name)
        group = GroupSpec(ref.key, (MemberSpec(pods, GPUS),))
        spec = PodSpec("a", priority, GPUS, group, leaf_cell_type="GPU", ignore_suggested_nodes=False)
        self.needs[name] = Need(spec, {}, "ann")
        self.set(name, Job(ref, "1", float(len(self.needs)), {}, {HELD: "true"}, (), JobState.HELD))

    def set(self, name: str, one: Job) -> None:
        """A job looks like this, and watches tell of it unless they are behind."""
        self.version += 1
        self.jobs[name] = replace(one, version=str(self.version))
        if not self.is_behind:
            self.queues.jobs.keep(one.ref.job_name, self.jobs[name])

    def say(self, name: str, words: Mapping[str, str | None], state: JobState | None = None) -> None:
        """A job gets annotations, or loses those of None, and has this state."""
        one = self.jobs[name]
        annotations = {key: text for key, text in {**one.annotations, **words}.items() if text is not None}
        self.set(name, replace(one, annotations=annotations, state=state or one.state))

    def delete(self, name: str) -> None:
        """A job is deleted."""
        self.queues.jobs.forget(self.jobs.pop(name).ref.job_name)

    def step(self) -> None:
        """Take the next piece of a turn; without one, time goes on, by a second at the most."""
        machine, runner = self.cluster.service.machine, self.cluster.by_hand
        if machine.has_turn:
            runner.handle(TakeTurn())
            return
        runner.at = max(runner.at, min(machine.due_at, runner.at + 1.0))
        if machine.due_at <= runner.at:
            runner.handle(TimeCame())

    def run(self, steps: int) -> None:
        """Take so many steps, and carry out at once what follows from each."""
        for _ in range(steps):
            self.step()
            self.carry_out()

    def carry_out(self, refused: Collection[str] = ()) -> None:
        """Carry out all effects, also those of an earlier term, as they were under way; calls on these jobs fail."""
        runner = self.cluster.by_hand
        while runner.jobs:
            effect, term = runner.jobs.popleft()
            if isinstance(effect, CallJob):
                is_done = effect.job.name not in refused and self._call(effect)
                runner.handle(Wrote(effect, None if is_done else UserError("refused")))
            elif isinstance(effect, Errand):
                runner.handle(Wrote(effect, found=effect.run(lambda: True)))
            else:
                runner._write(effect, term)

    def kept(self, name: str) -> Kept:
        """The state that is on a job."""
        return read_kept(self.jobs[name].annotations, self.jobs[name].ref.uid, Prover())

    def are(self, state: JobState) -> list[str]:
        """The jobs in a state."""
        return [name for name, one in self.jobs.items() if one.state is state]

    def held(self) -> list[str]:
        """The jobs for which cells are held."""
        return sorted(key.split("/")[2] for key in self.cluster.service.machine.holds.states())

    def _call(self, effect: CallJob) -> bool:
        one = self.jobs.get(effect.job.name)
        if one is None or one.state.is_over:
            return False
        metadata = effect.calls[0].body["metadata"]
        if metadata.get("resourceVersion", one.version) != one.version:
            return False
        called = self.queues._calls.get(effect.number)  # None: only words of its author are written
        state = None if called is None else STATES.get(called[1].change)
        self.say(one.ref.name, metadata["annotations"], state)
        return True
