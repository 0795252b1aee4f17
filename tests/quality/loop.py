"""Virtual time over the core: jobs come, wait in the queue of their VC, run, and are evicted.

Guaranteed jobs start in order of submission, VC by VC: nobody passes the head of a queue (no backfill). Opportunistic
jobs are tried in order of submission, too; a shape that was refused is not tried again before some cells are free. Over
quota: a guaranteed job that cannot start at once runs opportunistically where it can, and goes back to its place in the
queue when it is evicted.
"""

import heapq
from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from tests.quality.exhaustive import Wanted
from tests.quality.large import Job
from tests.quality.plain import OPPORTUNISTIC, Facts, Plain
from tests.quality.play import Answer, Play

_END, _CHANGE, _ARRIVAL = 0, 1, 2
_Entry = tuple[float, int, str]  # submission, number, name
Change = tuple[float, Callable[["Loop"], None]]


@dataclass(slots=True)
class Course:
    """How it went for a job, in seconds; None if it never came to that."""

    job: Job
    started: float | None = None
    guaranteed_at: float | None = None
    ended: float | None = None
    evictions: int = 0
    lost: float = 0.0  # leaf-seconds


@dataclass(frozen=True, slots=True)
class Options:
    """Of a run.

    over_quota : do waiting guaranteed jobs run opportunistically?
    checkpoint_s : seconds between checkpoints, 0 for none
    within : type of the cell that gangs have to be below, "" for none
    """

    over_quota: bool = False
    checkpoint_s: float = 0.0
    within: str = ""


Watcher = Callable[["Loop", Wanted, Answer], None]


