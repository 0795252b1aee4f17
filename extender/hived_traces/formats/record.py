"""hived's own record, as `hived serve --record` writes it: a line for each event that reached the scheduler's core.

A group is submitted when a pod of it is first asked about. It runs from the first pod that is bound to the last one
that is deleted. A pod that a new term of leadership does not find any more has ended with the term before. Times are
the `now` of the lines; a record without them, of an earlier version, is refused.
"""

from collections.abc import Iterator

import msgspec

from hived.errors import UserError
from hived.specs import PodSpec
from hived_extender.pods.annotations import read_spec
from hived_traces.draft import Draft
from hived_traces.fields import Unusable
from hived_traces.formats.format import Format
from hived_traces.formats.kubernetes import of_spec
from hived_traces.gangs import SeenPod, jobs_of
from hived_traces.sources import Source


class _Line(msgspec.Struct, rename="camel"):
    """What a trace needs of an operation; its other keys are ignored."""

    op: str
    now: float | None = None
    pod: str = ""
    spec: msgspec.Raw = msgspec.Raw(b"")
    annotation: str | None = None
    commit: bool = False
    started: float | None = None


class _Life(msgspec.Struct):
    line: int
    created: float
    spec: PodSpec
    started: float | None = None
    ended: float | None = None

    @property
    def is_running(self) -> bool:
        return self.started is not None and self.ended is None


def _recognises(head: str) -> bool:
    return head.lstrip().startswith('{"op":')


class _Run:
    """The lives of all pods, by name, as the lines tell them."""

    def __init__(self, draft: Draft) -> None:
        self._draft = draft
        self.lives: dict[str, _Life] = {}
        self.now: float | None = None
        self._unseen: dict[str, float] = {}
        self._before: set[str] = set()

    def follow(self, line: _Line) -> None:
        """Note what an operation tells. Raises UserError if it has a spec that is none."""
        self.now = line.now if line.now is not None else self.now
        if self.now is None:
            return
        if line.op == "new":
            self._unseen = {name: self.now for name, life in self.lives.items() if life.is_running}
        elif line.op == "delete":
            self._end(line.pod, self.now)
        elif line.op == "addBound":
            self._unseen.pop(line.pod, None)
            if line.pod not in self.lives:
                self._draft.remark("pods that ran before the record began, counted from their start if that is told")
                self._before.add(line.pod)
            life = self._life(line, self.now)
            life.started = self.now if life.started is None else life.started
        elif line.op == "progress" and line.started is not None and line.pod in self._before:
            life = self._life(line, self.now)
            life.created = life.started = min(life.created, line.started)
        elif line.op == "schedule":
            for name, gone in self._unseen.items():
                self._end(name, gone)
            self._unseen = {}
            life = self._life(line, self.now)
            if line.commit and life.started is None:
                life.started = self.now

    def _life(self, line: _Line, now: float) -> _Life:
        life = self.lives.get(line.pod)
        if life is None:
            text = line.annotation if line.annotation is not None else bytes(line.spec).decode()
            life = self.lives[line.pod] = _Life(self._draft.line, now, read_spec(text))
        return life

    def _end(self, name: str, now: float) -> None:
        life = self.lives.get(name)
        if life is not None and life.ended is None:
            life.ended = now


def _read(source: Source, draft: Draft) -> None:
    decoder = msgspec.json.Decoder(_Line)
    run = _Run(draft)
    for draft.line, text in enumerate(source.text(), 1):
        if not text.strip():
            continue
        try:
            line = decoder.decode(text)
        except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
            raise UserError(f"{source.name}:{draft.line}: is no operation of a record: {error}") from None
        try:
            run.follow(line)
        except UserError as error:
            draft.leave_out(Unusable("not readable", "spec", str(error)))
    if run.now is None:
        raise UserError(
            f"{source.name}: has no times, as records of earlier versions of hived; record again with this one"
        )
    draft.take(jobs_of(_pods(run.lives, run.now, draft)), lambda job: job)


def _pods(lives: dict[str, _Life], last: float, draft: Draft) -> Iterator[SeenPod]:
    for name, life in lives.items():
        draft.line = life.line
        if life.is_running:
            draft.remark("pods that still ran, counted up to the end of the record")
        ended = last if life.ended is None else life.ended
        if life.started is None or ended <= life.started:
            draft.leave_out(Unusable("never ran"))
        else:
            yield of_spec(name, life.spec, (life.created, life.started, ended))


FORMAT = Format("record", "hived, record of a run", _recognises, _read)
