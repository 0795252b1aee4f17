"""hived's own record, as `hived serve --record` writes it: a line for each event that reached the scheduler's core.

A job is a gang, a queued job, or an affinity group. It is submitted when it is first asked about, and runs from the
first pod that is bound to the last one that is deleted. A gang is asked about as one request, which is split into its
pods when it starts. That request is no pod, nor are stand-ins, which hold cells for pods to come. A pod that lost its
place before it was bound has not run. A pod that a new term of leadership does not find any more has ended with the
term before. Times are the `now` of the lines; a record without them, of an
earlier version, is refused.
"""

from collections.abc import Iterator

import msgspec

from hived.values.errors import UserError
from hived.values.specs import PodSpec
from hived_extender.jobs.annotations import read_spec
from hived_extender.machine.recording.operations import STAND_IN, SplitPod, held_for
from hived_extender.machine.recording.record import TraceLine
from hived_simulator.traces.draft import Draft
from hived_simulator.traces.fields import Unusable
from hived_simulator.traces.files import Format, Source
from hived_simulator.traces.kubernetes import SeenPod, jobs_of, of_spec


class _Life(msgspec.Struct):
    """One pod, or a gang that is asked about; `job` may come several times, and `gang` is the one of this time."""

    line: int
    created: float
    spec: PodSpec
    job: str
    gang: str
    is_told: bool
    started: float | None = None
    ended: float | None = None

    @property
    def is_running(self) -> bool:
        return self.started is not None and self.ended is None


class _Run:
    """The lives of all pods, by name, as the lines tell them.

    Lines before the first time are kept until it is known. A job whose pods have all gone may come again by its name:
    that is another one.
    """

    def __init__(self, draft: Draft) -> None:
        self._draft = draft
        self.lives: dict[str, _Life] = {}
        self.now: float | None = None
        self._early: list[TraceLine] = []
        self._unseen: dict[str, float] = {}
        self._before: set[str] = set()
        self._present: dict[str, int] = {}  # pods by job
        self._times: dict[str, int] = {}  # that a job has come

    def follow(self, line: TraceLine) -> None:
        """Note what an operation tells. Raises UserError if it has a spec that is none."""
        self.now = line.now if line.now is not None else self.now
        if line.pod.startswith(STAND_IN):
            return
        if self.now is None:
            self._early.append(line)
            return
        early, self._early = self._early, []
        for each in (*early, line):
            self._follow(each, self.now)

    def _follow(self, line: TraceLine, now: float) -> None:
        match line.op:
            case "new":
                self._unseen = {name: now for name, life in self.lives.items() if life.is_running}
            case "delete":
                self._end(line.pod, now, has_run=line.bound)
            case "addBound":
                self._unseen.pop(line.pod, None)
                if line.pod not in self.lives:
                    self._draft.remark(
                        "pods that ran before the record began, counted from their start if that is told"
                    )
                    self._before.add(line.pod)
                self._start(self._life(line, now), now)
            case "progress" if line.started is not None and line.pod in self._before and line.pod in self.lives:
                life = self.lives[line.pod]
                life.created = life.started = min(life.created, line.started)
            case "split":
                self._split(line, now)
            case "schedule":
                for name, gone in self._unseen.items():
                    self._end(name, gone)
                self._unseen = {}
                life = self._life(line, now)
                if line.commit:
                    self._start(life, now)

    def _split(self, line: TraceLine, now: float) -> None:
        """All pods of a gang run that was asked for as one, or take cells that were held for them.

        The gang's own request is no pod. Nor are those that only keep cells free until pods have come.
        """
        asked = self.lives.get(line.group)
        created = now if asked is None or asked.ended is not None else asked.created
        for each in msgspec.json.decode(line.pods or b"[]", type=list[SplitPod]):
            if each.pod.startswith((STAND_IN, f"{line.group}+")):
                continue
            life = self.lives.get(each.pod)
            if life is None:
                spec = read_spec(bytes(each.spec).decode())
                life = self._come(each.pod, spec, each.job or held_for(line.group) or line.group, created, is_told=True)
            self._start(life, now)
        if asked is not None:
            self._end(line.group, now, has_run=False)
            del self.lives[line.group]

    def _life(self, line: TraceLine, now: float) -> _Life:
        life = self.lives.get(line.pod)
        if life is None:
            spec = read_spec(line.text)
            job = line.job or spec.group.name or line.pod
            life = self._come(line.pod, spec, job, now, is_told=bool(line.job))
        return life

    def _come(self, name: str, spec: PodSpec, job: str, created: float, *, is_told: bool) -> _Life:
        present = self._present.get(job, 0)
        self._present[job] = present + 1
        self._times[job] = times = self._times.get(job, 0) + (present == 0)
        gang = job if times == 1 else f"{job}#{times}"
        life = self.lives[name] = _Life(self._draft.line, created, spec, job, gang, is_told)
        return life

    def _start(self, life: _Life, now: float) -> None:
        """A pod has a place from now on. One that was gone has lost an earlier place, and waited for another."""
        if life.ended is not None:
            life.started = life.ended = None
            self._present[life.job] += 1
        life.started = now if life.started is None else life.started

    def _end(self, name: str, now: float, *, has_run: bool = True) -> None:
        life = self.lives.get(name)
        if life is not None and life.ended is None:
            life.ended = now
            life.started = life.started if has_run else None
            self._present[life.job] -= 1


def _recognises(head: str) -> bool:
    return head.lstrip().startswith('{"op":')


def _read(source: Source, draft: Draft) -> None:
    draft.tenant_key("virtualCluster", ("virtualCluster",))
    decoder = msgspec.json.Decoder(TraceLine)
    run = _Run(draft)
    for draft.line, text in enumerate(source.lines(), 1):
        if not text.strip():
            continue
        try:
            line = decoder.decode(text)
        except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
            raise UserError(f"{source.name}:{draft.line}: is no operation of a record: {error}") from None
        try:
            run.follow(line)
        except (UserError, msgspec.MsgspecError) as error:
            draft.leave_out(Unusable("not readable", "spec", str(error)))
    if run.now is None:
        raise UserError(
            f"{source.name}: has no times, as records of earlier versions of hived; record again with this one"
        )
    draft.take(jobs_of(_pods(run.lives, run.now, draft)), lambda job: job)


def _pods(lives: dict[str, _Life], last: float, draft: Draft) -> Iterator[SeenPod]:
    """All pods that ran. Those of a job that differ in type are jobs of their own, as a job of a trace has one type."""
    types: dict[str, list[str]] = {}
    for life in lives.values():
        known = types.setdefault(life.gang, [])
        if life.started is not None and life.spec.leaf_cell_type not in known:
            known.append(life.spec.leaf_cell_type)
    for name, life in lives.items():
        draft.line = life.line
        if life.is_running:
            draft.remark("pods that still ran, counted up to the end of the record")
        ended = last if life.ended is None else life.ended
        if life.started is None or ended <= life.started:
            draft.leave_out(Unusable("never ran"))
        else:
            seen = of_spec(name, life.spec, (life.created, life.started, ended))
            is_first = types[life.gang][0] == life.spec.leaf_cell_type
            gang = life.gang if is_first else f"{life.gang} {life.spec.leaf_cell_type}".rstrip()
            yield msgspec.structs.replace(seen, gang=gang, shape=() if life.is_told else seen.shape)


FORMAT = Format("record", "hived, record of a run", _recognises, _read)