@dataclass
class Loop:
    """One run. `watch` is called after each answer, with the facts as they are then (`rewound` has those before)."""

    play: Play
    options: Options = field(default_factory=Options)
    watch: Watcher | None = None
    now: float = 0.0
    courses: dict[str, Course] = field(default_factory=dict)
    evicted: int = 0
    _heap: list[tuple[float, int, int, str]] = field(default_factory=list)
    _queues: dict[str, list[_Entry]] = field(default_factory=lambda: defaultdict(list))
    _lent: dict[tuple[int, ...], list[_Entry]] = field(default_factory=lambda: defaultdict(list))
    _entries: dict[str, _Entry] = field(default_factory=dict)
    _runs: dict[str, tuple[float, int, int]] = field(default_factory=dict)  # job -> start, number of its run, priority
    _saved: dict[str, float] = field(default_factory=dict)  # job that runs -> its last checkpoint, or its start
    _saves: list[tuple[float, int, str]] = field(default_factory=list)  # time of the next one, number of the run, job
    _left: dict[str, float] = field(default_factory=dict)  # job -> seconds that it still has to run
    _used: dict[str, int] = field(default_factory=lambda: defaultdict(int))  # leaves in guaranteed use
    _quota: dict[str, int] = field(default_factory=dict)
    _idle: int = 0
    _refused: set[tuple[int, ...] | str] = field(default_factory=set)  # shapes and VCs, since cells became free
    _run_count: int = 0

    def run(self, jobs: Sequence[Job], changes: Sequence[Change] = ()) -> dict[str, Course]:
        """All jobs to their end, in order of time; job -> its course."""
        plain = self.play.facts.plain
        self._quota = {vc: leaf_quota(plain, vc) for vc in plain.promises}
        self._idle = sum(len(plain.leaves[top]) for top in plain.tops)
        for number, job in enumerate(jobs):
            self.courses[job.name] = Course(job)
            self._entries[job.name] = (job.submitted, number, job.name)
            self._left[job.name] = job.duration
            self._heap.append((job.submitted, _ARRIVAL, number, job.name))
        self._heap += [(time, _CHANGE, number, "") for number, (time, _) in enumerate(changes)]
        heapq.heapify(self._heap)
        while self._heap:
            self.now, kind, number, name = heapq.heappop(self._heap)
            if kind == _ARRIVAL:
                self._enqueue(self.courses[name].job)
            elif kind == _CHANGE:
                changes[number][1](self)
                self._refused.clear()
            elif name in self._runs and self._runs[name][1] == number:
                self.play.end(name)
                self._stop(name)
                self.courses[name].ended = self.now
            if not self._heap or self._heap[0][0] > self.now:
                self._start_all()
        return self.courses

    def _enqueue(self, job: Job) -> None:
        entry = self._entries[job.name]
        if job.priority > OPPORTUNISTIC:
            insort(self._queues[job.vc], entry)
        if job.priority == OPPORTUNISTIC or self.options.over_quota:
            insort(self._lent[job.sizes], entry)

    def _start_all(self) -> None:
        for vc in sorted(self._queues):
            queue = self._queues[vc]
            while queue and vc not in self._refused:
                if not self._start(self.courses[queue[0][2]].job, 0):
                    self._refused.add(vc)
        while True:
            heads = sorted((waiting[0], sizes) for sizes, waiting in self._lent.items() if waiting)
            for (_, _, name), sizes in heads:
                if sizes not in self._refused and sum(sizes) <= self._idle:
                    if self._start(self.courses[name].job, OPPORTUNISTIC):
                        break
                    self._refused.add(sizes)
            else:
                return

    def _start(self, job: Job, priority: int) -> bool:
        if priority > OPPORTUNISTIC and job.leaf_count > self._quota[job.vc] - self._used[job.vc]:
            return False
        within = self.options.within if len(job.sizes) > 1 else ""
        wanted = Wanted(job.name, job.vc, priority, tuple(sorted(job.sizes)), within=within)
        if priority > OPPORTUNISTIC:
            self._tell_saves()
        answer = self.play.ask(wanted, self.now)
        for victim in answer.victims:
            self._evict(victim.name)
        if self.watch is not None:
            self.watch(self, wanted, answer)
        if answer.running is None:
            return False
        for waiting in (self._queues[job.vc], self._lent[job.sizes]):
            at = bisect_left(waiting, self._entries[job.name])
            if waiting[at : at + 1] == [self._entries[job.name]]:
                del waiting[at]
        course = self.courses[job.name]
        course.started = self.now if course.started is None else course.started
        if priority > OPPORTUNISTIC:
            course.guaranteed_at = self.now
            self._used[job.vc] += job.leaf_count
        self._idle -= job.leaf_count
        self._run_count += 1
        self._runs[job.name] = (self.now, self._run_count, priority)
        self._saved[job.name] = self.now
        if priority == OPPORTUNISTIC and self.options.checkpoint_s:
            heapq.heappush(self._saves, (self.now + self.options.checkpoint_s, self._run_count, job.name))
        heapq.heappush(self._heap, (self.now + self._left[job.name], _END, self._run_count, job.name))
        return True

    def _tell_saves(self) -> None:
        """Tell the core which lent jobs have saved their work by now; only then can they be evicted."""
        every = self.options.checkpoint_s
        while self._saves and self._saves[0][0] <= self.now:
            due, number, name = heapq.heappop(self._saves)
            if name not in self._runs or self._runs[name][1] != number:
                continue  # that run is over
            while due + every <= self.now:
                due += every
            self._saved[name] = due
            self.play.save(name, due)
            heapq.heappush(self._saves, (due + every, number, name))

    def _evict(self, name: str) -> None:
        started, course = self._runs[name][0], self.courses[name]
        self._left[name] -= self._saved[name] - started
        course.lost += (self.now - self._saved[name]) * course.job.leaf_count
        course.evictions += 1
        self.evicted += 1
        self._stop(name)
        self._enqueue(course.job)

    def _stop(self, name: str) -> None:
        """A job has left its cells."""
        job, priority = self.courses[name].job, self._runs.pop(name)[2]
        self._idle += job.leaf_count
        if priority > OPPORTUNISTIC:
            self._used[job.vc] -= job.leaf_count
        self._refused.clear()


@contextmanager
def rewound(facts: Facts, answer: Answer) -> Iterator[Facts]:
    """The facts before an answer that was carried out."""
    assert answer.running is not None
    facts.remove(answer.running.name)
    for victim in answer.victims:
        facts.add(victim)
    try:
        yield facts
    finally:
        for victim in answer.victims:
            facts.remove(victim.name)
        facts.add(answer.running)


def leaf_quota(plain: Plain, vc: str) -> int:
    """Leaves that a VC is promised."""
    sizes = {(plain.chain[cell], plain.level[cell]): len(plain.leaves[cell]) for cell in range(len(plain.parent))}
    pinned = sum(len(plain.leaves[cell]) for cell in plain.pins[vc].values())
    return pinned + sum(sizes[key] * count for key, count in plain.promises[vc].items())
